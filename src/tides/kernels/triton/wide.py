"""A block too wide for the fused kernels as one autograd function: matrix products and passes in a fixed order.

Composed of torch's operators, such a block would spend more time in Python and autograd than a GPU takes for it. Calls
that are traced or transformed are composed all the same; what they compute is equal.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import _SingleLevelFunction, once_differentiable

from tides.errors import ShapeError
from tides.functional.mixes import LowRankMix
from tides.functional.ssm import SSMSpec, SSMState, SSMWeights
from tides.functional.tail import TailWeights
from tides.kernels.statistics import RunningNorm
from tides.kernels.triton import wide_mixes
from tides.kernels.triton.block import both_gaps
from tides.kernels.triton.block_config import BlockConfig
from tides.kernels.triton.packing import layout_of
from tides.kernels.triton.wide_heads import Heads
from tides.kernels.triton.wide_norm import Norm
from tides.kernels.triton.wide_scan import Scans
from tides.kernels.triton.wide_tail import Tail
from tides.kernels.triton.wide_weights import MixWeights


class WideWeights(NamedTuple):
    """A block's weights in the order in which the function takes them."""

    decay: Tensor
    decay_bias: Tensor
    decay_norm: Tensor | None
    drive_down: Tensor
    drive_down_bias: Tensor
    readout_down: Tensor
    readout_down_bias: Tensor
    skip: Tensor
    value: Tensor
    value_bias: Tensor
    gate: Tensor
    gate_bias: Tensor
    out: Tensor
    out_bias: Tensor
    drive_base: Tensor
    drive_up: Tensor
    drive_norm: Tensor | None
    readout_base: Tensor
    readout_up: Tensor
    readout_norm: Tensor | None
    frequency: Tensor
    step: Tensor

    @property
    def drive(self) -> MixWeights:
        return MixWeights(self.drive_base, self.drive_up, self.drive_norm)

    @property
    def readout(self) -> MixWeights:
        return MixWeights(self.readout_base, self.readout_up, self.readout_norm)


def wide_obstacle(weights: SSMWeights, spec: SSMSpec, tail: TailWeights) -> str | None:
    """Why this block is composed of operators, or None."""
    drive, readout = weights.drive, weights.readout
    if not isinstance(drive, LowRankMix) or not isinstance(readout, LowRankMix):
        return "its B and C are not projected by low-rank heads"
    if any(part is None for part in (drive.down, drive.down_bias, readout.down, readout.down_bias)):
        return "its B and C are not projected by low-rank heads"
    if weights.decay.weight is None or weights.decay.blocks or weights.frequency.weight is not None:
        return "its eigenvalues do not come from one linear head"
    if not isinstance(weights.step, Tensor) or (drive.norm is None) != (readout.norm is None) or spec.clip == 0:
        return "its step size is learned"
    # Otherwise x K is narrower than z̃ ⊗ x.
    p, h = drive.up.shape[:2]
    return "it has more channels than state planes" if h > 2 * p else None


def wide_block(
    x: Tensor,
    norm: RunningNorm,
    gaps: Tensor,
    weights: SSMWeights,
    spec: SSMSpec,
    tail: TailWeights,
    *,
    valid: Tensor | None,
    dropout: float,
) -> tuple[Tensor, SSMState]:
    """`functional.selective_block` from nothing, for calls that run at once."""
    drive, readout, decay = weights.drive, weights.readout, weights.decay
    config = BlockConfig.of(layout_of(weights, tail), spec, dropout)
    gaps, behind = both_gaps(gaps, spec, valid)
    codes = (drive.down, drive.down_bias, readout.down, readout.down_bias)  # type: ignore[union-attr]
    mixes = (drive.base, drive.up, drive.norm, readout.base, readout.up, readout.norm)  # type: ignore[union-attr]
    clocks = (weights.frequency.bias, weights.step)
    parts = (decay.weight, decay.bias, decay.norm, *codes, weights.skip, *tail, *mixes, *clocks)
    ordered = [None if part is None else part.contiguous() for part in parts]  # type: ignore[union-attr]
    out, *last = WideFunction.apply(config, norm, valid, x, gaps, behind, *ordered)  # type: ignore[attr-defined]
    return out, SSMState(*last)


