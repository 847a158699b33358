"""Models as flat arrays for the compiled step: `StepProgram` packs weights and runs observations."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tides.errors import BackendUnavailable
from tides.functional.heads import GLUWeights, ModeHead, StepHead
from tides.functional.mixes import DiagonalMix, LowRankMix, Mix, StaticMix, mix_factors
from tides.functional.ssm import SSMState
from tides.functional.summary import statistics_size, sums_size
from tides.functional.tail import TailWeights
from tides.kernels.column_norm import column_forms
from tides.kernels.cpu import step_loops as loops
from tides.kernels.cpu import step_parts as parts
from tides.kernels.cpu.intervals import METHODS
from tides.kernels.cpu.panels import aligned, panel_lanes, panels
from tides.kernels.cpu.threads import run_jobs, spans
from tides.kernels.mixing import drive_kernel, readout_kernel
from tides.kernels.stepping import StepBlock, StepModel

_REPARAMS = {"standard": 0, "exp": 1, "stable": 2, "softplus": 3}
_NORMS = {"batch": parts.BATCH_NORM, "layer": parts.LAYER_NORM, "rms": parts.RMS_NORM}
_POOLS = {None: loops.NO_POOL, "mean": loops.MEAN_POOL, "last": loops.LAST_POOL, "time": loops.TIME_POOL}

# Fewer streams than this are through before another thread has begun.
_ROWS_PER_THREAD = 64


class _Packer:
    """Sections of one flat array, remembered by where they begin, each filled up to whole vectors."""

    def __init__(self, dtype: Any) -> None:
        self._dtype, self._lanes = dtype, panel_lanes(dtype)
        self._parts: list[Tensor] = []
        self.size = 0

    def add(self, *tensors: Tensor) -> int:
        """Append tensors row by row; returns where the first one begins."""
        begin = self.size
        flat = torch.cat([tensor.detach().double().reshape(-1).cpu() for tensor in tensors])
        self._parts += [flat, flat.new_zeros(-flat.numel() % self._lanes)]
        self.size += sum(part.numel() for part in self._parts[-2:])
        return begin

    def linear(self, weight: Tensor, bias: Tensor) -> int:
        """A bias and a matrix (out, in) for `panels.linear`."""
        return self.add(panels(weight, bias, self._lanes))

    def array(self) -> Any:
        # A vector more, because an array without forms would have no address.
        flat = torch.cat([*self._parts, torch.zeros(self._lanes, dtype=torch.float64)])
        return aligned(flat.numpy().astype(self._dtype))


class StepProgram:
    """A packed model and its streams: `step` takes one observation of each and changes their states in place."""

    def __init__(self, model: StepModel, streams: int, dtype: torch.dtype) -> None:
        real = np.float32 if dtype == torch.float32 else np.float64
        weights, forms = _Packer(real), _Packer(np.float64)
        encoder = weights.size
        _add_glu_blocks(weights, model.encoder)
        weights.linear(*model.encoder_out)
        plan = [_pack_block(block, weights, forms, model.spec.eps) for block in model.blocks]
        spec = [0] * loops.PLAN_SIZE
        spec[loops.METHOD] = METHODS[model.spec.discretisation]
        spec[loops.FOLLOWING] = int(model.spec.hold == "following")
        spec[loops.REPARAM], spec[loops.NORM_KIND] = _REPARAMS[model.spec.reparam], _NORMS[model.norm]
        spec[loops.ENCODER], spec[loops.ENCODER_DEPTH] = encoder, len(model.encoder)
        spec[loops.HEAD] = -1 if model.head is None else weights.linear(*model.head)
        spec[loops.POOL], spec[loops.SCALING] = _POOLS[model.pool], weights.add(*model.scaling)
        spec[loops.INPUTS] = model.encoder_out[0].shape[1]
        spec[loops.SUMMARY] = -1 if model.summary is None else weights.add(*model.summary)
        spec[loops.MASKED], spec[loops.GAP_CHANNEL] = int(model.masked), int(model.gap_channel)
        clip = math.inf if model.spec.clip is None else -model.spec.clip
        factor = 2.0 if model.spec.conjugate else 1.0
        self._program = (
            np.array([*plan, spec], dtype=np.int64),
            np.array([model.spec.eps, model.norm_eps, clip, factor, model.time_scale]),
            weights.array(),
            forms.array(),
        )
        self._allocate(model, streams, real)

    def _allocate(self, model: StepModel, streams: int, real: Any) -> None:
        hidden, inputs = model.encoder_out[0].shape
        modes = model.blocks[0].ssm.frequency.bias.shape[-1]
        inner = max(_tail_width(block.tail) for block in model.blocks)
        code = max(_code_size(mix) for block in model.blocks for mix in (block.ssm.drive, block.ssm.readout))
        outputs = hidden if model.head is None else model.head[0].shape[0]
        channels, known, kept = model.scaling[0].numel(), 0, 0
        if model.summary is not None:
            known, kept = statistics_size(channels), sums_size(channels)
        widest = max(code * max(hidden, 2 * modes), inner, inputs, outputs, len(model.blocks) * modes, hidden + known)
        self.states = np.zeros((streams, 6, len(model.blocks), modes), dtype=real)
        self.held = np.zeros((streams, hidden), dtype=real)
        # Sums of the pool, their weight and those of a summary in float64, so that long streams do not drift.
        self.sums = np.zeros((streams, hidden + 1 + kept))
        self.out = np.zeros((streams, outputs), dtype=real)
        self._scratch = np.zeros((18, widest), dtype=real), np.zeros((4, widest + code * code))
        self._scratches: list[tuple[Any, ...]] = []

    def step(self, x: Any, observed: Any, gaps: Any) -> str | None:
        """x (streams, channels), observed, gaps (streams) → `out`; what is wrong with them, if anything, by name."""
        code = loops.run_step(
            *self._program, x, observed, gaps, self.states, self.held, self.sums, self.out, *self._scratch
        )
        return None if code == loops.FINE else "x" if code == loops.BAD_VALUE else "gap"

    def step_rows(self, rows: Any, x: Any, observed: Any, gaps: Any) -> tuple[Any, str | None]:
        """The same for some of the streams: x (rows, channels), … → outputs (rows, …); each row at most once."""
        out = np.empty((len(rows), self.out.shape[1]), dtype=self.out.dtype)
        streams = self.states[rows], self.held[rows], self.sums[rows]
        arrays = (x, observed, gaps, *streams, out)
        parts = spans(len(rows), min(torch.get_num_threads(), len(rows) // _ROWS_PER_THREAD))
        while len(self._scratches) < len(parts):
            self._scratches.append(tuple(np.zeros_like(array) for array in self._scratch))

        def work(part: int) -> int:
            begin, end = parts[part]
            pieces = (array[begin:end] for array in arrays)
            return int(loops.run_step(*self._program, *pieces, *self._scratches[part]))

        codes: list[int] = []
        run_jobs(lambda part: codes.append(work(part)), range(len(parts)))
        code = max(codes, default=loops.FINE)
        if code == loops.FINE:
            self.states[rows], self.held[rows], self.sums[rows] = streams
            return out, None
        return out, "x" if code == loops.BAD_VALUE else "gap"

    def resize(self, streams: int) -> None:
        """Room for another number of streams; those that stay keep their states, new ones are zero."""
        for name in ("states", "held", "sums", "out"):
            before = getattr(self, name)
            after = np.zeros((streams, *before.shape[1:]), dtype=before.dtype)
            after[: len(before)] = before[:streams]
            setattr(self, name, after)

    def get_states(self, rows: Any = slice(None)) -> tuple[SSMState, ...]:
        """The streams' states as tensors of their own, one `SSMState` per block."""
        planes = torch.from_numpy(self.states[rows])
        return tuple(
            SSMState(*(torch.complex(planes[:, i, k], planes[:, i + 1, k]) for i in (0, 2, 4)))
            for k in range(planes.shape[2])
        )

    def set_states(self, states: tuple[SSMState, ...], rows: Any = slice(None)) -> None:
        for k, state in enumerate(states):
            for i, part in zip((0, 2, 4), state, strict=True):
                pairs = torch.view_as_real(part.detach().resolve_conj()).cpu().numpy()
                self.states[rows, i, k], self.states[rows, i + 1, k] = pairs[..., 0], pairs[..., 1]


