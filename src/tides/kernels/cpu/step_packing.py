"""Models as flat arrays for the compiled step: weights section behind section, and the plan that says where."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tides.errors import BackendUnavailable
from tides.functional.heads import GLUWeights, ModeHead, StepHead
from tides.functional.mixes import DiagonalMix, Mix, StaticMix, mix_factors
from tides.functional.tail import TailWeights
from tides.kernels.column_norm import column_forms
from tides.kernels.cpu import step_parts as parts
from tides.kernels.cpu import step_plan as plans
from tides.kernels.cpu.intervals import METHODS
from tides.kernels.cpu.panels import aligned, panel_lanes, panels
from tides.kernels.mixing import drive_kernel, readout_kernel
from tides.kernels.stepping import StepBlock, StepModel

_REPARAMS = {"standard": 0, "exp": 1, "stable": 2, "softplus": 3}
_NORMS = {"batch": parts.BATCH_NORM, "layer": parts.LAYER_NORM, "rms": parts.RMS_NORM}
_POOLS = {None: plans.NO_POOL, "mean": plans.MEAN_POOL, "last": plans.LAST_POOL, "time": plans.TIME_POOL}


class Packed(NamedTuple):
    """What every compiled call is given first."""

    plan: Any
    settings: Any
    weights: Any
    forms: Any


def pack(model: StepModel, real: Any) -> Packed:
    """The model in the precision `real`."""
    weights, forms = _Packer(real), _Packer(np.float64)
    encoder = weights.size
    _add_glu_blocks(weights, model.encoder)
    weights.linear(*model.encoder_out)
    plan = [_pack_block(block, weights, forms, model.spec.eps) for block in model.blocks]
    spec = [0] * plans.PLAN_SIZE
    spec[plans.METHOD] = METHODS[model.spec.discretisation]
    spec[plans.FOLLOWING] = int(model.spec.hold == "following")
    spec[plans.REPARAM], spec[plans.NORM_KIND] = _REPARAMS[model.spec.reparam], _NORMS[model.norm]
    spec[plans.ENCODER], spec[plans.ENCODER_DEPTH] = encoder, len(model.encoder)
    spec[plans.HEAD] = -1 if model.head is None else weights.linear(*model.head)
    spec[plans.POOL], spec[plans.SCALING] = _POOLS[model.pool], weights.add(*model.scaling)
    spec[plans.INPUTS] = model.encoder_out[0].shape[1]
    spec[plans.STATIC] = -1 if model.static is None else weights.add(*model.static)
    spec[plans.SUMMARY] = -1 if model.summary is None else weights.add(*model.summary)
    spec[plans.MASKED], spec[plans.GAP_CHANNEL] = int(model.masked), int(model.gap_channel)
    clip = math.inf if model.spec.clip is None else -model.spec.clip
    factor = 2.0 if model.spec.conjugate else 1.0
    return Packed(
        np.array([*plan, spec], dtype=np.int64),
        np.array([model.spec.eps, model.norm_eps, clip, factor, model.time_scale]),
        weights.array(),
        forms.array(),
    )


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


def tail_width(tail: TailWeights | Tensor) -> int:
    """Hidden units of a block's feed-forward part."""
    return int(tail.value.shape[0]) if isinstance(tail, TailWeights) else 0


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
    width = tail_width(block.tail)
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