class WideFunction(_SingleLevelFunction):
    """One model on plain tensors, with its norm."""

    @staticmethod
    def forward(
        ctx: Any,
        config: BlockConfig,
        running: RunningNorm,
        valid: Tensor | None,
        x: Tensor,
        gaps: Tensor,
        behind: Tensor | None,
        *parameters: Tensor,
    ) -> tuple[Tensor, ...]:
        weights = WideWeights(*parameters)
        if weights.skip.dtype != torch.float32 or gaps.dtype != torch.float32:
            found = f"{weights.skip.dtype} and gaps in {gaps.dtype}"
            raise ShapeError(f"block: found weights in {found}, wanted torch.float32")
        mask = None if valid is None else valid.contiguous().view(torch.uint8).view(-1)
        batch, steps, width = x.shape
        rows = x.contiguous().view(-1, width)
        norm, heads = Norm(config, rows, mask), Heads(config, weights)
        scans = Scans(config, (batch, steps), mask, (gaps, behind), weights)
        tail = Tail(config, weights)
        u, affine, moments = norm.forward(running)
        maps, decay, drive_code, readout_code = heads.forward(u)
        forms = weights.drive.forms(), weights.readout.forms()
        drive, drive_rms = wide_mixes.drive(u, drive_code, weights.drive, forms[0], config.eps)
        if mask is not None:
            drive.masked_fill_(mask[:, None] == 0, 0)
        states, last = scans.forward(decay, drive)
        y, activated, readout_rms, mixed = wide_mixes.readout(
            states, u, readout_code, weights.readout, forms[1], weights.skip, mask, config.eps, config.factor
        )
        added, *masks = tail.forward(activated)
        kept = (rows, mask, affine, moments, u, maps, decay, drive_code, readout_code, *forms, drive, drive_rms)
        ctx.save_for_backward(*kept, states, y, readout_rms, mixed, *masks, *parameters)
        ctx.set_materialize_grads(False)
        ctx.config, ctx.training, ctx.shape = config, running.training, (batch, steps)
        # What they have made of the weights, which is small.
        ctx.heads, ctx.scans, ctx.tail = heads, scans, tail
        return added.add_(rows).view(x.shape), *last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor | None, *d_last: Tensor | None) -> tuple[Any, ...]:
        kind = ctx.scans.stage.device.type
        if not torch.is_autocast_enabled(kind):
            return _backward(ctx, gradient, d_last)
        with torch.autocast(kind, enabled=False):
            return _backward(ctx, gradient, d_last)


def _backward(ctx: Any, gradient: Tensor | None, d_last: tuple[Tensor | None, ...]) -> tuple[Any, ...]:
    (
        x, mask, affine, moments, u, maps, decay, drive_code, readout_code, drive_forms, readout_forms, drive,
        drive_rms, states, y, readout_rms, mixed, first_mask, second_mask, *parameters,
    ) = ctx.saved_tensors  # fmt: skip
    config, weights = ctx.config, WideWeights(*parameters)
    g = torch.zeros_like(x) if gradient is None else gradient.contiguous().view_as(x)
    dy, d_tail = ctx.tail.backward(g, y, first_mask, second_mask)
    of_readout, du, d_skip = wide_mixes.readout_backward(
        dy,
        states,
        u,
        readout_code,
        readout_rms,
        mixed,
        weights.readout,
        readout_forms,
        weights.skip,
        mask,
        config.factor,
    )
    d_decay, d_drive, d_gaps, d_clocks = ctx.scans.backward(
        of_readout.x, d_last, states, decay, drive, with_gaps=any(ctx.needs_input_grad[4:6])
    )
    if mask is not None:
        d_drive.masked_fill_(mask[:, None] == 0, 0)
    of_drive = wide_mixes.drive_backward(d_drive, u, drive_code, drive_rms, du, weights.drive, drive_forms)
    codes = (of_drive.code, of_drive.more_code, of_readout.code, of_readout.more_code)
    d_heads = ctx.heads.backward(u, maps, d_decay, codes, du)
    dx = Norm(config, x, mask).backward(g, du, affine, moments, training=ctx.training)
    d_weights = (*d_heads, d_skip, *d_tail, *of_drive.weights, *of_readout.weights, *d_clocks)
    return None, None, None, dx.view(*ctx.shape, -1), *d_gaps, *d_weights
