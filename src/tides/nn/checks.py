"""Validation at the models' doors: every message names the argument, what was found and what was wanted.

Shapes, dtypes and devices are always checked. Values (NaN, negative gaps, holes in `valid`) are checked where that
costs no synchronisation: on the CPU and outside of tracing. On a GPU they are checked where batches are made.
"""

import torch
from torch import Tensor

from tides.errors import DataError, ShapeError


def values_can_be_checked(x: Tensor) -> bool:
    """False while tracing, under `torch.func` transforms and on accelerators."""
    if torch.compiler.is_compiling() or x.device.type != "cpu":
        return False
    return torch._C._functorch.peek_interpreter_stack() is None


def check_signal(x: Tensor, channels: int, like: Tensor, *, name: str = "x", axes: str = "(b, l, d)") -> Tensor:
    """`x` in the model's dtype, after checking rank, width, kind of number and device."""
    rank = axes.count(",") + 1
    if x.ndim != rank or x.shape[-1] != channels:
        raise ShapeError(f"{name}: found shape {tuple(x.shape)}, wanted {axes} with last axis {channels}")
    if any(size == 0 for size in x.shape[:-1]):
        raise ShapeError(f"{name}: found shape {tuple(x.shape)}, wanted at least one series and one observation")
    return _as_model_number(x, like, name)


def _as_model_number(x: Tensor, like: Tensor, name: str) -> Tensor:
    if not x.is_floating_point():
        raise ShapeError(f"{name}: found dtype {x.dtype}, wanted a floating-point tensor (call .float())")
    if x.device != like.device:
        raise ShapeError(f"{name}: found device {x.device}, wanted the model's device {like.device}")
    return x.to(like.dtype)


def check_gaps(gaps: Tensor | float, x: Tensor) -> Tensor:
    """Gaps as (b, l) in the dtype of `x`; a number or a vector (l,) holds for every series."""
    b, l = x.shape[:2]
    if not isinstance(gaps, Tensor):
        gaps = torch.full((b, l), float(gaps), dtype=x.dtype, device=x.device)
    if gaps.shape not in ((b, l), (l,)):
        raise ShapeError(
            f"gaps: found shape {tuple(gaps.shape)}, wanted (b, l) = ({b}, {l}), (l,) = ({l},) or a number"
        )
    gaps = _as_model_number(gaps, x, "gaps").expand(b, l)
    if values_can_be_checked(gaps):
        bad = ~(gaps >= 0) | torch.isinf(gaps)
        if bool(bad.any()):
            series, step = bad.nonzero()[0].tolist()
            raise DataError(
                f"gaps: found {gaps[series, step].item()} in series {series} at step {step}, wanted ≥ 0, finite"
            )
    return gaps


def check_valid(valid: Tensor | None, x: Tensor) -> Tensor | None:
    """`valid` as booleans with padding at the end only."""
    if valid is None:
        return None
    if valid.shape != x.shape[:2] or valid.dtype != torch.bool:
        raise ShapeError(
            f"valid: found {valid.dtype} of shape {tuple(valid.shape)}, wanted bool (b, l) = {tuple(x.shape[:2])}"
        )
    if valid.device != x.device:
        raise ShapeError(f"valid: found device {valid.device}, wanted {x.device}")
    if values_can_be_checked(valid):
        holes = valid[:, 1:] & ~valid[:, :-1]
        if bool(holes.any()):
            series, step = holes.nonzero()[0].tolist()
            raise DataError(f"valid: series {series} has a hole before step {step + 1}; padding stands at the end only")
    return valid


def check_observed(observed: Tensor | None, x: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """`x` with zeros wherever nothing was observed; NaN is an error unless `observed` marks it as missing."""
    if observed is not None:
        if observed.shape != x.shape or observed.dtype != torch.bool:
            raise ShapeError(
                f"observed: found {observed.dtype} of shape {tuple(observed.shape)}, wanted bool {tuple(x.shape)}"
            )
        x = x.masked_fill(~observed, 0)
    if valid is not None:
        x = x.masked_fill(~valid.unsqueeze(-1), 0)
    if values_can_be_checked(x):
        bad = ~torch.isfinite(x)
        if bool(bad.any()):
            *where, channel = bad.nonzero()[0].tolist()
            raise DataError(
                f"values: found {x[*where, channel].item()} in series and step {where}, channel {channel}; "
                "mark missing values with `observed`"
            )
    return x, observed
