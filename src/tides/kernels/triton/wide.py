"""Blocks too wide for the fused kernels as one autograd function: matrix products and passes in a fixed order.

Composed of torch's operators, such blocks would spend more time in Python and autograd than a GPU takes for them. Calls
that are traced or transformed are composed all the same; what they compute is equal.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import _SingleLevelFunction

from tides.functional.mixes import LowRankMix
from tides.functional.ssm import SSMSpec, SSMState, SSMWeights
from tides.functional.tail import TailWeights
from tides.kernels.derivatives import differentiable_once
from tides.kernels.flat import unflatten
from tides.kernels.statistics import RunningNorm
from tides.kernels.triton.block import block_inputs, both_gaps
from tides.kernels.triton.block_config import BlockConfig, BlockShape
from tides.kernels.triton.block_plans import BlockInputs
from tides.kernels.triton.packing import layout_of
from tides.kernels.triton.wide_layout import in_layout, wide_layout
from tides.kernels.triton.wide_plans import run_backward, run_forward


def wide_obstacle(weights: SSMWeights, spec: SSMSpec, tail: TailWeights) -> str | None:
    """Why this block is composed of operators, or None."""
    drive, readout = weights.drive, weights.readout
    if not isinstance(drive, LowRankMix) or not isinstance(readout, LowRankMix):
        return "its B and C are not projected by low-rank heads"
    if any(part is None for part in (drive.down, drive.down_bias, readout.down, readout.down_bias)):
        return "its B and C are not projected by low-rank heads"
    if weights.decay.weight is None or weights.decay.blocks or weights.frequency.weight is not None:
        return "its eigenvalues do not come from one linear head"
    if not isinstance(weights.step, Tensor) or (drive.norm is None) != (readout.norm is None):
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
    out, states = wide_stack(x, [norm], gaps, [(weights, tail)], spec, valid=valid, dropout=dropout)
    return out, states[0]


def wide_stack(
    x: Tensor,
    norms: list[RunningNorm],
    gaps: Tensor,
    layers: list[tuple[SSMWeights, TailWeights]],
    spec: SSMSpec,
    *,
    valid: Tensor | None,
    dropout: float,
) -> tuple[Tensor, list[SSMState]]:
    """Blocks of one configuration as one autograd function; gaps get a gradient through a single one alone."""
    config = BlockConfig.of(layout_of(*layers[0]), spec, dropout)
    places = wide_layout(config.layout)
    parameters: list[Tensor] = []
    for weights, tail in layers:
        parameters += in_layout(weights, tail)
        if places.stride != places.size:
            parameters.append(x.new_empty(places.stride - places.size))
    gaps, behind = both_gaps(gaps, spec, valid)
    seed = torch.rand(len(norms), device=x.device) if dropout > 0 else None
    arguments = (config, torch.is_grad_enabled(), norms, valid, seed, x, gaps, behind, *parameters)
    out, *last = WideFunction.apply(*arguments)  # type: ignore[attr-defined]
    return out, [SSMState(*last[k : k + 3]) for k in range(0, len(last), 3)]


class WideFunction(_SingleLevelFunction):
    """One model on plain tensors, with its norms."""

    @staticmethod
    def forward(
        ctx: Any,
        config: BlockConfig,
        keeps: bool,
        norms: list[RunningNorm],
        valid: Tensor | None,
        seed: Tensor | None,
        x: Tensor,
        gaps: Tensor,
        behind: Tensor | None,
        *weights: Tensor,
    ) -> tuple[Tensor, ...]:
        inputs = block_inputs(x, gaps, behind, valid, seed, list(weights))
        norm = "batch" if norms[0].training else "running"
        batch, steps, _ = x.shape
        shape = BlockShape(1, batch, steps, valid is not None, norm, keeps, batch, len(norms))
        out, last, kept = run_forward(config, shape, inputs, norms)
        ctx.save_for_backward(*inputs[:-1], kept)
        ctx.set_materialize_grads(False)
        ctx.config, ctx.shape, ctx.parameters = config, shape, list(weights)
        return out, *last

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, gradient: Tensor | None, *d_last: Tensor | None) -> tuple[Any, ...]:
        x, gaps, behind, valid, seed, packed, kept = ctx.saved_tensors
        inputs = BlockInputs(x, gaps, behind, valid, seed, packed, None)
        own = torch.zeros_like(x) if gradient is None else gradient.contiguous()
        dx, d_gaps, d_behind, d_packed = run_backward(
            ctx.config, ctx.shape, inputs, kept, own, d_last, d_gaps_wanted=any(ctx.needs_input_grad[6:8])
        )
        return None, None, None, None, None, dx, d_gaps, d_behind, *unflatten(d_packed, ctx.parameters)
