"""v_k = B_k u_k and y_k = Re(C_k s_k) + skip ⊙ u_k with low-rank or full heads, as operators."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tides import functional as tf
from tides.functional.mixes import LowRankMix, Mix, mix_factors
from tides.functional.ssm import SSMSpec, SSMWeights
from tides.kernels.batching import merge_leading_axis
from tides.kernels.cpu import mix_loops as loops
from tides.kernels.cpu.mix_scratch import MixScratch, d_encoder, run_mix, summed
from tides.kernels.cpu.mix_tile import Columns
from tides.kernels.derivatives import differentiable_once
from tides.kernels.mixing import d_drive_kernel, d_readout_kernel, drive_kernel, readout_kernel, unweighted


def mix_in(u: Tensor, mix: Mix, eps: float) -> Tensor:
    """`functional.mix_in`; heads without a code are plain matrix products already."""
    if not isinstance(mix, LowRankMix):
        return tf.mix_in(u, mix, eps)
    drive: Tensor = mix_in_op(u.reshape(1, -1, u.shape[-1]), *_arguments(mix), eps)
    return torch.view_as_complex(drive.view(*u.shape[:-1], -1, 2))


def read_out(s: Tensor, u: Tensor, weights: SSMWeights, spec: SSMSpec) -> Tensor:
    """`functional.read_out`."""
    mix = weights.readout
    if not isinstance(mix, LowRankMix):
        return tf.read_out(s, u, weights, spec)
    pairs = torch.view_as_real(s.resolve_conj()).reshape(1, -1, s.shape[-1], 2)
    factor = 2.0 if spec.conjugate else 1.0
    rows = u.reshape(1, -1, u.shape[-1])
    y: Tensor = mix_out_op(pairs, rows, *_arguments(mix), weights.skip[None], factor, spec.eps)
    return y.view(u.shape)


def _arguments(mix: LowRankMix) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """(A, c, factors, norm) with a leading axis of one problem, where z̃ = u A + c: A = [W_downᵀ, 0], c = [bias; 1]."""
    h = mix.base.shape[1]
    down = torch.eye(h, dtype=mix.base.dtype, device=mix.base.device) if mix.down is None else mix.down.mT
    bias = down.new_zeros(down.shape[1]) if mix.down_bias is None else mix.down_bias
    norm = None if mix.norm is None else mix.norm[None]
    return F.pad(down, (0, 1))[None], F.pad(bias, (0, 1), value=1.0)[None], mix_factors(mix)[None], norm


@torch.library.custom_op("tides::mix_in_cpu", mutates_args=(), device_types="cpu")
def mix_in_op(u: Tensor, down: Tensor, offset: Tensor, factors: Tensor, norm: Tensor | None, eps: float) -> Tensor:
    """u (m, n, h), A (m, h, i), c (m, i), factors (m, p, h, 2, i), norm (m, p) → drive (m, n, 2p), interleaved."""
    u, kernel = u.detach().contiguous(), drive_kernel(factors, norm)
    columns = None if norm is None else Columns(factors)
    out = u.new_empty(*u.shape[:2], kernel.shape[-1])
    us, outs = u.numpy(), out.numpy()

    def work(m: int, scratch: MixScratch, start: int, stop: int) -> None:
        tile = scratch.tile
        scratch.encode(us[m, start:stop])
        if columns is None:
            tile.forward(scratch.code.array, scratch.inputs.tensor, scratch.out.array)
        else:
            tile.find_norms(scratch.code.array, eps)
            loops.multiplied(scratch.inputs.array, tile.inverse.array, scratch.scaled.array)
            tile.forward(scratch.code.array, scratch.scaled.tensor, scratch.out.array)
        loops.transposed(scratch.out.array, outs[m, start:stop])

    run_mix(kernel, down, offset, columns, u.shape[1], work)
    return out


@torch.library.custom_op("tides::mix_in_cpu_backward", mutates_args=(), device_types="cpu")
def mix_in_backward(
    gradient: Tensor, u: Tensor, down: Tensor, offset: Tensor, factors: Tensor, norm: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of u, A, c, factors and norm."""
    gradient, u = gradient.detach().contiguous(), u.detach().contiguous()
    kernel, columns = drive_kernel(factors, norm), None if norm is None else Columns(factors)
    du = torch.empty_like(u)
    us, dus = u.numpy(), du.numpy()

    def work(m: int, scratch: MixScratch, start: int, stop: int) -> None:
        tile, code, d_code = scratch.tile, scratch.code.array, scratch.d_code.array
        g = gradient[m, start:stop]
        scratch.encode(us[m, start:stop])
        if columns is None:
            tile.backward(g.t(), g, code, scratch.inputs.array, d_code, scratch.du.array)
        else:
            tile.find_norms(code, eps)
            loops.multiplied(scratch.inputs.array, tile.inverse.array, scratch.scaled.array)
            tile.backward(g.t(), g, code, scratch.scaled.array, d_code, scratch.du.array)
            loops.d_square_in(scratch.inputs.array, tile.inverse.array, scratch.du.array)
            tile.norms_backward(code, d_code)
        scratch.encode_backward()
        loops.transposed(scratch.du.array, dus[m, start:stop])

    teams = run_mix(kernel, down, offset, columns, u.shape[1], work)
    d_weighted = d_drive_kernel(summed(teams, "tile.d_kernel"), factors)
    d_norms = None if columns is None else columns.d_factors(summed(teams, "tile.d_forms"))
    return (du, *d_encoder(teams), *unweighted(d_weighted, factors, norm, d_norms))