def _tail_width(tail: TailWeights | Tensor) -> int:
    return int(tail.value.shape[0]) if isinstance(tail, TailWeights) else 0


def _code_size(mix: Mix) -> int:
    return int(mix.up.shape[-1]) + 1 if isinstance(mix, LowRankMix) else 1


def _add_glu_blocks(weights: _Packer, blocks: tuple[GLUWeights, ...]) -> None:
    for block in blocks:
        weights.linear(block.value, block.value_bias)
        weights.linear(block.gate, block.gate_bias)


def _pack_block(block: StepBlock, weights: _Packer, forms: _Packer, eps: float) -> list[int]:
    """One row of the plan."""
    ssm = block.ssm
    norm = weights.size if block.affine is None else weights.add(*block.affine)
    decay, frequency = _pack_head(ssm.decay, weights), _pack_head(ssm.frequency, weights)
    if isinstance(ssm.step, StepHead):
        step = weights.linear(ssm.step.weight[:, :-1], ssm.step.bias)
        weights.add(ssm.step.weight[:, -1])
    else:
        step = weights.add(torch.exp(ssm.step.detach().double()))
    drive = _pack_mix(ssm.drive, weights, forms, eps, inwards=True)
    readout = _pack_mix(ssm.readout, weights, forms, eps, inwards=False)
    skip, tail = weights.add(ssm.skip), weights.size
    if isinstance(block.tail, TailWeights):
        for weight, bias in zip(block.tail[::2], block.tail[1::2], strict=True):
            weights.linear(weight, bias)
    else:
        weights.add(block.tail)
    width = _tail_width(block.tail)
    return [norm, *decay, *frequency, step, int(isinstance(ssm.step, StepHead)), *drive, *readout, skip, tail, width]


