"""Validation of models' inputs: every message names the argument, what was found and what was wanted.

Shapes, dtypes and devices are always checked. Values (NaN, negative gaps, holes in `valid`) are checked where that
costs no synchronisation: on the CPU and outside of tracing. On a GPU they are checked where batches are made.

Models compute in float32 or float64. Half-precision *inputs* are converted to the model's dtype; a half-precision
*model* is refused, because its complex states would lose their slow modes (`torch.autocast` works).
"""

from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from tides.errors import ConfigError, DataError, ShapeError
from tides.functional.checks import check_layer_input, describe_shape, describe_tensor, is_mask
from tides.functional.gaps import check_times, values_can_be_checked
from tides.functional.ssm import check_layer_state
from tides.functional.summary import sums_size
from tides.nn.config import TIDESConfig
from tides.nn.state import BackboneState, PooledState


def check_config(config: Any) -> None:
    if not isinstance(config, TIDESConfig):
        raise ConfigError(f"config: found {type(config).__name__}, wanted a TIDESConfig: TIDESConfig.from_dict")


def check_count(value: Any, name: str, least: int = 1) -> int:
    """A size that is not a field of the config, as a Python integer."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ConfigError(f"{name}: found {value!r}, wanted an integer ≥ {least}")
    return int(value)


def check_batch(batch: Any) -> None:
    """A number of series, also a symbolic one of a traced program."""
    if isinstance(batch, bool) or not isinstance(batch, Integral | torch.SymInt) or batch < 0:
        raise ShapeError(f"batch: found {batch!r}, wanted an integer ≥ 0")


def check_model_dtype(like: Tensor) -> None:
    """`like` is any parameter or buffer of the model."""
    if like.dtype not in (torch.float32, torch.float64):
        raise ShapeError(f"model: found parameters in {like.dtype}, wanted float32 (with torch.autocast) or float64")


def check_layer(
    u: Tensor, gaps: Tensor, like: Tensor, modes: int, *, valid: Tensor | None, state: Any
) -> tuple[Tensor, Tensor]:
    """Input (b, l, h) and gaps (b, l) of a layer used by itself, in the dtype of its weight `like` (h)."""
    check_model_dtype(like)
    check_layer_input(u, gaps, like.shape[-1], valid)
    if state is not None:
        check_layer_state(state, u.shape[0], modes)
    return _as_model_number(u, like, "u"), gaps.to(like.dtype)


def check_layer_step(u_t: Tensor, gap_t: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """One row (b, h) and the gap (b,) before it for a layer used by itself."""
    u_t = check_signal(u_t, like.shape[-1], like, name="u_t", axes="(b, h)")
    return u_t, check_elapsed(gap_t, tuple(u_t.shape[:1]), u_t, name="gap_t")


def check_signal(x: Tensor, channels: int, like: Tensor, *, name: str = "x", axes: str = "(b, l, d)") -> Tensor:
    """`x` in the model's dtype, after checking rank, width, kind of number and device."""
    check_model_dtype(like)
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


def check_gaps(gaps: Any, x: Tensor, valid: Tensor | None = None) -> Tensor:
    """Gaps as (b, l) in the dtype of `x`, zero over padding; a number or a vector (l,) holds for every series."""
    b, l = x.shape[:2]
    if not isinstance(gaps, Tensor):
        if not isinstance(gaps, Real):
            raise ShapeError(f"gaps: found {type(gaps).__name__}, wanted a tensor (b, l), (l,) or a number")
        gaps = torch.full((b, l), float(gaps), dtype=x.dtype, device=x.device)
    if gaps.shape not in ((b, l), (l,)):
        raise ShapeError(
            f"gaps: found shape {tuple(gaps.shape)}, wanted (b, l) = ({b}, {l}), (l,) = ({l},) or a number"
        )
    found = _as_model_number(gaps, x, "gaps").expand(b, l)
    if valid is not None:
        found = found.masked_fill(~valid, 0)
    if values_can_be_checked(found):
        bad = ~(found >= 0) | torch.isinf(found)
        if bool(bad.any()):
            series, step = bad.nonzero()[0].tolist()
            raise DataError(
                f"gaps: found {found[series, step].item()} in series {series} at step {step}, wanted ≥ 0, finite"
            )
    return found


def check_elapsed(gap: Tensor | float, shape: tuple[int, ...], like: Tensor, *, name: str = "gap") -> Tensor:
    """Time that passes after a state, in the model's dtype: one number ≥ 0 per row of the state, or one for all."""
    rows: Tensor = in_every_row(gap, shape, like)
    check_gap_shape(rows, shape, name=name)
    elapsed = _as_model_number(rows, like, name)
    if values_can_be_checked(elapsed):
        bad = ~(elapsed >= 0) | torch.isinf(elapsed)
        if bool(bad.any()):
            where = bad.nonzero()[0].tolist()
            raise DataError(f"{name}: found {elapsed[*where].item()} at {where}, wanted ≥ 0, finite")
    return elapsed


def in_every_row(gap: Any, shape: tuple[int, ...], like: Tensor) -> Any:
    """A plain number for every row of a state; whatever else was given, as it is."""
    if isinstance(gap, int | float) and not isinstance(gap, bool):
        return torch.full(shape, float(gap), dtype=like.dtype, device=like.device)
    return gap


def check_gap_shape(gap: Any, shape: tuple[int, ...], *, name: str = "gap") -> None:
    """One number per row of a state; for a layer inside a model, which has checked the values already."""
    if not isinstance(gap, Tensor) or gap.shape != shape:
        raise ShapeError(f"{name}: found {describe_shape(gap)}, wanted a tensor of shape {tuple(shape)}")