@torch.library.custom_op("tides::mix_out_cpu", mutates_args=(), device_types="cpu")
def mix_out_op(
    s: Tensor,
    u: Tensor,
    down: Tensor,
    offset: Tensor,
    factors: Tensor,
    norm: Tensor | None,
    skip: Tensor,
    factor: float,
    eps: float,
) -> Tensor:
    """factor · Re(C s) + skip ⊙ u (m, n, h) for s (m, n, p, 2), u (m, n, h), skip (m, h), the rest as in the in-mix."""
    x, u = s.detach().contiguous().flatten(-2), u.detach().contiguous()
    kernel = readout_kernel(factors, norm) * factor
    columns = None if norm is None else Columns(factors)
    out = torch.empty_like(u)
    us, outs, skips = u.numpy(), out.numpy(), skip.detach().contiguous().numpy()

    def work(m: int, scratch: MixScratch, start: int, stop: int) -> None:
        tile, code, mixed = scratch.tile, scratch.code.array, scratch.out.array
        scratch.encode(us[m, start:stop])
        tile.forward(code, x[m, start:stop].t(), mixed)
        if columns is None:
            loops.added_skip(mixed, scratch.inputs.array, skips[m], scratch.scaled.array)
        else:
            tile.find_norms(code, eps)
            loops.finished(mixed, tile.inverse.array, scratch.inputs.array, skips[m], scratch.scaled.array)
        loops.transposed(scratch.scaled.array, outs[m, start:stop])

    run_mix(kernel, down, offset, columns, u.shape[1], work)
    return out


