"""v_k = B_k u_k and y_k = Re(C_k s_k) with low-rank or full heads, a block of steps at a time.

Both are bilinear in a code z̃ and a vector x: out_o = Σ_i Σ_a z̃_i x_a K[i, a, o], one matrix product of the outer
product z̃ ⊗ x with K. The outer products of a block live in cache only; the backward pass makes them again. The norm
of every column h is a quadratic form in z̃ (float64, see `functional.mixes`).
"""

from typing import Any

import torch
from torch import Tensor

from tides import functional as tf
from tides.functional.mixes import LowRankMix, Mix, mix_code, mix_factors
from tides.kernels.batching import merge_leading_axis

# Elements of the largest temporary of a block: about the size of a core's cache, or large enough to fill a GPU.
_BLOCK_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 26}


def mix_in(u: Tensor, mix: Mix, eps: float) -> Tensor:
    """`functional.mix_in`; heads without a code are plain matrix products already."""
    if not isinstance(mix, LowRankMix):
        return tf.mix_in(u, mix, eps)
    drive: Tensor = mix_in_op(_rows(u), _rows(mix_code(u, mix)), mix_factors(mix)[None], _weight(mix), eps)
    return torch.view_as_complex(drive.view(*u.shape[:-1], -1, 2))


def mix_out(s: Tensor, u: Tensor, mix: Mix, eps: float) -> Tensor:
    """`functional.mix_out`."""
    if not isinstance(mix, LowRankMix):
        return tf.mix_out(s, u, mix, eps)
    pairs = torch.view_as_real(s.resolve_conj())
    y = mix_out_op(_rows(pairs, 2), _rows(mix_code(u, mix)), mix_factors(mix)[None], _weight(mix), eps)
    result: Tensor = y.view(u.shape)
    return result


def _rows(x: Tensor, tail: int = 1) -> Tensor:
    """(1, steps, …): one problem whose steps are all rows."""
    return x.reshape(1, -1, *x.shape[-tail:])


def _weight(mix: LowRankMix) -> Tensor | None:
    return None if mix.norm is None else mix.norm[None]


