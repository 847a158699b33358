"""v_k = B_k u_k and y_k = Re(C_k s_k) with low-rank or full heads, a block of steps at a time.

Both are bilinear in a code z̃ and a vector x: out_o = Σ_i Σ_a z̃_i x_a K[i, a, o]. The temporaries of a block live in
cache only; the backward pass makes them again, but for the inverse norms of columns, which need float64.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tides import functional as tf
from tides.functional.mixes import LowRankMix, Mix
from tides.kernels.batching import merge_leading_axis
from tides.kernels.bilinear import PASSES, bilinear_form
from tides.kernels.derivatives import differentiable_once
from tides.kernels.mix_norms import mix_norms
from tides.kernels.mixing import (
    d_drive_kernel,
    d_readout_kernel,
    drive_kernel,
    mix_arguments,
    readout_kernel,
    unweighted,
)

# Elements of the largest temporary of a block: about the size of a core's cache, or large enough to fill a GPU.
_BLOCK_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 26}


def mix_in(u: Tensor, mix: Mix, eps: float, passes: str = "torch") -> Tensor:
    """`functional.mix_in`; heads without a code are plain matrix products already. `passes` names one of `PASSES`."""
    if not isinstance(mix, LowRankMix):
        return tf.mix_in(u, mix, eps)
    drive: Tensor = mix_in_op(*mix_arguments(u, u, mix), eps, passes, torch.is_grad_enabled())[0]
    return torch.view_as_complex(drive.view(*u.shape[:-1], -1, 2))


def mix_out(s: Tensor, u: Tensor, mix: Mix, eps: float, passes: str = "torch") -> Tensor:
    """`functional.mix_out`."""
    if not isinstance(mix, LowRankMix):
        return tf.mix_out(s, u, mix, eps)
    arguments = mix_arguments(torch.view_as_real(s.resolve_conj()), u, mix)
    y: Tensor = mix_out_op(*arguments, eps, passes, torch.is_grad_enabled())[0]
    return y.view(u.shape)


def _blocks(code: Tensor, factors: Tensor) -> Iterator[slice]:
    """Slices of the steps axis, one at least, for which the temporaries fit `_BLOCK_ELEMENTS`."""
    m, p, h, _, i = factors.shape
    widest = m * i * max(min(2 * p, h), i)
    rows = max(64, _BLOCK_ELEMENTS.get(code.device.type, 1 << 22) // widest)
    return (slice(start, start + rows) for start in range(0, max(1, code.shape[1]), rows))


def _like(x: Tensor) -> Tensor:
    """Memory for a tensor like x, without gaps."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _inverses(code: Tensor, factors: Tensor, norm: Tensor | None, kept: bool) -> Tensor:
    """Memory for the inverse norms of every step and column, or for none."""
    m, n, _ = code.shape
    return code.new_empty(m, n if kept and norm is not None else 0, factors.shape[2])


@torch.library.custom_op("tides::mix_in_torch", mutates_args=())
def mix_in_op(
    u: Tensor, code: Tensor, factors: Tensor, norm: Tensor | None, eps: float, passes: str, keep: bool
) -> tuple[Tensor, Tensor]:
    """u (m, n, h), code (m, n, i), factors (m, p, h, 2, i), norm (m, p) → drive (m, n, 2p), re and im interleaved.

    With it come the inverse norms (m, n, h), if they are to be kept for a backward pass.
    """
    form = bilinear_form(drive_kernel(factors, norm), code.shape[-1], PASSES[passes])
    norms = mix_norms(factors, norm, eps, PASSES[passes])
    out, inverse = u.new_empty(*u.shape[:2], 2 * factors.shape[1]), _inverses(code, factors, norm, keep)
    for rows in _blocks(code, factors):
        x, z = u[:, rows], code[:, rows]
        if norms is not None:
            divided = _like(x)
            found = norms.divide(x, z, divided)
            x = divided
            if keep:
                inverse[:, rows] = found
        form.apply(z, x, out[:, rows])
    return out, inverse


