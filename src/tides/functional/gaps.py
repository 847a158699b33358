"""Gaps between observations: gaps[k] = t_k − t_{k−1}, and what stands before the first one."""

import math
from numbers import Real
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from jaxtyping import Real as Numeric
from torch import Tensor, nn

from tides.errors import DataError, ShapeError
from tides.functional.checks import describe_tensor, is_mask

FirstGap = Literal["median"] | float | Float[Tensor, ""]


def gaps_from_times(
    times: Numeric[Tensor, "*b l"],
    first: FirstGap = "median",
    *,
    start: int | float | Numeric[Tensor, "*b"] | None = None,
    valid: Bool[Tensor, "*b l"] | None = None,
) -> Float[Tensor, "*b l"]:
    """Gaps in the times' own precision (float64 for integers, which are subtracted exactly); padding gets gap 0.

    The data does not say how long before its first observation a series began, so the first gap is a choice:
    `first="median"` (the median of all other gaps), a number (the training median keeps predictions independent of the
    batch), or `start=`, the time at which the series began. It only matters for `hold="preceding"`, for Mamba_S and for
    `pool="time"`. Decreasing or non-finite times raise `DataError`.
    """
    if not isinstance(times, Tensor) or times.ndim == 0:
        raise ShapeError(f"times: found {describe_tensor(times)}, wanted a tensor (…, l)")
    if valid is not None and not is_mask(valid, times.shape):
        raise ShapeError(f"valid: found {describe_tensor(valid)}, wanted bool {tuple(times.shape)}, a tensor")
    if values_can_be_checked(times):
        check_times(times, valid)
    if times.is_floating_point():
        inner = times.diff(dim=-1)
    else:
        # As floating-point numbers, nanoseconds since 1970 would be 256 apart.
        times = times.long()
        inner = times.diff(dim=-1).double()
    head = _first_gap(times, inner, first, valid) if start is None else _since_start(times[..., :1], start)
    gaps = torch.cat([head, inner], dim=-1)
    return gaps if valid is None else gaps.masked_fill(~valid, 0)


def _first_gap(times: Tensor, inner: Tensor, first: Any, valid: Tensor | None) -> Tensor:
    """The gap (…, 1) before the first observation when nothing is known of the beginning."""
    shape = times[..., :1].shape
    if isinstance(first, str) and first == "median":
        observed = inner if valid is None else inner[valid[..., 1:]]
        if observed.numel() == 0:
            raise DataError("first='median': no series has two observations, so there is no gap; pass a number")
        return observed.median().expand(shape)
    if not isinstance(first, Tensor) or values_can_be_checked(first):
        number = first.numel() == 1 if isinstance(first, Tensor) else isinstance(first, Real)
        if not number or not 0 <= float(first) < math.inf:
            raise DataError(f"first: found {first!r}, wanted 'median' or a finite number ≥ 0")
    # Plain numbers stay plain: as tensors they would be copied from the host, which no CUDA graph can hold.
    return first.to(inner).expand(shape) if isinstance(first, Tensor) else inner.new_full(shape, first)


def _since_start(begin: Tensor, start: Any) -> Tensor:
    """The time (…, 1) from `start` to the first observation."""
    if isinstance(start, Tensor):
        if start.ndim and start.shape != begin.shape[:-1]:
            raise ShapeError(
                f"start: found shape {tuple(start.shape)}, wanted {tuple(begin.shape[:-1])}, one per series"
            )
        start = start.to(begin.device).unsqueeze(-1)
    elif not isinstance(start, Real) or not abs(float(start)) < (math.inf if begin.is_floating_point() else 2**63):
        raise DataError(f"start: found {start!r}, wanted a finite number or a tensor of them")
    if not begin.is_floating_point():
        head = whole_difference(begin, start)
    else:
        head = begin - (start.to(begin) if isinstance(start, Tensor) else start)
    if values_can_be_checked(head):
        if bool((head < 0).any()):
            raise DataError(f"start: found an observation {-head.min().item():g} before the start of its series")
        if not bool(torch.isfinite(head).all()):
            raise DataError("start: found a number that is not finite, wanted one per series")
    return head


def whole_difference(a: Tensor, b: Tensor | int | float) -> Tensor:
    """a − b in float64, their whole parts subtracted as integers: beyond 2⁵³ each alone would be rounded."""
    (a_whole, a_part), (b_whole, b_part) = _parts(a), _parts(b)
    difference: Tensor = (a_whole - b_whole).double() + (a_part - b_part)
    return difference


def _parts(x: Any) -> tuple[Any, Any]:
    """x as an integer and the rest in [0, 1)."""
    if not isinstance(x, Tensor):
        whole = math.floor(x)
        return whole, x - whole
    if not x.is_floating_point():
        return x.long(), 0
    floor = x.double().floor()
    return floor.long(), x.double() - floor


def values_can_be_checked(x: Tensor) -> bool:
    """False while tracing, under `torch.func` transforms and on accelerators, where looking at values costs a wait.

    Also false for fake tensors, with which a model's memory is planned: they have no values.
    """
    if torch.compiler.is_compiling() or x.device.type != "cpu" or type(x) not in (Tensor, nn.Parameter):
        return False
    return torch._C._functorch.peek_interpreter_stack() is None


def check_times(times: Tensor, valid: Tensor | None = None) -> None:
    """Raise `DataError` unless times are finite and non-decreasing along the last axis wherever `valid`."""
    bad = ~torch.isfinite(times)
    if valid is not None:
        bad = bad & valid
    if bool(bad.any()):
        raise DataError(f"times: not finite at index {_first_index(bad)} (NaN and infinity are not times)")
    falls = times.diff(dim=-1) < 0
    if valid is not None:
        falls = falls & valid[..., 1:]
    _check_resolution(times, valid)
    if bool(falls.any()):
        *series, step = _first_index(falls)
        raise DataError(
            f"times: decrease in series {series or 0} at observation {step + 1}: "
            f"{times[*series, step].item():g} is followed by {times[*series, step + 1].item():g}; sort the rows by time"
        )


def _check_resolution(times: Tensor, valid: Tensor | None) -> None:
    """Refuse times in single precision that cannot resolve the gaps: seconds since 1970 are 128 apart there."""
    if times.dtype == torch.float64 or not times.is_floating_point() or times.shape[-1] < 2:
        return
    gaps = times.diff(dim=-1)
    positive = gaps[(gaps > 0) if valid is None else (gaps > 0) & valid[..., 1:]]
    largest = (times if valid is None else times.masked_fill(~valid, 0)).abs().max().item()
    step = largest * torch.finfo(times.dtype).eps
    # Where no time passes at all, whole numbers that cannot be told apart are the likelier reason.
    if step > (0.5 * positive.median().item() if positive.numel() else 1.0):
        raise DataError(
            f"times: found {times.dtype} around {largest:g}, which only resolves {step:.2g}, about the size of "
            "the gaps; wanted float64, or times counted from a later zero"
        )


def _first_index(mask: Tensor) -> list[int]:
    index: list[int] = mask.nonzero()[0].tolist()
    return index
