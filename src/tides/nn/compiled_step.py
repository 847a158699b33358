"""`CompiledStep`: a trained model that answers one observation in microseconds, for streams on a CPU."""

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from tides.errors import BackendUnavailable, ConfigError, DataError, ShapeError
from tides.kernels.stepping import StepBlock, StepModel, step_program
from tides.nn.backbone import Backbone
from tides.nn.block import Block
from tides.nn.checks import check_count, check_model_dtype, check_pooled, check_state, missing_mask_channels
from tides.nn.forecaster import Forecaster
from tides.nn.glu import ResidualGLU, linear_tensors
from tides.nn.heads import SequenceHead, SequenceRegressor
from tides.nn.norm import MaskedBatchNorm, RowNorm
from tides.nn.ssm import SSM
from tides.nn.state import BackboneState, PooledState


class CompiledStep:
    """`step` of a model for a fixed number of streams, without an operator call per layer.

    The weights are copied on construction, so build it again after further training. The state lives inside; it can be
    taken out and put back in the model's own form, so streams can move between this and `model.step`. Works for causal
    models in evaluation mode, with every variant and discretisation; `rank="diag"` and a forecaster's
    `query_mode="steps"` are not compiled. A forecaster steps as its backbone does; `peek_rows` gives its answers.
    """

    def __init__(self, model: Backbone | SequenceHead | Forecaster, streams: int = 1) -> None:
        if not isinstance(model, Backbone | SequenceHead | Forecaster):
            raise ConfigError(f"model: found {type(model).__name__}, wanted a Backbone, Forecaster or sequence head")
        if model.training:
            raise ConfigError("model: found training mode, wanted model.eval(): a stream has no batch statistics")
        self.backbone = model if isinstance(model, Backbone) else model.backbone
        self.backbone.require_causal("step")
        if isinstance(model, Forecaster) and model.query_mode == "steps":
            raise BackendUnavailable("compiled step: a forecaster with query_mode='steps' is not compiled")
        self._summary = model.summary if isinstance(model, SequenceHead) else None
        self.static_size = model.static_size if isinstance(model, SequenceHead) else 0
        streams = check_count(streams, "streams")
        self.pooled, self.streams, self.config = isinstance(model, SequenceHead), streams, self.backbone.config
        check_model_dtype(self.backbone.calibration.shift)
        self.dtype = self.backbone.calibration.shift.dtype
        self._program = step_program(describe_model(model), streams, self.dtype)
        self._real = np.dtype(self._program.dtype)
        self._name_all()
        self._nothing = self.backbone.empty_encoding().numpy(force=True)
        self.state = model.init_state(streams)

    def step(self, x: Any, gap: Any, *, observed: Any = None, static: Any = None) -> Tensor:
        """Outputs (b, …) for one observation x (b, d) of every stream, `gap` ((b,) or a number) after the previous
        one; `observed` (b, d) says what was measured, `static` (b, static_size) holds static covariates.
        """
        gaps = self._array(gap)
        if gaps.ndim == 0:
            gaps = np.full(self.streams, gaps, dtype=self._real)
        seen = self._full if observed is None else self._seen(observed)
        return self._take_in(self._program.step, self._all, x, gaps, seen, static)

    def step_rows(self, rows: Any, x: Any, gaps: Any, observed: Any, *, static: Any = None) -> Tensor:
        """Outputs (n, …) for one observation x (n, d) of each of the streams `rows` (n,), which must differ."""
        return self._take_in(self._program.step, self._rows(rows), x, self._array(gaps), self._seen(observed), static)

    def read_row(self, row: int, x: Any, gaps: Any, observed: Any, *, static: Any = None) -> Tensor:
        """Outputs (l, …) for observations x (l, d) of one stream, one after another; static (static_size)."""
        rows = np.full(len(x), row, dtype=np.int64)
        if static is not None:
            static = np.tile(self._array(static), (len(x), 1))
        return self._take_in(self._program.read, rows, x, self._array(gaps), self._seen(observed), static)

    def _take_in(self, run: Any, rows: Any, x: Any, gaps: Any, seen: Any, static: Any) -> Tensor:
        values = self._array(x)
        wanted = (len(rows), self.config.input_size)
        if values.shape != wanted or seen.shape != wanted or gaps.shape != wanted[:1]:
            found = f"{values.shape}, {gaps.shape}, {seen.shape}"
            raise ShapeError(f"x, gap, observed: found {found}, wanted {wanted}, ({wanted[0]},), {wanted}")
        if static is not None or self.static_size:
            values = np.concatenate([values, self._covariates(static, len(rows))], axis=1)
        out, problem = run(rows, values, seen, gaps)
        if problem is not None:
            self._complain(problem, {"x": values, "gap": gaps, "rows": rows})
        return torch.from_numpy(out)

    def peek_rows(self, rows: Any, elapsed: Any, *, static: Any = None) -> Tensor:
        """Answers (n, …) of the streams `rows` (n,) at `elapsed` (n,) after their last observations; a stream may be
        asked several times, and no state changes.
        """
        self.backbone.require_following()
        rows, gaps = self._rows(rows), self._array(elapsed)
        if gaps.shape != rows.shape:
            raise ShapeError(f"elapsed: found {gaps.shape}, wanted {rows.shape}")
        out, problem = self._program.peek(rows, gaps, self._covariates(static, len(rows)))
        if problem is not None:
            self._complain(problem, {"gap": gaps, "rows": rows})
        return torch.from_numpy(out)

    def _complain(self, problem: str, found: dict[str, Any]) -> None:
        wanted = (
            f"streams from 0 to {self.streams - 1}"
            if problem == "rows"
            else ("finite values and gaps ≥ 0; mark missing values with `observed`")
        )
        raise DataError(f"{problem}: found {found[problem].tolist()}, wanted {wanted}")

    def resize(self, streams: int) -> None:
        """Make room for another number of streams; existing streams keep their states, new ones start empty."""
        before, self.streams = self.streams, streams
        self._program.resize(streams)
        self._name_all()
        if streams > before:
            self.reset(slice(before, streams))

    def reset(self, rows: Any) -> None:
        """Put these streams back to the state before any observation."""
        self._program.states[rows], self._program.sums[rows] = 0, 0
        self._program.held[rows] = self._nothing

    def _name_all(self) -> None:
        self._all = np.arange(self.streams)
        self._full = np.ones((self.streams, self.config.input_size), dtype=bool)

    def _rows(self, rows: Any) -> Any:
        return np.ascontiguousarray(rows, dtype=np.int64)

    def _covariates(self, static: Any, rows: int) -> Any:
        """Static covariates of every row; those of a model without any have no columns."""
        if static is None and not self.static_size:
            return np.empty((rows, 0), dtype=self._real)
        found = "none" if static is None else np.shape(static)
        if found != (rows, self.static_size):
            raise ShapeError(f"static: found {found}, wanted {(rows, self.static_size)} = (b, covariates)")
        return self._array(static)

    def _array(self, x: Any) -> Any:
        array = x.numpy(force=True) if isinstance(x, Tensor) else np.asarray(x)
        if array.dtype == self._real and array.flags.c_contiguous:
            return array
        # `np.ascontiguousarray` would make a vector of a number.
        return np.array(array, dtype=self._real, order="C")

    def _seen(self, observed: Any) -> Any:
        seen = np.ascontiguousarray(observed, dtype=bool)
        if self.config.mask_channels == "auto" and not seen.all():
            raise missing_mask_channels()
        return seen

    @property
    def state(self) -> BackboneState | PooledState:
        """A copy of all streams' states, in the model's own form."""
        return self.get_state(slice(None))

    @state.setter
    def state(self, state: BackboneState | PooledState) -> None:
        self.set_state(slice(None), state)

    def get_state(self, rows: Any) -> BackboneState | PooledState:
        """A copy of the states of some streams."""
        held = torch.from_numpy(self._program.held[rows].copy())
        backbone = BackboneState(self._program.get_states(rows), held)
        if not self.pooled:
            return backbone
        sums = torch.from_numpy(self._program.sums[rows].copy())
        hidden = self.config.hidden_size
        summary = None if self._summary is None else sums[:, hidden + 1 :]
        return PooledState(backbone, sums[:, :hidden], sums[:, hidden], summary=summary)

    def set_state(self, rows: Any, state: BackboneState | PooledState) -> None:
        """Replace the states of the streams `rows`."""
        wanted = PooledState if self.pooled else BackboneState
        if not isinstance(state, wanted):
            raise ShapeError(f"state: found {type(state).__name__}, wanted a {wanted.__name__}")
        backbone = state.backbone if isinstance(state, PooledState) else state
        check_state(backbone, self.config, backbone.held)
        found, streams = len(backbone.held), len(range(self.streams)[rows]) if isinstance(rows, slice) else len(rows)
        if found != streams:
            raise ShapeError(f"state: found {found} streams, wanted {streams}")
        if isinstance(state, PooledState):
            check_pooled(state, self._summary)
            if state.newest is not None or state.waited is not None:
                raise ShapeError("state: found one that was advanced, wanted one right after an observation")
        self._program.set_states(backbone.blocks, rows)
        self._program.held[rows] = backbone.held.numpy(force=True)
        if isinstance(state, PooledState):
            parts = [state.total, state.weight.unsqueeze(-1), *([] if state.summary is None else [state.summary])]
            sums = torch.cat(parts, dim=-1)
            self._program.sums[rows] = sums.numpy(force=True)


