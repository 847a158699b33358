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
from tides.kernels.cpu.mix_blocks import Columns, Scratch, run_blocks, summed
from tides.kernels.mixing import drive_kernel, readout_kernel, unweighted


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

    def work(scratch: Scratch, m: int, start: int, stop: int) -> None:
        x = u[m, start:stop]
        scratch.encode(x)
        if columns is not None:
            scratch.normalise(us[m], start, stop, eps)
        scratch.forward(x if columns is None else scratch.scaled_n, start, stop, outs[m])

    run_blocks(kernel, down.detach(), offset.detach(), columns, u.shape[1], work)
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

    def work(scratch: Scratch, m: int, start: int, stop: int) -> None:
        g, x = gradient[m, start:stop], u[m, start:stop]
        scratch.encode(x)
        if columns is None:
            scratch.backward(g, us[m], start, start, stop, dus[m])
        else:
            scratch.normalise(us[m], start, stop, eps)
            scratch.backward(g, scratch.norm_arrays[2], 0, start, stop, dus[m])
            loops.d_square_in(us[m], start, stop, scratch.inverses, dus[m])
            scratch.normalise_backward(stop - start)
        scratch.encode_backward(x)
        du[m, start:stop].addmm_(scratch.d_code_n, scratch.lift)

    teams = run_blocks(kernel, down.detach(), offset.detach(), columns, u.shape[1], work)
    m, p, h, _, i = factors.shape
    d_weighted = summed(teams, "d_kernel").view(m, i, h, p, 2).permute(0, 3, 2, 4, 1)
    d_norms = None if columns is None else columns.d_factors(summed(teams, "d_forms"))
    d_code = (summed(teams, "d_down"), summed(teams, "d_offset"))
    return (du, *d_code, *unweighted(d_weighted, factors, norm, d_norms))


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

    def work(scratch: Scratch, m: int, start: int, stop: int) -> None:
        scratch.encode(u[m, start:stop])
        scratch.forward(x[m, start:stop], start, stop, outs[m])
        if columns is None:
            loops.added_skip(start, stop, us[m], skips[m], outs[m])
        else:
            scratch.normalise(outs[m], start, stop, eps)
            loops.finished(start, stop, scratch.inverses, us[m], skips[m], outs[m])

    run_blocks(kernel, down.detach(), offset.detach(), columns, u.shape[1], work)
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

    def work(scratch: Scratch, m: int, start: int, stop: int) -> None:
        rows = u[m, start:stop]
        scratch.encode(rows)
        if columns is None:
            scratch.backward(gradient[m, start:stop], xs[m], start, start, stop, dxs[m])
        else:
            # The mix before its norm, made again: taken from the output, it would drown in the skip connection.
            scratch.forward(x[m, start:stop], 0, stop - start, scratch.mixed)
            scratch.normalise(gradients[m], start, stop, eps)
            scratch.backward(scratch.scaled_n, xs[m], start, start, stop, dxs[m])
            loops.d_square_out(gradients[m], start, stop, scratch.mixed, scratch.inverses)
            scratch.normalise_backward(stop - start)
        scratch.encode_backward(rows)
        torch.mm(scratch.d_code_n, scratch.lift, out=du[m, start:stop])
        loops.skip_backward(gradients[m], us[m], skips[m], start, stop, dus[m], scratch.skip_array)

    teams = run_blocks(kernel, down.detach(), offset.detach(), columns, u.shape[1], work)
    d_skip = summed(teams, "skip_sums").to(skip.dtype)
    m, p, h, _, i = factors.shape
    signed = summed(teams, "d_kernel").view(m, i, p, 2, h) * factor
    signed[:, :, :, 1].neg_()
    d_norms = None if columns is None else columns.d_factors(summed(teams, "d_forms"))
    d_factors, d_norm = unweighted(signed.permute(0, 2, 4, 3, 1), factors, norm, d_norms)
    return dx.view(s.shape), du, summed(teams, "d_down"), summed(teams, "d_offset"), d_factors, d_norm, d_skip


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


def _differentiate_in(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    # Read once: recomputed blocks hand their tensors out a single time.
    saved = ctx.saved_tensors
    *found, d_norm = mix_in_backward(gradient, *saved, ctx.eps)
    return (*found, None if saved[-1] is None else d_norm, None)


def _keep_out(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.factor, ctx.eps = inputs
    ctx.save_for_backward(*tensors)


def _differentiate_out(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    *found, d_norm, d_skip = mix_out_backward(gradient, *saved, ctx.factor, ctx.eps)
    return (*found, None if saved[-2] is None else d_norm, d_skip, None, None)


mix_in_op.register_autograd(_differentiate_in, setup_context=_keep_in)
mix_out_op.register_autograd(_differentiate_out, setup_context=_keep_out)
for _op in (mix_in_op, mix_in_backward, mix_out_op, mix_out_backward):
    torch.library.register_vmap(_op, merge_leading_axis(_op))