class _Block:
    """Slices of the steps axis small enough for `_BLOCK_ELEMENTS`."""

    def __init__(self, code: Tensor, factors: Tensor) -> None:
        m, p, h, _, i = factors.shape
        widest = m * i * max(2 * p, h)
        self.rows = max(64, _BLOCK_ELEMENTS.get(code.device.type, 1 << 22) // widest)
        self.total = code.shape[1]

    def __iter__(self):  # type: ignore[no-untyped-def]
        return (slice(start, start + self.rows) for start in range(0, self.total, self.rows))


def _outer(code: Tensor, x: Tensor) -> Tensor:
    """z̃ ⊗ x, flat: (m, n, i·a)."""
    return (code.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)


def _bilinear_backward(gradient: Tensor, code: Tensor, x: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of code, x and kernel (m, i·a, o)."""
    d_outer = (gradient @ kernel.mT).unflatten(-1, (code.shape[-1], x.shape[-1]))
    d_code = torch.matmul(d_outer, x.unsqueeze(-1)).squeeze(-1)
    d_x = torch.matmul(code.unsqueeze(-2), d_outer).squeeze(-2)
    return d_code, d_x, _outer(code, x).mT @ gradient


class _ColumnNorm:
    """1/√(mean_p |B_k[p, h]|² + eps) for a block of steps, and its gradients."""

    def __init__(self, factors: Tensor, eps: float) -> None:
        m, self.p, self.h, _, self.i = factors.shape
        self.factors, self.eps = factors.double(), eps
        gram = torch.einsum("mphci,mphcj->mihj", self.factors, self.factors) / self.p
        self.gram = gram.reshape(m, self.i, self.h * self.i)
        self.d_gram = torch.zeros(m, self.h, self.i, self.i, dtype=torch.float64, device=factors.device)

    def __call__(self, code: Tensor) -> tuple[Tensor, Tensor]:
        """The inverse rms (m, n, h), and G z̃ (m, n, h, i) for the gradient."""
        code = code.double()
        pressed = (code @ self.gram).unflatten(-1, (self.h, self.i))
        return torch.rsqrt((pressed @ code.unsqueeze(-1)).squeeze(-1) + self.eps), pressed

    def backward(self, d_inverse: Tensor, inverse: Tensor, pressed: Tensor, code: Tensor) -> Tensor:
        """Gradient of the code; that of the factors is collected for `d_factors`."""
        d_square = -0.5 * inverse.pow(3) * d_inverse.double()
        code = code.double()
        weighted = (d_square.unsqueeze(-1) * code.unsqueeze(-2)).flatten(-2)  # (m, n, h·i)
        self.d_gram += (weighted.mT @ code).unflatten(1, (self.h, self.i))
        return 2 * (d_square.unsqueeze(-2) @ pressed).squeeze(-2)

    def d_factors(self) -> Tensor:
        return torch.einsum("mphcj,mhij->mphci", self.factors, self.d_gram) * (2 / self.p)


@torch.library.custom_op("tides::mix_in_torch", mutates_args=())
def mix_in_op(u: Tensor, code: Tensor, factors: Tensor, norm: Tensor | None, eps: float) -> Tensor:
    """u (m, n, h), code (m, n, i), factors (m, p, h, 2, i), norm (m, p) → drive (m, n, 2p), re and im interleaved."""
    m, p, h, _, i = factors.shape
    kernel = _weighted(factors, norm).permute(0, 4, 2, 1, 3).reshape(m, i * h, p * 2)
    column = None if norm is None else _ColumnNorm(factors, eps)
    out = u.new_empty(m, u.shape[1], p * 2)
    for rows in _Block(code, factors):
        x, z = u[:, rows], code[:, rows]
        if column is not None:
            x = x * column(z)[0].to(x.dtype)
        out[:, rows] = _outer(z, x) @ kernel
    return out


@torch.library.custom_op("tides::mix_in_torch_backward", mutates_args=())
def mix_in_backward(
    gradient: Tensor, u: Tensor, code: Tensor, factors: Tensor, norm: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of u, code, factors and norm."""
    m, p, h, _, i = factors.shape
    kernel = _weighted(factors, norm).permute(0, 4, 2, 1, 3).reshape(m, i * h, p * 2)
    column = None if norm is None else _ColumnNorm(factors, eps)
    du, d_code, d_kernel = torch.empty_like(u), torch.empty_like(code), torch.zeros_like(kernel)
    for rows in _Block(code, factors):
        x, z = u[:, rows], code[:, rows]
        if column is None:
            d_code[:, rows], du[:, rows], change = _bilinear_backward(gradient[:, rows], z, x, kernel)
        else:
            inverse, pressed = column(z)
            scaled = inverse.to(x.dtype)
            dz, d_scaled, change = _bilinear_backward(gradient[:, rows], z, x * scaled, kernel)
            du[:, rows] = d_scaled * scaled
            d_code[:, rows] = dz + column.backward(d_scaled * x, inverse, pressed, z).to(x.dtype)
        d_kernel += change
    d_weighted = d_kernel.view(m, i, h, p, 2).permute(0, 3, 2, 4, 1)
    return (du, d_code, *_unweighted(d_weighted, factors, norm, column))


@torch.library.custom_op("tides::mix_out_torch", mutates_args=())
def mix_out_op(s: Tensor, code: Tensor, factors: Tensor, norm: Tensor | None, eps: float) -> Tensor:
    """s (m, n, p, 2), code (m, n, i), factors (m, p, h, 2, i), norm (m, p) → Re(C s) (m, n, h)."""
    m, _, h, _, _ = factors.shape
    kernel = _readout_kernel(factors, norm)
    column = None if norm is None else _ColumnNorm(factors, eps)
    x = s.flatten(-2)
    out = s.new_empty(m, s.shape[1], h)
    for rows in _Block(code, factors):
        y = _outer(code[:, rows], x[:, rows]) @ kernel
        out[:, rows] = y if column is None else y * column(code[:, rows])[0].to(y.dtype)
    return out


@torch.library.custom_op("tides::mix_out_torch_backward", mutates_args=())
def mix_out_backward(
    gradient: Tensor, s: Tensor, code: Tensor, factors: Tensor, norm: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of s, code, factors and norm."""
    m, p, h, _, i = factors.shape
    kernel = _readout_kernel(factors, norm)
    column = None if norm is None else _ColumnNorm(factors, eps)
    x = s.flatten(-2)
    dx, d_code, d_kernel = torch.empty_like(x), torch.empty_like(code), torch.zeros_like(kernel)
    for rows in _Block(code, factors):
        g, z = gradient[:, rows], code[:, rows]
        if column is None:
            d_code[:, rows], dx[:, rows], change = _bilinear_backward(g, z, x[:, rows], kernel)
        else:
            inverse, pressed = column(z)
            plain = _outer(z, x[:, rows]) @ kernel
            dz, dx[:, rows], change = _bilinear_backward(g * inverse.to(g.dtype), z, x[:, rows], kernel)
            d_code[:, rows] = dz + column.backward(g * plain, inverse, pressed, z).to(g.dtype)
        d_kernel += change
    signed = d_kernel.view(m, i, p, 2, h) * _CONJUGATE.to(s)[:, None]
    return (dx.view_as(s), d_code, *_unweighted(signed.permute(0, 2, 4, 3, 1), factors, norm, column))


# Re(C s) = C_re s_re − C_im s_im.
_CONJUGATE = torch.tensor([1.0, -1.0])


def _weighted(factors: Tensor, norm: Tensor | None) -> Tensor:
    return factors if norm is None else factors * norm[:, :, None, None, None]


def _readout_kernel(factors: Tensor, norm: Tensor | None) -> Tensor:
    m, p, h, _, i = factors.shape
    signed = _weighted(factors, norm) * _CONJUGATE.to(factors)[:, None]
    return signed.permute(0, 4, 1, 3, 2).reshape(m, i * p * 2, h)


def _unweighted(
    d_weighted: Tensor, factors: Tensor, norm: Tensor | None, column: _ColumnNorm | None
) -> tuple[Tensor, Tensor]:
    """Gradients of factors and norm from that of their product and from the column norm."""
    if norm is None or column is None:
        return d_weighted.contiguous(), factors.new_zeros(factors.shape[0], 0)
    d_factors = d_weighted * norm[:, :, None, None, None] + column.d_factors().to(factors.dtype)
    return d_factors.contiguous(), (d_weighted * factors).sum((2, 3, 4))


@mix_in_op.register_fake
def _(u, code, factors, norm, eps):  # type: ignore[no-untyped-def]
    return u.new_empty(u.shape[0], u.shape[1], factors.shape[1] * 2)


@mix_out_op.register_fake
def _(s, code, factors, norm, eps):  # type: ignore[no-untyped-def]
    return s.new_empty(s.shape[0], s.shape[1], factors.shape[2])


def _fake_backward(gradient, x, code, factors, norm, eps):  # type: ignore[no-untyped-def]
    d_norm = factors.new_empty(factors.shape[0], 0) if norm is None else torch.empty_like(norm)
    contiguous = torch.contiguous_format
    return (*(torch.empty_like(leaf, memory_format=contiguous) for leaf in (x, code, factors)), d_norm)


mix_in_backward.register_fake(_fake_backward)
mix_out_backward.register_fake(_fake_backward)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, code, factors, norm, ctx.eps = inputs
    ctx.save_for_backward(x, code, factors, norm)


def _with(backward: Any) -> Any:
    def run(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, code, factors, norm = ctx.saved_tensors
        dx, d_code, d_factors, d_norm = backward(gradient.contiguous(), x, code, factors, norm, ctx.eps)
        return dx, d_code, d_factors, None if norm is None else d_norm, None

    return run


for _op, _back in ((mix_in_op, mix_in_backward), (mix_out_op, mix_out_backward)):
    _op.register_autograd(_with(_back), setup_context=_setup)
    torch.library.register_vmap(_op, merge_leading_axis(_op))
    torch.library.register_vmap(_back, merge_leading_axis(_back))