def check_state(state: Any, config: TIDESConfig, like: Tensor, batch: int | None = None) -> None:
    """A state must come from the same model, and without `batch` from any number of series or questions."""
    depth = config.depth
    if not isinstance(state, BackboneState) or len(state.blocks) != depth:
        found = f"{len(state.blocks)} blocks" if isinstance(state, BackboneState) else type(state).__name__
        raise ShapeError(f"state: found {found}, wanted a BackboneState of {depth} blocks (see init_state)")
    held = state.held
    if batch is not None and held.shape[0] != batch:
        raise ShapeError(f"state: found {held.shape[0]} series, wanted {batch}, one per row of the input")
    rows = held.shape[:-1]
    widths = [part.shape[-1] for block in state.blocks for part in block if part.shape[:-1] == rows]
    if held.shape[-1] != config.hidden_size or widths != [config.modes] * (3 * depth):
        raise ShapeError(
            f"state: found {held.shape[-1]} features and modes {sorted(set(widths))} of rows {tuple(rows)}, "
            f"wanted {config.hidden_size} and {config.modes} everywhere: it comes from another model"
        )
    if held.dtype != like.dtype or held.device != like.device:
        found, wanted = (f"{x.dtype} on {x.device}" for x in (held, like))
        raise ShapeError(f"state: found {found}, wanted {wanted} like the model")


def check_pooled(state: Any, summary: Any) -> None:
    """A running pool, with the sums of a summary where the model has one."""
    if not isinstance(state, PooledState):
        raise ShapeError(f"state: found {type(state).__name__}, wanted a PooledState; begin with `init_state`")
    wanted = None if summary is None else (len(state.weight), sums_size(summary.channels))
    found = None if state.summary is None else tuple(state.summary.shape)
    if found != wanted:
        raise ShapeError(f"state: found a summary of shape {found}, wanted {wanted}: it comes from another model")


def check_static(static: Any, wanted: tuple[int, int]) -> None:
    """Covariates (b, s) of every series, or none if the model has none."""
    if static is None and wanted[1] == 0:
        return
    if not isinstance(static, Tensor) or wanted[1] == 0 or tuple(static.shape) != wanted:
        found = "none" if static is None else _shape_of(static)
        raise ShapeError(f"static: found {found}, wanted {wanted} = (b, covariates)")


def check_offsets(moments: Any, b: int, name: str) -> None:
    """Moments (b, q) at which a forecast is wanted."""
    if not isinstance(moments, Tensor) or moments.ndim != 2 or moments.shape[0] != b or moments.shape[1] == 0:
        raise ShapeError(f"{name}: found {_shape_of(moments)}, wanted (b, q) with b = {b}, q ≥ 1")


def _shape_of(x: Any) -> str:
    return f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else f"{type(x).__name__}, no tensor"


def missing_mask_channels() -> ConfigError:
    """The error for missing values in a model without mask channels."""
    return ConfigError(
        "mask_channels: 'auto' was built without mask channels, but `observed` has missing values; "
        "build with mask_channels=True (or False to read missing values as zeros)"
    )


def check_row_mask(observed: Any, x_t: Tensor) -> Tensor:
    """`observed` of one row for every series."""
    _check_mask(observed, x_t.shape, "observed", "(b, d) = ")
    found: Tensor = observed
    return found


def _check_mask(mask: Any, shape: torch.Size, name: str, axes: str = "") -> None:
    if not is_mask(mask, shape):
        raise ShapeError(f"{name}: found {describe_tensor(mask)}, wanted bool {axes}{tuple(shape)}, a tensor")


def check_valid(valid: Tensor | None, x: Tensor) -> Tensor | None:
    """`valid` as booleans; padding may only be at the end."""
    if valid is None:
        return None
    _check_mask(valid, x.shape[:2], "valid", "(b, l) = ")
    if valid.device != x.device:
        raise ShapeError(f"valid: found device {valid.device}, wanted {x.device}")
    if values_can_be_checked(valid):
        holes = valid[:, 1:] & ~valid[:, :-1]
        if bool(holes.any()):
            series, step = holes.nonzero()[0].tolist()
            raise DataError(f"valid: series {series} has a hole before step {step + 1}; padding may only be at the end")
    return valid


def check_observed(
    observed: Tensor | None, x: Tensor, valid: Tensor | None, *, name: str = "x"
) -> tuple[Tensor, Tensor | None]:
    """`x` with zeros wherever nothing was observed; NaN is an error unless `observed` marks it as missing."""
    if observed is not None:
        _check_mask(observed, x.shape, "observed")
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
                f"{name}: found {x[series, step, channel].item()} in series {series} at step {step}, "
                f"channel {channel}; mark missing values with `observed`"
            )
    return x, observed


def check_queries(
    values: Tensor, times: Tensor, query_times: Tensor, valid: Tensor | None, query_valid: Tensor | None
) -> None:
    """Times (b, l) of the values' rows, and the times (b, q) at which a forecast is wanted."""
    b, l = values.shape[:2]
    if not isinstance(times, Tensor) or times.shape != (b, l):
        raise ShapeError(f"times: found {_shape_of(times)}, wanted (b, l) = ({b}, {l})")
    check_offsets(query_times, b, "query_times")
    if query_valid is not None:
        _check_mask(query_valid, query_times.shape, "query_valid", "(b, q) = ")
    for name, x in (("times", times), ("query_times", query_times), ("query_valid", query_valid)):
        if x is not None and x.device != values.device:
            raise ShapeError(f"{name}: found device {x.device}, wanted {values.device}")
    if values_can_be_checked(times):
        check_times(times, valid)
        bad = ~torch.isfinite(query_times)
        bad = bad if query_valid is None else bad & query_valid
        if bool(bad.any()):
            raise DataError(f"query_times: not finite at index {bad.nonzero()[0].tolist()}")
