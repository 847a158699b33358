"""A whole block as one operator: x goes in, x + GLU(GELU(SSM(norm x))) comes out.

Tiles of steps stay in a core's cache, before and behind the scan. Kept are x, decay rates, drive, states and the
out-mix before its norm; everything else is made again, a tile at a time, in the backward pass. A call that runs at once
is an autograd function that finds the norm's statistics itself, for any number of blocks; calls that are traced or
stacked go through an operator that torch knows, where everything has a leading axis of models.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import _SingleLevelFunction

from tides.functional.layout import reversed_gaps
from tides.functional.mixes import LowRankMix
from tides.functional.ssm import SSMSpec, SSMState, SSMWeights
from tides.functional.tail import TailWeights
from tides.kernels.batching import merge_leading_axis
from tides.kernels.cpu.arrays import flat
from tides.kernels.cpu.block_config import BlockConfig
from tides.kernels.cpu.block_layout import layout_of, ordered, places_of
from tides.kernels.cpu.block_pass import BlockPass, BlockTape, panel_size
from tides.kernels.cpu.statistics_rows import add_moments_gradient, moments
from tides.kernels.derivatives import differentiable_once
from tides.kernels.flat import flatten, unflatten
from tides.kernels.statistics import RunningNorm


def block_obstacle(weights: SSMWeights, spec: SSMSpec, tail: TailWeights) -> str | None:
    """Why this block is not one operator, or None."""
    if not isinstance(weights.drive, LowRankMix) or not isinstance(weights.readout, LowRankMix):
        return "its B and C are not projected by low-rank or full heads"
    if weights.decay.weight is None or weights.decay.blocks or weights.frequency.weight is not None:
        return "its eigenvalues do not come from one linear head"
    return None if isinstance(weights.step, Tensor) else "its step size is learned"


def fused_block(
    x: Tensor,
    norm: RunningNorm | Tensor,
    gaps: Tensor,
    weights: SSMWeights,
    spec: SSMSpec,
    tail: TailWeights,
    *,
    valid: Tensor | None,
    dropout: float,
) -> tuple[Tensor, SSMState]:
    """The block for input x (b, l, h), from nothing: no state goes in.

    `norm` is scale and shift (2, h), or the running statistics they come from, for calls that run at once.
    """
    if isinstance(norm, RunningNorm):
        out, states = fused_stack(x, [norm], gaps, [(weights, tail)], spec, valid=valid, dropout=dropout)
        return out, states[0]
    config = BlockConfig.of(layout_of(weights, tail), spec, dropout)
    gaps, behind = _both_gaps(x, gaps, spec, valid)
    packed = torch.cat([part.reshape(-1) for part in ordered(weights, tail)])
    kept = _masks(x, dropout)
    tensors = (x, norm, gaps, behind, valid, kept, packed)
    leading = (None if each is None else each[None] for each in tensors)
    out, *found = block_op(*leading, *config.to_plain(), torch.is_grad_enabled())
    return out[0], SSMState(*(each[0] for each in found[:3]))


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
    """Blocks of one configuration, one behind the other, as one autograd function."""
    config = BlockConfig.of(layout_of(*layers[0]), spec, dropout)
    parameters = [part for weights, tail in layers for part in ordered(weights, tail)]
    gaps, behind = _both_gaps(x, gaps, spec, valid)
    arguments = (config, torch.is_grad_enabled(), norms, valid, x, gaps, behind, *parameters)
    out, last = BlockFunction.apply(*arguments)  # type: ignore[attr-defined]
    parts = last.flatten(0, 1).unbind()
    return out, [SSMState(*parts[k : k + 3]) for k in range(0, len(parts), 3)]


def _both_gaps(x: Tensor, gaps: Tensor, spec: SSMSpec, valid: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The gaps of both directions, where there are two."""
    gaps = gaps.to(x.dtype)
    if valid is not None:
        gaps = gaps.masked_fill(~valid, 0)
    if not spec.bidirectional:
        return gaps, None
    return gaps, gaps if spec.reverse == "release" else reversed_gaps(gaps, valid)


def _masks(x: Tensor, dropout: float) -> Tensor | None:
    """One byte per number and mask."""
    return torch.rand(2, x.numel(), device=x.device) >= dropout if dropout > 0 else None


def _plain(x: Tensor | None) -> Any:
    return None if x is None else x.detach().contiguous()


def _fill_affine(panels: Any, scale: Any, shift: Any, width: int) -> None:
    panels.scale[:width], panels.shift[:width] = scale, shift


