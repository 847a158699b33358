"""A whole block as one operator: x goes in, x + GLU(GELU(SSM(norm x))) comes out.

Steps are taken in blocks that stay in a core's cache, before and behind the scan. Kept are x, decay rates, drive,
states and the out-mix before its norm; everything else is made again, a block at a time, in the backward pass.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tides.functional.layout import last_rows, reversed_gaps
from tides.functional.mixes import LowRankMix, mix_factors
from tides.functional.ssm import SSMSpec, SSMState, SSMWeights
from tides.functional.tail import TailWeights
from tides.kernels.batching import merge_leading_axis
from tides.kernels.cpu.block_pass import BlockInputs, BlockPass, BlockTape
from tides.kernels.statistics import RunningNorm, row_statistics


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
    """The block for input x (b, l, h), from nothing: no state goes in. `norm` is its (scale, shift), or finds them."""
    drive, readout, decay = weights.drive, weights.readout, weights.decay
    assert isinstance(drive, LowRankMix)
    assert isinstance(readout, LowRankMix)
    assert isinstance(weights.step, Tensor)
    assert decay.weight is not None
    affine = find_affine(x, valid, norm) if isinstance(norm, RunningNorm) else norm
    if valid is not None:
        gaps = gaps.masked_fill(~valid, 0)
    behind = None
    if spec.bidirectional:
        behind = gaps if spec.reverse == "release" else reversed_gaps(gaps, valid)
    kept = None
    if dropout > 0:
        # One byte per number and mask; in which order a block reads them does not matter.
        kept = torch.rand(1, 2, x.numel(), device=x.device) >= dropout
    inputs = BlockInputs(
        x,
        affine,
        gaps,
        behind,
        valid,
        None,
        torch.cat([_code_map(drive), torch.cat([decay.weight, decay.bias.unsqueeze(1)], 1)]),
        mix_factors(drive),
        drive.norm,
        decay.norm,
        weights.frequency.bias,
        torch.exp(weights.step),
        _code_map(readout),
        mix_factors(readout),
        readout.norm,
        weights.skip,
        torch.cat([torch.cat([tail.value, tail.gate]), torch.cat([tail.value_bias, tail.gate_bias]).unsqueeze(1)], 1),
        torch.cat([tail.out, tail.out_bias.unsqueeze(1)], 1),
    )
    leading = BlockInputs(*(None if each is None else each[None] for each in inputs))._replace(kept=kept)  # type: ignore[arg-type]
    methods = f"{spec.reparam} {spec.discretisation} {spec.hold} {spec.reverse}"
    limit = math.inf if spec.clip is None else -spec.clip
    numbers = [spec.eps, limit, 2.0 if spec.conjugate else 1.0, dropout]
    out, s, decay_rate, held, *_ = block_op(*leading, methods, numbers, torch.is_grad_enabled())
    last = torch.view_as_complex(s[0])
    pending = torch.view_as_complex(held[0]) if spec.hold == "following" else torch.zeros_like(last)
    frequency = weights.frequency.bias.expand_as(decay_rate[0])
    if valid is not None:
        # A series without a valid step has seen nothing.
        frequency = frequency.masked_fill(~valid.any(-1, keepdim=True), 0)
    lam = torch.complex(decay_rate[0], frequency)
    return out[0], SSMState(last, lam, pending)


def find_affine(x: Tensor, valid: Tensor | None, norm: RunningNorm) -> Tensor:
    """(scale, shift) of the batch norm; in training from the valid steps of x, which the running statistics follow."""
    mean, var = norm.mean, norm.var
    if norm.training:
        count: Any = x.shape[:-1].numel()
        if valid is None:
            mean, var = row_statistics(x)
        else:
            weight, count = valid.unsqueeze(-1).to(x.dtype), valid.sum()
            mean = (x * weight).sum((0, 1)) / count
            var = ((x - mean).square() * weight).sum((0, 1)) / count
        with torch.no_grad():
            norm.mean.lerp_(mean, norm.momentum)
            norm.var.lerp_(var * count / (count - 1), norm.momentum)
    scale = torch.rsqrt(var + norm.eps)
    return torch.stack([scale, -mean * scale])


def _code_map(mix: LowRankMix) -> Tensor:
    """(i, h + 1): z̃ from [u; 1]."""
    down = torch.eye(mix.base.shape[1], dtype=mix.base.dtype) if mix.down is None else mix.down
    bias = down.new_zeros(down.shape[0]) if mix.down_bias is None else mix.down_bias
    one = F.pad(down.new_ones(1, 1), (down.shape[1], 0))
    return torch.cat([torch.cat([down, bias.unsqueeze(1)], 1), one])


def _of_model(m: int, tensors: Any) -> BlockInputs:
    return BlockInputs(*(None if each is None else each[m : m + 1] for each in tensors))  # type: ignore[arg-type]


@torch.library.custom_op("tides::block_cpu", mutates_args=(), device_types="cpu")
def block_op(
    x: Tensor,
    affine: Tensor,
    gaps: Tensor,
    behind: Tensor | None,
    valid: Tensor | None,
    kept: Tensor | None,
    enter: Tensor,
    drive_factors: Tensor,
    drive_norm: Tensor | None,
    rate_norm: Tensor | None,
    frequency: Tensor,
    scale: Tensor,
    leave: Tensor,
    readout_factors: Tensor,
    readout_norm: Tensor | None,
    skip: Tensor,
    inner: Tensor,
    outer: Tensor,
    methods: str,
    numbers: list[float],
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """x (m, b, l, h) → output; s, decay, drive of the last step; decay, drive, states, mixed for the backward pass."""
    tensors = (
        x, affine, gaps, behind, valid, kept, enter, drive_factors, drive_norm, rate_norm, frequency, scale,
        leave, readout_factors, readout_norm, skip, inner, outer,
    )  # fmt: skip
    models, b, l, h = x.shape
    p, rows = frequency.shape[-1], b * l
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    decay, drive = x.new_empty(models, rows, p), x.new_empty(models, rows, 2 * p)
    found, lasts = [], []
    for m in range(models):
        run = BlockPass(_of_model(m, tensors), methods, numbers)
        states, mixed = run.forward(out[m].view(rows, h), decay[m], drive[m])
        mask = None if valid is None else valid[m]
        lasts.append([last_rows(y.view(b, l, -1), None, mask) for y in (states[0], decay[m], drive[m])])
        found.append((states, mixed))
    s, rates, held = (torch.stack(each) for each in zip(*lasts, strict=True))
    pairs = (models, b, p, 2)
    if not keep:
        tape = [x.new_empty(models, 0) for _ in range(4)]
    elif models == 1:
        tape = [decay, drive, found[0][0].unsqueeze(0), found[0][1].unsqueeze(0)]
    else:
        tape = [decay, drive, *(torch.stack(each) for each in zip(*found, strict=True))]
    return out, s.view(pairs), rates, held.view(pairs), *tape  # type: ignore[return-value]


@torch.library.custom_op("tides::block_cpu_backward", mutates_args=(), device_types="cpu")
def block_backward(
    gradient: Tensor,
    d_s: Tensor | None,
    d_rates: Tensor | None,
    d_held: Tensor | None,
    decay: Tensor,
    drive: Tensor,
    states: Tensor,
    mixed: Tensor,
    x: Tensor,
    affine: Tensor,
    gaps: Tensor,
    behind: Tensor | None,
    valid: Tensor | None,
    kept: Tensor | None,
    enter: Tensor,
    drive_factors: Tensor,
    drive_norm: Tensor | None,
    rate_norm: Tensor | None,
    frequency: Tensor,
    scale: Tensor,
    leave: Tensor,
    readout_factors: Tensor,
    readout_norm: Tensor | None,
    skip: Tensor,
    inner: Tensor,
    outer: Tensor,
    methods: str,
    numbers: list[float],
) -> list[Tensor]:
    """Gradients of the differentiable inputs, those of absent ones empty."""
    tensors = (
        x, affine, gaps, behind, valid, kept, enter, drive_factors, drive_norm, rate_norm, frequency, scale,
        leave, readout_factors, readout_norm, skip, inner, outer,
    )  # fmt: skip
    models, b, l, h = x.shape
    gradient = gradient.detach().contiguous().view(models, b * l, h)
    found = []
    for m in range(models):
        mask = None if valid is None else valid[m]

        def add_last(*buffers: Tensor | None, m: int = m, mask: Tensor | None = mask) -> None:
            for buffer, addition in zip(buffers, (d_s, d_rates, d_held), strict=True):
                if buffer is not None and addition is not None:
                    _add_last(buffer.view(b, l, -1), addition[m].reshape(b, -1), mask)

        run = BlockPass(_of_model(m, tensors), methods, numbers)
        tape = BlockTape(decay[m], drive[m], states[m], mixed[m])
        found.append(run.backward(gradient[m], tape, add_last))
    return found[0] if models == 1 else [torch.cat(each) for each in zip(*found, strict=True)]


def _add_last(buffer: Tensor, addition: Tensor, valid: Tensor | None) -> None:
    """Add (b, k) to the last valid step of every row of (b, l, k)."""
    if valid is None:
        buffer[:, -1] += addition
        return
    count = valid.sum(-1)
    rows = torch.arange(len(buffer))[count > 0]
    buffer[rows, count[rows] - 1] += addition[rows]


@block_op.register_fake
def _(x, affine, gaps, behind, valid, kept, enter, drive_factors, *others):  # type: ignore[no-untyped-def]
    keep, (models, b, l, h), p = others[-1], x.shape, drive_factors.shape[1]
    pairs = x.new_empty(models, b, p, 2)
    shapes = [(models, b * l, p), (models, b * l, 2 * p), (models, 1 if behind is None else 2, b * l, 2 * p)]
    shapes.append((models, b * l, h))
    tape = [x.new_empty(shape if keep else (models, 0)) for shape in shapes]
    return torch.empty_like(x), pairs, x.new_empty(models, b, p), torch.empty_like(pairs), *tape


@block_backward.register_fake
def _(gradient, d_s, d_rates, d_held, decay, drive, states, mixed, *inputs):  # type: ignore[no-untyped-def]
    tensors = BlockInputs(*inputs[:18])
    leaves = [each for name, each in tensors._asdict().items() if name not in ("valid", "kept")]
    return [gradient.new_empty(gradient.shape[0], 0) if each is None else torch.empty_like(each) for each in leaves]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.methods, ctx.numbers, _ = inputs
    ctx.save_for_backward(*output[4:], *tensors)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, gradient: Tensor | None, *d_last: Tensor | None) -> tuple[Any, ...]:
    saved = ctx.saved_tensors
    tape, inputs = saved[:4], BlockInputs(*saved[4:])
    gradient = torch.zeros_like(inputs.x) if gradient is None else gradient
    found = iter(block_backward(gradient, *d_last[:3], *tape, *inputs, ctx.methods, ctx.numbers))
    results = []
    for name, each in inputs._asdict().items():
        value = None if name in ("valid", "kept") else next(found)
        results.append(None if each is None else value)
    return *results, None, None, None


block_op.register_autograd(_differentiate, setup_context=_setup)
for _op in (block_op, block_backward):
    torch.library.register_vmap(_op, merge_leading_axis(_op))
