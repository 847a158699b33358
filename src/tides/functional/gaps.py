"""Gaps between observations: gaps[k] = t_k − t_{k−1}, and what stands before the first one."""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from tides.errors import DataError

FirstGap = Literal["median"] | float | Float[Tensor, ""]


def gaps_from_times(
    times: Real[Tensor, "*b l"],
    first: FirstGap = "median",
    *,
    start: float | Real[Tensor, "*b"] | None = None,
    valid: Bool[Tensor, "*b l"] | None = None,
) -> Float[Tensor, "*b l"]:
    """Gaps in the times' own precision (float64 for integers); padding gets gap 0.

    Nothing says how long before its first observation a series began, so the first gap is an explicit policy:
    `first="median"` (the median of all other gaps; pass the training median as a number to keep predictions
    independent of the batch), a number, or `start=`, the time at which the series began. It matters for
    `hold="preceding"` and for Mamba_S only. Decreasing or non-finite times raise `DataError`.
    """
    if not times.is_floating_point():
        times = times.double()
    checked = values_can_be_checked(times)
    if checked:
        check_times(times, valid)
    inner = times.diff(dim=-1)
    if start is not None:
        # Plain numbers stay plain: as tensors they would be copied from the host, which no CUDA graph can hold.
        head = times[..., :1] - (start.to(times).unsqueeze(-1) if isinstance(start, Tensor) else start)
        if checked and bool((head < 0).any()):
            raise DataError(f"start: found an observation {-head.min().item():g} before the start of its series")
    elif isinstance(first, str):
        if first != "median":
            raise DataError(f"first: found {first!r}, wanted 'median' or a number ≥ 0")
        observed = inner if valid is None else inner[valid[..., 1:]]
        if observed.numel() == 0:
            raise DataError("first='median': no series has two observations, so there is no gap; pass a number")
        head = observed.median().expand_as(times[..., :1])
    else:
        if (checked or not isinstance(first, Tensor)) and not first >= 0:
            raise DataError(f"first: found {first}, wanted 'median' or a number ≥ 0")
        if isinstance(first, Tensor):
            head = first.to(times).expand_as(times[..., :1])
        else:
            head = torch.full_like(times[..., :1], first)
    gaps = torch.cat([head, inner], dim=-1)
    return gaps if valid is None else gaps.masked_fill(~valid, 0)


def values_can_be_checked(x: Tensor) -> bool:
    """False while tracing, under `torch.func` transforms and on accelerators, where looking at values costs a wait."""
    if torch.compiler.is_compiling() or x.device.type != "cpu":
        return False
    return torch._C._functorch.peek_interpreter_stack() is None


def check_times(times: Tensor, valid: Tensor | None = None) -> None:
    """Times must be finite and non-decreasing along the last axis wherever `valid`."""
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
    """Seconds since 1970 in single precision are 128 apart: gaps would be noise, and most of them zero."""
    if times.dtype == torch.float64 or not times.is_floating_point() or times.shape[-1] < 2:
        return
    gaps = times.diff(dim=-1)
    positive = gaps[(gaps > 0) if valid is None else (gaps > 0) & valid[..., 1:]]
    largest = (times if valid is None else times.masked_fill(~valid, 0)).abs().max().item()
    step = largest * torch.finfo(times.dtype).eps
    # Where no time passes at all, whole numbers that cannot be told apart are the likelier reason.
    if step > (0.5 * positive.median().item() if positive.numel() else 1.0):
        raise DataError(
            f"times: found {times.dtype} around {largest:g}, which tells times apart by {step:.2g} at best, as much as "
            "the gaps themselves; wanted float64, or times counted from a later zero"
        )


def _first_index(mask: Tensor) -> list[int]:
    index: list[int] = mask.nonzero()[0].tolist()
    return index
