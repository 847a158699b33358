"""A whole block as one operator: x goes in, x + GLU(GELU(SSM(norm x))) comes out, and x alone is kept.

A call that runs at once is an autograd function whose launches are planned beforehand, the norm's statistics among
them. Calls that are traced or stacked go through an operator that torch knows; everything there has a leading axis of
models, so stacked populations are one launch. The backward pass makes decay, drive and states again, of one part of a
large batch after the other, and walks through them in ranges of steps, so its temporaries stay small.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import _SingleLevelFunction

from tides.errors import ShapeError
from tides.functional.layout import reversed_gaps
from tides.functional.mixes import LowRankMix
from tides.functional.ssm import SSMSpec, SSMState, SSMWeights
from tides.functional.tail import TailWeights
from tides.kernels.batching import merge_leading_axis
from tides.kernels.derivatives import differentiable_once
from tides.kernels.flat import flatten, unflatten
from tides.kernels.statistics import RunningNorm
from tides.kernels.triton.block_config import BlockConfig, BlockShape, kept_size
from tides.kernels.triton.block_plans import BlockInputs, Kept, run_backward, run_forward
from tides.kernels.triton.packing import layout_of, ordered
from tides.kernels.triton.precision import WIDEST
from tides.kernels.triton.rows import spread_steps


def block_obstacle(weights: SSMWeights, spec: SSMSpec, tail: TailWeights) -> str | None:
    """Why this block is not one operator, or None."""
    drive, readout = weights.drive, weights.readout
    if not isinstance(drive, LowRankMix) or not isinstance(readout, LowRankMix):
        return "its B and C are not projected by low-rank or full heads"
    if weights.decay.weight is None or weights.decay.blocks or weights.frequency.weight is not None:
        return "its eigenvalues do not come from one linear head"
    if not isinstance(weights.step, Tensor) or (drive.norm is None) != (readout.norm is None):
        return "its step size is learned"
    # Larger tiles exceed a program's registers, and compiling their kernels takes minutes.
    widths = (2 * readout.up.shape[0] / WIDEST, drive.up.shape[-1] / 16, *(size / 32 for size in tail.value.shape))
    return "its state, width or rank is beyond 64 planes, 32 channels or 16" if max(widths) > 1 else None


def fused_block(
    x: Tensor,
    norm: Tensor | RunningNorm,
    gaps: Tensor,
    weights: SSMWeights,
    spec: SSMSpec,
    tail: TailWeights,
    *,
    valid: Tensor | None,
    dropout: float,
) -> tuple[Tensor, SSMState]:
    """`functional.selective_block` from nothing: no state goes in.

    `norm` is scale and shift (2, h), or the running statistics they come from, for calls that run at once.
    """
    config = BlockConfig.of(layout_of(weights, tail), spec, dropout)
    if isinstance(norm, RunningNorm):
        out, states = _run_stack(config, x, [norm], gaps, spec, ordered(weights, tail), valid, whole=False)
        return out, states[0]
    gaps, behind = both_gaps(gaps, spec, valid)
    seed = torch.rand(1, device=x.device) if dropout > 0 else None
    packed = torch.cat([part.reshape(-1) for part in ordered(weights, tail)])
    mask, later = (None if part is None else part[None] for part in (valid, behind))
    out, *last, _ = block_op(x[None], norm[None], gaps[None], later, mask, packed[None], seed, *config.to_plain())
    return out[0], SSMState(*(part[0] for part in last))


def fused_stack(
    x: Tensor,
    norms: list[RunningNorm],
    gaps: Tensor,
    layers: list[tuple[SSMWeights, TailWeights]],
    spec: SSMSpec,
    *,
    valid: Tensor | None,
    dropout: float,
) -> tuple[Tensor, list[SSMState]]:
    """Blocks of one configuration, all of a model, as one autograd function; gaps get no gradient."""
    layout = layout_of(*layers[0])
    config = BlockConfig.of(layout, spec, dropout)
    parameters: list[Tensor] = []
    for weights, tail in layers:
        parameters += ordered(weights, tail)
        if layout.stride != layout.size:
            parameters.append(x.new_empty(layout.stride - layout.size))
    return _run_stack(config, x, norms, gaps, spec, parameters, valid, whole=True)


def _run_stack(
    config: BlockConfig,
    x: Tensor,
    norms: list[RunningNorm],
    gaps: Tensor,
    spec: SSMSpec,
    parameters: list[Tensor],
    valid: Tensor | None,
    *,
    whole: bool,
) -> tuple[Tensor, list[SSMState]]:
    gaps, behind = both_gaps(gaps, spec, valid)
    seed = torch.rand(len(norms), device=x.device) if config.dropout > 0 else None
    norm = "batch" if norms[0].training else "running"
    sizes, masked = (1, *x.shape[:2]), valid is not None
    forgets = not torch.is_grad_enabled()
    depth = len(norms)
    shape = BlockShape.of(config.layout, *sizes, masked=masked, norm=norm, depth=depth, whole=whole, forgets=forgets)
    arguments = (config, shape, norms, valid, seed, x, gaps, behind, *parameters)
    out, *last = BlockFunction.apply(*arguments)  # type: ignore[attr-defined]
    return out, [SSMState(*last[k : k + 3]) for k in range(0, len(last), 3)]


def both_gaps(gaps: Tensor, spec: SSMSpec, valid: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The gaps of both directions, where there are two."""
    if valid is not None:
        gaps = gaps.masked_fill(~valid, 0)
    if not spec.bidirectional:
        return gaps, None
    return gaps, gaps if spec.reverse == "release" else reversed_gaps(gaps, valid)