@torch.library.custom_op("tides::mix_in_torch_backward", mutates_args=())
def mix_in_backward(
    gradient: Tensor,
    inverse: Tensor,
    u: Tensor,
    code: Tensor,
    factors: Tensor,
    norm: Tensor | None,
    eps: float,
    passes: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of u, code, factors and norm."""
    form = bilinear_form(drive_kernel(factors, norm), code.shape[-1], PASSES[passes])
    norms = mix_norms(factors, norm, eps, PASSES[passes])
    du, d_code = _like(u), _like(code)
    for rows in _blocks(code, factors):
        x, z = u[:, rows], code[:, rows]
        if norms is None:
            d_code[:, rows] = form.backward(gradient[:, rows], z, x, du[:, rows])
        else:
            rho = inverse[:, rows]
            divided = x * rho
            dz = form.backward(gradient[:, rows], z, divided, du[:, rows])
            dx = du[:, rows].mul_(rho)
            torch.add(dz, norms.backward(dx, divided, rho, z), out=d_code[:, rows])
    d_weighted = d_drive_kernel(form.d_kernel(), factors)
    return (du, d_code, *unweighted(d_weighted, factors, norm, None if norms is None else norms.d_factors()))


@torch.library.custom_op("tides::mix_out_torch", mutates_args=())
def mix_out_op(
    s: Tensor, code: Tensor, factors: Tensor, norm: Tensor | None, eps: float, passes: str, keep: bool
) -> tuple[Tensor, Tensor]:
    """s (m, n, p, 2), code (m, n, i), factors (m, p, h, 2, i), norm (m, p) → Re(C s) (m, n, h), and as `mix_in_op`."""
    form = bilinear_form(readout_kernel(factors, norm), code.shape[-1], PASSES[passes])
    norms = mix_norms(factors, norm, eps, PASSES[passes])
    x = s.flatten(-2)
    out, inverse = s.new_empty(*s.shape[:2], factors.shape[2]), _inverses(code, factors, norm, keep)
    for rows in _blocks(code, factors):
        y = form.apply(code[:, rows], x[:, rows], out[:, rows])
        if norms is not None:
            found = norms.divide(y, code[:, rows], y)
            if keep:
                inverse[:, rows] = found
    return out, inverse


@torch.library.custom_op("tides::mix_out_torch_backward", mutates_args=())
def mix_out_backward(
    gradient: Tensor,
    y: Tensor,
    inverse: Tensor,
    s: Tensor,
    code: Tensor,
    factors: Tensor,
    norm: Tensor | None,
    eps: float,
    passes: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of s, code, factors and norm; y is the output."""
    form = bilinear_form(readout_kernel(factors, norm), code.shape[-1], PASSES[passes])
    norms = mix_norms(factors, norm, eps, PASSES[passes])
    x = s.flatten(-2)
    dx, d_code = _like(x), _like(code)
    for rows in _blocks(code, factors):
        g, z = gradient[:, rows], code[:, rows]
        if norms is None:
            d_code[:, rows] = form.backward(g, z, x[:, rows], dx[:, rows])
        else:
            rho = inverse[:, rows]
            divided = g * rho
            dz = form.backward(divided, z, x[:, rows], dx[:, rows])
            torch.add(dz, norms.backward(divided, y[:, rows], rho, z), out=d_code[:, rows])
    d_weighted = d_readout_kernel(form.d_kernel(), factors)
    spread = None if norms is None else norms.d_factors()
    return (dx.view_as(s), d_code, *unweighted(d_weighted, factors, norm, spread))


@mix_in_op.register_fake
def _(u, code, factors, norm, eps, passes, keep):  # type: ignore[no-untyped-def]
    return u.new_empty(u.shape[0], u.shape[1], factors.shape[1] * 2), _inverses(code, factors, norm, keep)


@mix_out_op.register_fake
def _(s, code, factors, norm, eps, passes, keep):  # type: ignore[no-untyped-def]
    return s.new_empty(s.shape[0], s.shape[1], factors.shape[2]), _inverses(code, factors, norm, keep)


def _fake_backward(*arguments):  # type: ignore[no-untyped-def]
    x, code, factors, norm, *_ = arguments[-6:]
    d_norm = factors.new_empty(factors.shape[0], 0) if norm is None else torch.empty_like(norm)
    return (_like(x), _like(code), _like(factors), d_norm)


mix_in_backward.register_fake(_fake_backward)
mix_out_backward.register_fake(_fake_backward)


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.eps, ctx.passes, _ = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1], *tensors)


def _keep_output_too(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.eps, ctx.passes, _ = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*output, *tensors)


def _with(backward: Any) -> Any:
    @differentiable_once
    def run(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        dx, d_code, d_factors, d_norm = backward(gradient.contiguous(), *saved, ctx.eps, ctx.passes)
        return dx, d_code, d_factors, None if saved[-1] is None else d_norm, None, None, None

    return run


mix_in_op.register_autograd(_with(mix_in_backward), setup_context=_keep_inputs)
mix_out_op.register_autograd(_with(mix_out_backward), setup_context=_keep_output_too)
for _op in (mix_in_op, mix_in_backward, mix_out_op, mix_out_backward):
    torch.library.register_vmap(_op, merge_leading_axis(_op))