@torch.library.custom_op("tides::mix_out_cpu_backward", mutates_args=(), device_types="cpu")
def mix_out_backward(
    gradient: Tensor,
    s: Tensor,
    u: Tensor,
    down: Tensor,
    offset: Tensor,
    factors: Tensor,
    norm: Tensor | None,
    skip: Tensor,
    factor: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of s, u, A, c, factors, norm and skip."""
    gradient, u, skip = (x.detach().contiguous() for x in (gradient, u, skip))
    kernel, columns = readout_kernel(factors, norm) * factor, None if norm is None else Columns(factors)
    x = s.detach().contiguous().flatten(-2)
    dx, du = torch.empty_like(x), torch.empty_like(u)
    gradients, us, xs, dxs, dus, skips = (x.numpy() for x in (gradient, u, x, dx, du, skip))

    def work(m: int, scratch: MixScratch, start: int, stop: int) -> None:
        tile, code, d_code = scratch.tile, scratch.code.array, scratch.d_code.array
        scratch.encode(us[m, start:stop])
        loops.transposed(xs[m, start:stop], scratch.x.array)
        loops.transposed(gradients[m, start:stop], scratch.scaled.array)
        loops.skip_backward(
            scratch.scaled.array, scratch.inputs.array, skips[m], scratch.du.array, scratch.d_skip.numpy()
        )
        if columns is not None:
            # The mix before its norm, made again: taken from the output, it would drown in the skip connection.
            tile.forward(code, scratch.x.tensor, scratch.out.array)
            tile.find_norms(code, eps)
            loops.scaled_by(scratch.scaled.array, tile.inverse.array)
            loops.d_square_out(scratch.scaled.array, scratch.out.array, tile.inverse.array)
        tile.backward(scratch.scaled.tensor, scratch.scaled.turned, code, scratch.x.array, d_code, scratch.dx.array)
        if columns is not None:
            tile.norms_backward(code, d_code)
        scratch.encode_backward()
        loops.transposed(scratch.dx.array, dxs[m, start:stop])
        loops.transposed(scratch.du.array, dus[m, start:stop])

    teams = run_mix(kernel, down, offset, columns, u.shape[1], work)
    d_weighted = d_readout_kernel(summed(teams, "tile.d_kernel") * factor, factors)
    d_norms = None if columns is None else columns.d_factors(summed(teams, "tile.d_forms"))
    d_factors, d_norm = unweighted(d_weighted, factors, norm, d_norms)
    d_skip = summed(teams, "d_skip").to(skip.dtype)
    return dx.view(s.shape), du, *d_encoder(teams), d_factors, d_norm, d_skip


@mix_in_op.register_fake
def _(u, down, offset, factors, norm, eps):  # type: ignore[no-untyped-def]
    return u.new_empty(u.shape[0], u.shape[1], factors.shape[1] * 2)


@mix_out_op.register_fake
def _(s, u, down, offset, factors, norm, skip, factor, eps):  # type: ignore[no-untyped-def]
    return torch.empty_like(u, memory_format=torch.contiguous_format)


def _empty(*leaves: Tensor) -> list[Tensor]:
    return [torch.empty_like(leaf, memory_format=torch.contiguous_format) for leaf in leaves]


def _empty_norm(factors: Tensor, norm: Tensor | None) -> Tensor:
    return factors.new_empty(factors.shape[0], 0) if norm is None else torch.empty_like(norm)


@mix_in_backward.register_fake
def _(gradient, u, down, offset, factors, norm, eps):  # type: ignore[no-untyped-def]
    return (*_empty(u, down, offset, factors), _empty_norm(factors, norm))


@mix_out_backward.register_fake
def _(gradient, s, u, down, offset, factors, norm, skip, factor, eps):  # type: ignore[no-untyped-def]
    return (*_empty(s, u, down, offset, factors), _empty_norm(factors, norm), torch.empty_like(skip))


def _keep_in(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.eps = inputs
    ctx.save_for_backward(*tensors)


@differentiable_once
def _differentiate_in(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    # Read once: recomputed blocks hand their tensors out a single time.
    saved = ctx.saved_tensors
    *found, d_norm = mix_in_backward(gradient, *saved, ctx.eps)
    return (*found, None if saved[-1] is None else d_norm, None)


def _keep_out(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.factor, ctx.eps = inputs
    ctx.save_for_backward(*tensors)


@differentiable_once
def _differentiate_out(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    *found, d_norm, d_skip = mix_out_backward(gradient, *saved, ctx.factor, ctx.eps)
    return (*found, None if saved[-2] is None else d_norm, d_skip, None, None)


mix_in_op.register_autograd(_differentiate_in, setup_context=_keep_in)
mix_out_op.register_autograd(_differentiate_out, setup_context=_keep_out)
for _op in (mix_in_op, mix_in_backward, mix_out_op, mix_out_backward):
    torch.library.register_vmap(_op, merge_leading_axis(_op))