class BlockFunction(_SingleLevelFunction):
    """One model on plain tensors, with its norms; of torch's functions that which no transform looks through."""

    @staticmethod
    def forward(
        ctx: Any,
        config: BlockConfig,
        keep: bool,
        norms: list[RunningNorm],
        valid: Tensor | None,
        x: Tensor,
        gaps: Tensor,
        behind: Tensor | None,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        run = BlockPass(config, x, _plain(gaps), _plain(behind), _plain(valid))
        size = places_of(config.layout).size
        vector = flatten(list(parameters))
        hidden = _plain(x)
        kept_for_later: list[Tensor | None] = []
        counts = []
        last = torch.empty(len(norms), *run.last_shape, dtype=x.dtype)
        lasts = last.numpy()
        for k, norm in enumerate(norms):
            buffer, panels = run.pack(vector[k * size : (k + 1) * size])
            counts.append(_normalise(run, hidden, norm, panels))
            kept = _masks(hidden, config.settings.dropout)
            out = torch.empty_like(hidden)
            tape = run.forward(panels, buffer, hidden, kept, out, lasts[k])
            if keep:
                kept_for_later += [*tape, hidden, kept]
            hidden = out
        ctx.save_for_backward(x, vector, *kept_for_later)
        # The weights for their shapes alone.
        ctx.run, ctx.counts, ctx.parameters = run, counts, list(parameters)
        ctx.set_materialize_grads(False)
        return hidden, torch.view_as_complex(last)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, gradient: Tensor | None, d_last: Tensor | None) -> tuple[Any, ...]:
        run: BlockPass = ctx.run
        x, vector, *saved = ctx.saved_tensors
        size, each = places_of(run.layout).size, len(saved) // len(ctx.counts)
        g = torch.zeros_like(x) if gradient is None else gradient.contiguous()
        d_vector, d_gaps, d_behind = torch.empty_like(vector), None, None
        for k in reversed(range(len(ctx.counts))):
            *tape, hidden, kept = saved[k * each : (k + 1) * each]
            part, own = slice(k * size, (k + 1) * size), BlockTape(*tape)
            lasts = (None, None, None) if d_last is None else d_last[k].unbind()
            found = run.backward(vector[part], own, hidden, kept, g, lasts, d_vector[part])  # type: ignore[arg-type]
            d_gaps = found.gaps if d_gaps is None else d_gaps + found.gaps
            if found.behind is not None:
                d_behind = found.behind if d_behind is None else d_behind + found.behind
            if ctx.counts[k] > 0:
                add_moments_gradient(
                    flat(hidden), run.width, run.valid, run.sizes.lanes, found.panels.scale,
                    found.panels.shift, found.sums.scale, found.sums.shift, ctx.counts[k], flat(found.x),
                )  # fmt: skip
            g = found.x
        run.release()
        return None, None, None, None, g, d_gaps, d_behind, *unflatten(d_vector, ctx.parameters)


def _normalise(run: BlockPass, x: Tensor, norm: RunningNorm, panels: Any) -> int:
    """Fill in scale and shift; in training from the valid steps of x, whose number is returned, else 0."""
    width = run.width
    if not norm.training:
        scale = torch.rsqrt(norm.var + norm.eps)
        _fill_affine(panels, scale.numpy(), (-norm.mean * scale).numpy(), width)
        return 0
    mean, var = torch.empty_like(norm.mean), torch.empty_like(norm.var)
    lanes, affine = run.sizes.lanes, (panels.scale, panels.shift)
    count = moments(flat(x), width, run.valid, lanes, norm.eps, *affine, mean.numpy(), var.numpy())
    norm.mean.lerp_(mean, norm.momentum)
    norm.var.lerp_(var, norm.momentum)
    return int(count)