def describe_model(model: Backbone | SequenceHead | Forecaster) -> StepModel:
    """The model's tensors as compiled and exported steps take them."""
    backbone = model if isinstance(model, Backbone) else model.backbone
    *deep, last = backbone.encoder
    blocks = backbone.typed_blocks()
    return StepModel(
        encoder=tuple(block.weights() for block in cast(list[ResidualGLU], deep)),
        encoder_out=linear_tensors(last),
        blocks=tuple(_describe_block(block) for block in blocks),
        spec=blocks[0].ssm.spec,
        norm=backbone.config.norm,
        norm_eps=blocks[0].norm.eps,
        scaling=(backbone.calibration.shift, backbone.calibration.scale),
        time_scale=backbone.calibration.time_scale.item(),
        masked=backbone.config.mask_channels is True,
        gap_channel=backbone.config.variant == "mamba-s",
        pool=model.config.pool if isinstance(model, SequenceHead) else None,
        head=None if isinstance(model, Backbone) else describe_head(model),
        static=_describe_static(model) if isinstance(model, SequenceHead) else None,
        summary=_describe_summary(model) if isinstance(model, SequenceHead) else None,
    )


def describe_head(model: nn.Module) -> tuple[Tensor, Tensor]:
    """Weight and bias of the last linear map in float64; answers in their own units are one linear map as well."""
    weight, bias = (tensor.detach().double() for tensor in linear_tensors(cast(nn.Linear, model.head)))
    if isinstance(model, SequenceRegressor | Forecaster):
        scale, shift = model.output_scale.double(), model.output_shift.double()
        weight, bias = weight * scale.unsqueeze(-1), bias * scale + shift
    return weight, bias


def _describe_static(model: SequenceHead) -> tuple[Tensor, Tensor] | None:
    return (model.static_shift, model.static_scale) if model.static_size else None


def _describe_summary(model: SequenceHead) -> tuple[Tensor, Tensor] | None:
    return None if model.summary is None else (model.summary.shift, model.summary.scale)


def _describe_block(block: Block) -> StepBlock:
    if type(block.ssm) is not SSM or type(block.norm) not in (MaskedBatchNorm, RowNorm):
        raise ConfigError(
            "model: a block's layer or norm was replaced, which is not compiled; use the model's own `step`"
        )
    affine = None
    if isinstance(block.norm, MaskedBatchNorm):
        scale = torch.rsqrt(block.norm.running_var.double() + block.norm.eps)
        affine = (scale, -block.norm.running_mean.double() * scale)
    tail = block.tail() or block.glu._parameters.get("bias")
    if tail is None:
        raise ConfigError(
            "model: a block's GLU was replaced in part, which is not compiled; use the model's own `step`"
        )
    return StepBlock(block.ssm.weights(), affine, tail)