def _pack_head(head: ModeHead, weights: _Packer) -> tuple[int, int, int, int]:
    """(offset, depth, whether it looks at u, whether it is normalised)."""
    begin = weights.size
    if head.weight is None:
        weights.add(head.bias)
        return begin, 0, 0, 0
    _add_glu_blocks(weights, head.blocks)
    weights.linear(head.weight, head.bias)
    if head.norm is not None:
        weights.add(head.norm)
    return begin, len(head.blocks), 1, int(head.norm is not None)


def _pack_mix(mix: Mix, weights: _Packer, forms: _Packer, eps: float, *, inwards: bool) -> tuple[int, int, int, int]:
    """(offset, kind, rank, offset of the column norms' forms or −1)."""
    make = drive_kernel if inwards else readout_kernel
    begin = weights.size
    if isinstance(mix, DiagonalMix):
        raise BackendUnavailable("compiled step: rank='diag' is not compiled; use the model's own `step`")
    if isinstance(mix, StaticMix):
        weights.linear(*_without_bias(make(mix.base[None, ..., None].double(), None)))
        return begin, parts.STATIC, 0, -1
    if mix.down is not None:
        bias = mix.down.new_zeros(mix.down.shape[0]) if mix.down_bias is None else mix.down_bias
        weights.linear(mix.down, bias)
    factors = mix_factors(mix)[None].detach().double()
    norm = None if mix.norm is None else mix.norm.detach()[None].double()
    weights.linear(*_without_bias(make(factors, norm)))
    kind, rank = parts.FULL if mix.down is None else parts.LOW_RANK, mix.up.shape[-1]
    if mix.norm is None:
        return begin, kind, rank, -1
    first, second = torch.triu_indices(rank + 1, rank + 1)
    once = torch.where(first == second, 1.0, 2.0).unsqueeze(-1)
    forms_of_columns = (column_forms(factors)[0, first, second] * once).mT
    return begin, kind, rank, forms.linear(forms_of_columns, forms_of_columns.new_full(forms_of_columns.shape[:1], eps))


def _without_bias(kernel: Tensor) -> tuple[Tensor, Tensor]:
    """(matrix, zeros) of a mix's K (1, in, out)."""
    return kernel[0].mT, kernel.new_zeros(kernel.shape[-1])