def block_inputs(
    x: Tensor, gaps: Tensor, behind: Tensor | None, valid: Tensor | None, seed: Tensor | None, weights: list[Tensor]
) -> BlockInputs:
    """The tensors of a call that runs at once, its weights end to end."""
    packed = flatten(weights)
    if packed.dtype != torch.float32 or gaps.dtype != torch.float32:
        raise ShapeError(f"block: found weights in {packed.dtype} and gaps in {gaps.dtype}, wanted torch.float32")
    behind, valid = (None if part is None else part.contiguous() for part in (behind, valid))
    return BlockInputs(x.contiguous(), gaps.contiguous(), behind, valid, seed, packed, None)


class BlockFunction(_SingleLevelFunction):
    """One model on plain tensors, with its norms; of torch's functions that which no transform looks through."""

    @staticmethod
    def forward(
        ctx: Any,
        config: BlockConfig,
        shape: BlockShape,
        norms: list[RunningNorm],
        valid: Tensor | None,
        seed: Tensor | None,
        x: Tensor,
        gaps: Tensor,
        behind: Tensor | None,
        *weights: Tensor,
    ) -> tuple[Tensor, ...]:
        parameters = list(weights)
        inputs = block_inputs(x, gaps, behind, valid, seed, parameters)
        out, last, kept = run_forward(config, shape, inputs, norms)
        ctx.save_for_backward(*inputs[:-1], *kept)
        ctx.set_materialize_grads(False)
        ctx.config, ctx.shape, ctx.parameters, ctx.fresh = config, shape, parameters, True
        return out, *last

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, gradient: Tensor | None, *d_last: Tensor | None) -> tuple[Any, ...]:
        x, gaps, behind, valid, seed, packed, *kept = ctx.saved_tensors
        inputs = BlockInputs(x, gaps, behind, valid, seed, packed, None)
        own = torch.zeros_like(x) if gradient is None else _materialise(gradient)
        dx, _, d_gaps, d_behind, d_packed = run_backward(
            ctx.config, ctx.shape, inputs, Kept(*kept), own, d_last, d_gaps_wanted=any(ctx.needs_input_grad[6:8]),
            overwrite=own is not gradient, fresh=ctx.fresh,
        )  # fmt: skip
        # A second backward pass finds other blocks' numbers in the room that they share.
        ctx.fresh = False
        return None, None, None, None, None, dx, d_gaps, d_behind, *unflatten(d_packed, ctx.parameters)


def _materialise(gradient: Tensor) -> Tensor:
    """A gradient as it lies in memory of its own; that of a pool is one row for all steps."""
    return spread_steps(gradient) if gradient.stride(1) == 0 and gradient.shape[1] > 1 else gradient.contiguous()


