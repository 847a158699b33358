"""A whole block as one operator: x goes in, x + GLU(GELU(SSM(norm x))) comes out, and x alone is kept.

Everything has a leading axis of models, so stacked populations are one launch. The backward pass makes decay, drive and
states again and walks through them in ranges of steps, so its temporaries stay small.
"""

from typing import Any

import torch
from torch import Tensor

from tides.functional.layout import last_rows, reversed_gaps
from tides.functional.mixes import LowRankMix
from tides.functional.ssm import SSMSpec, SSMState, SSMWeights
from tides.functional.tail import TailWeights
from tides.kernels.batching import merge_leading_axis
from tides.kernels.triton.block_gradients import BlockGradients
from tides.kernels.triton.block_pass import BlockPass
from tides.kernels.triton.evolve import evolve_backward
from tides.kernels.triton.packing import pack
from tides.kernels.triton.precision import WIDEST


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
    affine: Tensor,
    gaps: Tensor,
    weights: SSMWeights,
    spec: SSMSpec,
    tail: TailWeights,
    *,
    valid: Tensor | None,
    dropout: float,
) -> tuple[Tensor, SSMState]:
    """`functional.selective_block` from nothing: no state goes in."""
    layout, packed = pack(weights, tail)
    if valid is not None:
        gaps = gaps.masked_fill(~valid, 0)
    behind = None
    if spec.bidirectional:
        behind = gaps if spec.reverse == "release" else reversed_gaps(gaps, valid)
    seed = torch.rand(1, device=x.device) if dropout > 0 else None
    flags = [int(flag) for flag in layout]
    methods = f"{spec.reparam} {spec.discretisation} {spec.hold} {spec.reverse}"
    numbers = [spec.eps, spec.clip or 0.0, 2.0 if spec.conjugate else 1.0, dropout]
    mask = None if valid is None else valid[None]
    later = None if behind is None else behind[None]
    out, s, decay, drive = block_op(
        x[None], affine[None], gaps[None], later, mask, packed[None], seed, flags, methods, numbers
    )
    frequency = weights.frequency.bias.expand_as(decay[0])
    pending = (
        torch.view_as_complex(drive[0]) if spec.hold == "following" else torch.zeros_like(torch.view_as_complex(s[0]))
    )
    return out[0], SSMState(torch.view_as_complex(s[0]), torch.complex(decay[0], frequency), pending)


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
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x (m, b, l, h) → the block's output, and s (m, b, p, 2), decay (m, b, p), drive (m, b, p, 2) of the last step."""
    run = BlockPass(x, affine, valid, packed, flags, methods, numbers)
    decay, drive = run.run_enter()
    states = run.run_scans(decay, drive, gaps, behind)
    out = run.run_leave(states, seed)
    mask = None if valid is None else valid.reshape(-1, run.steps)
    shape = (run.models, run.batch, run.layout.modes)
    s, held = (torch.view_as_real(last_rows(part, None, mask).contiguous()) for part in (states[0], drive))
    return out, s.view(*shape, 2), last_rows(decay, None, mask).contiguous().view(shape), held.view(*shape, 2)


@torch.library.custom_op("tides::block_triton_backward", mutates_args=())
def block_backward(
    gradient: Tensor,
    d_last: list[Tensor | None],
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
    """Gradients of x, affine, gaps, behind (empty without it) and packed; `d_last` are those of s, decay and drive."""
    run = BlockPass(x, affine, valid, packed, flags, methods, numbers)
    gradients = BlockGradients(run)
    gradient = gradient.contiguous()
    decay, drive = run.run_enter()
    states = run.run_scans(decay, drive, gaps, behind)
    d_u, d_states = gradients.leave(gradient, states, seed)
    mask = None if valid is None else valid.reshape(-1, run.steps)
    _add_last(torch.view_as_real(d_states[0]), d_last[0], mask)
    pieces = []
    for k, (each, options) in enumerate(run.directions(gaps, behind)):
        pieces.append(evolve_backward(d_states[k], states[k], decay, *run.clocks(each), drive, None, None, *options))
    del decay, drive, states, d_states
    d_decay, d_frequency, d_gaps, d_scale, d_drive, _ = pieces[0]
    d_behind = gaps.new_empty(run.models, 0)
    if behind is not None:
        d_decay, d_frequency, d_scale = d_decay.add_(pieces[1][0]), d_frequency + pieces[1][1], d_scale + pieces[1][3]
        d_behind, d_drive = pieces[1][2].view_as(gaps), d_drive.add_(pieces[1][4])
    del pieces
    _add_last(d_decay, d_last[1], mask)
    _add_last(torch.view_as_real(d_drive), d_last[2], mask)
    gradients.clocks(d_frequency, d_scale)
    dx, d_affine = gradients.enter(gradient, d_decay, d_drive, d_u)
    return dx, d_affine, d_gaps.reshape(gaps.shape), d_behind, gradients.d_packed


def _add_last(buffer: Tensor, addition: Tensor | None, valid: Tensor | None) -> None:
    """Add to the last valid step of every sequence; `buffer` (n, l, …), addition (m, b, …)."""
    if addition is None:
        return
    addition = addition.reshape(buffer.shape[0], *buffer.shape[2:])
    if valid is None:
        buffer[:, -1] += addition
        return
    count = valid.sum(-1)
    addition = addition.masked_fill((count == 0).view(-1, *[1] * (addition.ndim - 1)), 0)
    index = (count - 1).clamp_min(0).view(-1, *[1] * (buffer.ndim - 1)).expand(-1, 1, *buffer.shape[2:])
    buffer.scatter_add_(1, index, addition.unsqueeze(1))


@block_op.register_fake
def _(x, affine, gaps, behind, valid, packed, seed, flags, methods, numbers):  # type: ignore[no-untyped-def]
    shape = (*x.shape[:2], flags[1])
    return torch.empty_like(x), x.new_empty(*shape, 2), x.new_empty(shape), x.new_empty(*shape, 2)


@block_backward.register_fake
def _(gradient, d_last, x, affine, gaps, behind, valid, packed, seed, flags, methods, numbers):  # type: ignore[no-untyped-def]
    d_behind = gaps.new_empty(gaps.shape[0], 0) if behind is None else torch.empty_like(behind)
    return torch.empty_like(x), torch.empty_like(affine), torch.empty_like(gaps), d_behind, torch.empty_like(packed)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.flags, ctx.methods, ctx.numbers = inputs
    ctx.save_for_backward(*tensors)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, gradient: Tensor | None, *d_last: Tensor | None) -> tuple[Any, ...]:
    x, affine, gaps, behind, *rest = ctx.saved_tensors
    gradient = torch.zeros_like(x) if gradient is None else gradient
    dx, d_affine, d_gaps, d_behind, d_packed = block_backward(
        gradient, list(d_last), x, affine, gaps, behind, *rest, ctx.flags, ctx.methods, ctx.numbers
    )
    return dx, d_affine, d_gaps, None if behind is None else d_behind, None, d_packed, None, None, None, None


block_op.register_autograd(_differentiate, setup_context=_setup)
torch.library.register_vmap(block_op, merge_leading_axis(block_op))