@torch.library.custom_op("tides::block_cpu", mutates_args=(), device_types="cpu")
def block_op(
    x: Tensor,
    affine: Tensor,
    gaps: Tensor,
    behind: Tensor | None,
    valid: Tensor | None,
    kept: Tensor | None,
    weights: Tensor,
    flags: list[int],
    numbers: list[float],
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """x (m, b, l, h) → output; s, λ, pending drive (m, b, p) of the last step; and a tape for the backward pass."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    found = []
    for m in range(x.shape[0]):
        run = _model(m, x, gaps, behind, valid, flags, numbers)
        buffer, panels = run.pack(_plain(weights[m]))
        scale, shift = _plain(affine[m]).numpy()
        _fill_affine(panels, scale, shift, run.width)
        last = torch.empty(run.last_shape, dtype=x.dtype)
        tape = run.forward(panels, buffer, _plain(x[m]), None if kept is None else kept[m], out[m], last.numpy())
        found.append((*torch.view_as_complex(last).unbind(), *(tape if keep else (x.new_empty(0) for _ in tape))))
    return out, *(torch.stack(each) for each in zip(*found, strict=True))  # type: ignore[return-value]


def _model(
    m: int, x: Tensor, gaps: Tensor, behind: Tensor | None, valid: Tensor | None, flags: list[int], numbers: list[float]
) -> BlockPass:
    later, mask = (None if each is None else _plain(each[m]) for each in (behind, valid))
    return BlockPass(BlockConfig.from_plain(flags, numbers), x[m], _plain(gaps[m]), later, mask)


@torch.library.custom_op("tides::block_cpu_backward", mutates_args=(), device_types="cpu")
def block_backward(
    gradient: Tensor,
    d_last: list[Tensor | None],
    tape: list[Tensor],
    x: Tensor,
    affine: Tensor,
    gaps: Tensor,
    behind: Tensor | None,
    valid: Tensor | None,
    kept: Tensor | None,
    weights: Tensor,
    flags: list[int],
    numbers: list[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, affine, gaps, behind (empty without it) and weights."""
    found = []
    for m in range(x.shape[0]):
        run = _model(m, x, gaps, behind, valid, flags, numbers)
        masks = None if kept is None else kept[m]
        own = BlockTape(*(each[m] for each in tape))
        lasts = tuple(None if each is None else each[m] for each in d_last)
        vector = _plain(weights[m])
        d_weights = torch.empty_like(vector)
        result = run.backward(vector, own, _plain(x[m]), masks, _plain(gradient[m]), lasts, d_weights)  # type: ignore[arg-type]
        scale, shift = _plain(affine[m])
        sums = [torch.from_numpy(each[: run.width].copy()) for each in (result.sums.scale, result.sums.shift)]
        d_affine = torch.stack([(sums[0] - shift * sums[1]) / scale, sums[1]])
        d_behind = gaps.new_empty(0) if result.behind is None else result.behind
        found.append((result.x, d_affine, result.gaps, d_behind, d_weights))
    return tuple(torch.stack(each) for each in zip(*found, strict=True))  # type: ignore[return-value]


@block_op.register_fake
def _(x, affine, gaps, behind, valid, kept, weights, flags, numbers, keep):  # type: ignore[no-untyped-def]
    config = BlockConfig.from_plain(flags, numbers)
    layout, (models, b, l, h) = config.layout, x.shape
    complex_ = torch.complex64 if x.dtype == torch.float32 else torch.complex128
    last = [x.new_empty(models, b, layout.modes, dtype=complex_) for _ in range(3)]
    rows, p = b * l, layout.modes
    shapes = [(rows, p), (rows, 2 * p), (layout.directions, rows, 2 * p), (rows, h), (panel_size(layout, x.dtype),)]
    return torch.empty_like(x), *last, *(x.new_empty(models, *(shape if keep else (0,))) for shape in shapes)


@block_backward.register_fake
def _(gradient, d_last, tape, x, affine, gaps, behind, valid, kept, weights, flags, numbers):  # type: ignore[no-untyped-def]
    d_behind = gaps.new_empty(gaps.shape[0], 0) if behind is None else torch.empty_like(behind)
    return torch.empty_like(x), torch.empty_like(affine), torch.empty_like(gaps), d_behind, torch.empty_like(weights)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.flags, ctx.numbers, _ = inputs
    ctx.save_for_backward(*output[4:], *tensors)
    ctx.set_materialize_grads(False)


@differentiable_once
def _differentiate(ctx: Any, gradient: Tensor | None, *d_last: Tensor | None) -> tuple[Any, ...]:
    tape, (x, affine, gaps, behind, *rest) = ctx.saved_tensors[:5], ctx.saved_tensors[5:]
    gradient = torch.zeros_like(x) if gradient is None else gradient
    dx, d_affine, d_gaps, d_behind, d_weights = block_backward(
        gradient, list(d_last[:3]), list(tape), x, affine, gaps, behind, *rest, ctx.flags, ctx.numbers
    )
    d_behind = None if behind is None else d_behind
    return dx, d_affine, d_gaps, d_behind, None, None, d_weights, None, None, None


block_op.register_autograd(_differentiate, setup_context=_setup)
for _op in (block_op, block_backward):
    torch.library.register_vmap(_op, merge_leading_axis(_op))
