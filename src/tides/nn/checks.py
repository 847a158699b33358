"""Validation at the models' doors: every message names the argument, what was found and what was wanted.

Shapes, dtypes and devices are always checked. Values (NaN, negative gaps, holes in `valid`) are checked where that
costs no synchronisation: on the CPU and outside of tracing. On a GPU they are checked where batches are made.

Models compute in float32 or float64. Half-precision *inputs* are converted to the model's dtype; a half-precision
*model* is refused, because its complex states would lose their slow modes (`torch.autocast` works).
"""

from typing import Any

import torch
from torch import Tensor

from tides.errors import ConfigError, DataError, ShapeError
from tides.functional.gaps import check_times, values_can_be_checked
from tides.nn.state import BackboneState


def check_count(value: int, name: str) -> None:
    """Sizes that are no field of the config."""
    if not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name}: found {value!r}, wanted an integer ≥ 1")


def check_signal(x: Tensor, channels: int, like: Tensor, *, name: str = "x", axes: str = "(b, l, d)") -> Tensor:
    """`x` in the model's dtype, after checking rank, width, kind of number and device."""
    if like.dtype not in (torch.float32, torch.float64):
        raise ShapeError(f"model: found parameters in {like.dtype}, wanted float32 (with torch.autocast) or float64")
    if not isinstance(x, Tensor):
        raise ShapeError(f"{name}: found {type(x).__name__}, wanted a tensor {axes}")
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


def check_gaps(gaps: Tensor | float, x: Tensor, valid: Tensor | None = None) -> Tensor:
    """Gaps as (b, l) in the dtype of `x`, zero over padding; a number or a vector (l,) holds for every series."""
    b, l = x.shape[:2]
    if not isinstance(gaps, Tensor):
        if not isinstance(gaps, int | float):
            raise ShapeError(f"gaps: found {type(gaps).__name__}, wanted a tensor (b, l), (l,) or a number")
        gaps = torch.full((b, l), float(gaps), dtype=x.dtype, device=x.device)
    if gaps.shape not in ((b, l), (l,)):
        raise ShapeError(
            f"gaps: found shape {tuple(gaps.shape)}, wanted (b, l) = ({b}, {l}), (l,) = ({l},) or a number"
        )
    gaps = _as_model_number(gaps, x, "gaps").expand(b, l)
    if valid is not None:
        gaps = gaps.masked_fill(~valid, 0)
    if values_can_be_checked(gaps):
        bad = ~(gaps >= 0) | torch.isinf(gaps)
        if bool(bad.any()):
            series, step = bad.nonzero()[0].tolist()
            raise DataError(
                f"gaps: found {gaps[series, step].item()} in series {series} at step {step}, wanted ≥ 0, finite"
            )
    return gaps


def check_elapsed(gap: Tensor, shape: tuple[int, ...], like: Tensor, *, name: str = "gap") -> Tensor:
    """Time that passes after a state, in the model's dtype: one number ≥ 0 per row of the state."""
    if not isinstance(gap, Tensor) or gap.shape != shape:
        found = tuple(gap.shape) if isinstance(gap, Tensor) else type(gap).__name__
        raise ShapeError(f"{name}: found {found}, wanted a tensor of shape {shape}")
    gap = _as_model_number(gap, like, name)
    if values_can_be_checked(gap):
        bad = ~(gap >= 0) | torch.isinf(gap)
        if bool(bad.any()):
            where = bad.nonzero()[0].tolist()
            raise DataError(f"{name}: found {gap[*where].item()} at {where}, wanted ≥ 0, finite")
    return gap


def check_state(state: Any, batch: int, depth: int) -> None:
    """A state must come from the same model (one layer per block) and the same number of series."""
    if not isinstance(state, BackboneState) or len(state.blocks) != depth:
        found = f"{len(state.blocks)} blocks" if isinstance(state, BackboneState) else type(state).__name__
        raise ShapeError(f"state: found {found}, wanted a BackboneState of {depth} blocks (see init_state)")
    if state.held.shape[0] != batch:
        raise ShapeError(f"state: found {state.held.shape[0]} series, wanted {batch}, one per row of the input")


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
        if observed.device != x.device:
            raise ShapeError(f"observed: found device {observed.device}, wanted {x.device}")
        x = x.masked_fill(~observed, 0)
    if valid is not None:
        x = x.masked_fill(~valid.unsqueeze(-1), 0)
    if values_can_be_checked(x):
        bad = ~torch.isfinite(x)
        if bool(bad.any()):
            series, step, channel = bad.nonzero()[0].tolist()
            raise DataError(
                f"values: found {x[series, step, channel].item()} in series {series} at step {step}, "
                f"channel {channel}; mark missing values with `observed`"
            )
    return x, observed


def check_queries(
    values: Tensor, times: Tensor, query_times: Tensor, valid: Tensor | None, query_valid: Tensor | None
) -> None:
    """Times (b, l) of the values' rows, and the times (b, q) at which a forecast is wanted."""
    b, l = values.shape[:2]
    if times.shape != (b, l):
        raise ShapeError(f"times: found shape {tuple(times.shape)}, wanted (b, l) = ({b}, {l})")
    if query_times.ndim != 2 or query_times.shape[0] != b or query_times.shape[1] == 0:
        raise ShapeError(f"query_times: found shape {tuple(query_times.shape)}, wanted (b, q) with b = {b}, q ≥ 1")
    if query_valid is not None and (query_valid.shape != query_times.shape or query_valid.dtype != torch.bool):
        raise ShapeError(
            f"query_valid: found {query_valid.dtype} of shape {tuple(query_valid.shape)}, "
            f"wanted bool (b, q) = {tuple(query_times.shape)}"
        )
    for name, x in (("times", times), ("query_times", query_times), ("query_valid", query_valid)):
        if x is not None and x.device != values.device:
            raise ShapeError(f"{name}: found device {x.device}, wanted {values.device}")
    if values_can_be_checked(times):
        check_times(times, valid)
        bad = ~torch.isfinite(query_times)
        bad = bad if query_valid is None else bad & query_valid
        if bool(bad.any()):
            raise DataError(f"query_times: not finite at index {bad.nonzero()[0].tolist()}")