@torch.library.custom_op("tides::block_triton", mutates_args=())
def block_op(
    x: Tensor,
    affine: Tensor,
    gaps: Tensor,
    behind: Tensor | None,
    valid: Tensor | None,
    packed: Tensor,
    seed: Tensor | None,
    flags: list[int],
    methods: str,
    numbers: list[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """x (m, b, l, h) → the block's output; s, λ, pending drive (m, b, p) of the last step; and what backward keeps."""
    config = BlockConfig.from_plain(flags, methods, numbers)
    shape, inputs = _call(config, x, affine, gaps, behind, valid, packed, seed)
    out, (s, lam, pending), kept = run_forward(config, shape, inputs, ())
    return out, s, lam, pending, kept.parts


@torch.library.custom_op("tides::block_triton_backward", mutates_args=())
def block_backward(
    gradient: Tensor,
    d_last: list[Tensor | None],
    kept: Tensor,
    x: Tensor,
    affine: Tensor,
    gaps: Tensor,
    behind: Tensor | None,
    valid: Tensor | None,
    packed: Tensor,
    seed: Tensor | None,
    flags: list[int],
    methods: str,
    numbers: list[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, affine, gaps, behind (empty without it) and packed; `d_last` are those of s, λ and drive."""
    config = BlockConfig.from_plain(flags, methods, numbers)
    shape, inputs = _call(config, x, affine, gaps, behind, valid, packed, seed)
    dx, d_affine, d_gaps, d_behind, d_packed = run_backward(
        config, shape, inputs, Kept(kept.contiguous(), inputs.x), gradient.contiguous(), d_last, d_gaps_wanted=True
    )
    assert d_gaps is not None
    return dx, d_affine, d_gaps, gaps.new_empty(shape.models, 0) if d_behind is None else d_behind, d_packed


def _call(
    config: BlockConfig,
    x: Tensor,
    affine: Tensor,
    gaps: Tensor,
    behind: Tensor | None,
    valid: Tensor | None,
    packed: Tensor,
    seed: Tensor | None,
) -> tuple[BlockShape, BlockInputs]:
    tensors = (x, gaps, behind, valid, seed, packed, affine)
    inputs = BlockInputs(*(None if tensor is None else tensor.contiguous() for tensor in tensors))  # type: ignore[arg-type]
    return _shape(config, x, valid is not None), inputs


def _shape(config: BlockConfig, x: Tensor, masked: bool) -> BlockShape:
    models, batch, steps, _ = x.shape
    return BlockShape.of(config.layout, models, batch, steps, masked=masked, norm="given")


@block_op.register_fake
def _(x, affine, gaps, behind, valid, packed, seed, flags, methods, numbers):  # type: ignore[no-untyped-def]
    config = BlockConfig.from_plain(flags, methods, numbers)
    last = (x.new_empty(*x.shape[:2], config.layout.modes, dtype=torch.complex64) for _ in range(3))
    kept = x.new_empty(x.shape[0], kept_size(config.layout, _shape(config, x, valid is not None)))
    return torch.empty_like(x), *last, kept


@block_backward.register_fake
def _(gradient, d_last, kept, x, affine, gaps, behind, valid, packed, seed, flags, methods, numbers):  # type: ignore[no-untyped-def]
    d_behind = gaps.new_empty(gaps.shape[0], 0) if behind is None else torch.empty_like(behind)
    return torch.empty_like(x), torch.empty_like(affine), torch.empty_like(gaps), d_behind, torch.empty_like(packed)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.flags, ctx.methods, ctx.numbers = inputs
    ctx.save_for_backward(output[-1], *tensors)
    ctx.set_materialize_grads(False)


@differentiable_once
def _differentiate(ctx: Any, gradient: Tensor | None, *d_last: Tensor | None) -> tuple[Any, ...]:
    kept, x, affine, gaps, behind, *rest = ctx.saved_tensors
    gradient = torch.zeros_like(x) if gradient is None else gradient
    dx, d_affine, d_gaps, d_behind, d_packed = block_backward(
        gradient, list(d_last[:3]), kept, x, affine, gaps, behind, *rest, ctx.flags, ctx.methods, ctx.numbers
    )
    return dx, d_affine, d_gaps, None if behind is None else d_behind, None, d_packed, None, None, None, None


block_op.register_autograd(_differentiate, setup_context=_setup)
torch.library.register_vmap(block_op, merge_leading_axis(block_op))
