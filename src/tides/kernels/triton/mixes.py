"""`mix_in` and `mix_out` on the GPU, registered as torch operators."""

from typing import Any

import torch
import triton
from torch import Tensor

from tides.functional.mixes import LowRankMix, Mix, mix_factors
from tides.kernels import mixes
from tides.kernels.batching import stack_leading_axis
from tides.kernels.derivatives import differentiable_once
from tides.kernels.triton.bilinear import FUSED
from tides.kernels.triton.mix_kernels import backward_kernel, forward_kernel, root_kernel, weight_kernel
from tides.kernels.triton.precision import WIDEST, matrix_precision

# Launch shapes measured on an H200: rows of a block of steps, rows of a weight gradient's block, ranges of steps that
# are summed apart, and how many z̃_i one program of the weight gradient serves.
_ROWS = 64
_WEIGHT_ROWS = 32
_SPLITS = 264
_GROUP = 4


def mix_in(u: Tensor, mix: Mix, eps: float) -> Tensor:
    """`functional.mix_in`; tiles of wide heads exceed a program's registers, and matrix products win there."""
    if not isinstance(mix, LowRankMix) or _is_wide(mix):
        return mixes.mix_in(u, mix, eps, FUSED)
    drive: Tensor = mix_op(u.reshape(-1, u.shape[-1]), _code(u, mix), mix_factors(mix), mix.norm, eps, False)
    return torch.view_as_complex(drive.view(*u.shape[:-1], -1, 2))


def mix_out(s: Tensor, u: Tensor, mix: Mix, eps: float) -> Tensor:
    """`functional.mix_out`."""
    if not isinstance(mix, LowRankMix) or _is_wide(mix):
        return mixes.mix_out(s, u, mix, eps, FUSED)
    planes = torch.view_as_real(s.resolve_conj()).reshape(-1, 2 * s.shape[-1])
    y: Tensor = mix_op(planes, _code(u, mix), mix_factors(mix), mix.norm, eps, True)
    return y.view(u.shape)


def _is_wide(mix: LowRankMix) -> bool:
    return bool(max(2 * mix.up.shape[0], *mix.up.shape[1:]) > WIDEST)


def _code(u: Tensor, mix: LowRankMix) -> Tensor:
    """z (steps, r); the kernels append the constant 1."""
    rows = u.reshape(-1, u.shape[-1])
    return rows if mix.down is None else torch.nn.functional.linear(rows, mix.down, mix.down_bias)


class _Plan:
    """Padded weights, sizes and flags shared by the launches of one call."""

    def __init__(self, code: Tensor, factors: Tensor, norm: Tensor | None, eps: float, output: bool) -> None:
        p, h, _, i = factors.shape
        self.device = factors.device
        self.rows, self.width, self.outer = code.shape[0], h, 2 * p
        hb, ob, ib = (max(16, triton.next_power_of_2(size)) for size in (h, 2 * p, i))
        self.sizes = (self.rows, i - 1, h, 2 * p)
        self.flags: dict[str, Any] = {
            "I": i,
            "IB": ib,
            "HB": hb,
            "OB": ob,
            "NORM": norm is not None,
            "OUTPUT": output,
            "PRECISION": matrix_precision(),
        }
        weighted = factors if norm is None else factors * norm[:, None, None, None]
        kernel = weighted.permute(3, 1, 0, 2).reshape(i, h, 2 * p)
        self.kernel = torch.nn.functional.pad(kernel, (0, ob - 2 * p, 0, hb - h)).contiguous()
        self.root = self.kernel
        if norm is not None:
            self.root = torch.zeros(i, ib, hb, device=self.device)
            pb = triton.next_power_of_2(2 * p)
            root_kernel[(h,)](factors.contiguous(), self.root, 2 * p, h, I=i, HB=hb, PB=pb, IB=ib)
        self.grid = (triton.cdiv(self.rows, _ROWS),)
        narrow = max(hb, ob) <= 32
        self.forward = self.flags | {"BM": _ROWS, "num_warps": 2 if narrow else 4}
        self.backward = self.flags | {"BM": _ROWS, "num_warps": 2 if narrow and not output else 4}


@torch.library.custom_op("tides::mix_triton", mutates_args=())
def mix_op(x: Tensor, code: Tensor, factors: Tensor, norm: Tensor | None, eps: float, output: bool) -> Tensor:
    """x is u (n, h), or the planes of s (n, 2p) when `output`; code (n, r); factors (p, h, 2, r+1)."""
    plan = _Plan(code, factors, norm, eps, output)
    out = torch.empty(plan.rows, plan.width if output else plan.outer, device=plan.device)
    forward_kernel[plan.grid](
        x.contiguous(), code.contiguous(), plan.kernel, plan.root, out, *plan.sizes, eps, **plan.forward
    )
    return out


@torch.library.custom_op("tides::mix_triton_backward", mutates_args=())
def mix_backward(
    gradient: Tensor, x: Tensor, code: Tensor, factors: Tensor, norm: Tensor | None, eps: float, output: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, code, factors and norm."""
    plan = _Plan(code, factors, norm, eps, output)
    gradient, x, code = gradient.contiguous(), x.contiguous(), code.contiguous()
    dx, d_code = torch.empty_like(x), torch.empty_like(code)
    left = torch.empty(plan.rows, plan.width, device=plan.device)
    d_square = left if norm is None else torch.empty_like(left)
    backward_kernel[plan.grid](
        gradient, x, code, plan.kernel, plan.root, dx, d_code, left, d_square, *plan.sizes, eps, **plan.backward
    )
    p, h, _, i = factors.shape
    per_split = triton.cdiv(triton.cdiv(plan.rows, _SPLITS), _WEIGHT_ROWS) * _WEIGHT_ROWS
    splits = triton.cdiv(plan.rows, per_split)
    groups = triton.cdiv(i, _GROUP)
    d_kernel = torch.empty(splits, groups * _GROUP, plan.flags["HB"], plan.flags["OB"], device=plan.device)
    d_gram = torch.empty(splits, groups * _GROUP, plan.flags["HB"], plan.flags["IB"], device=plan.device)
    right = x if output else gradient
    shape = plan.flags | {"BM": _WEIGHT_ROWS, "GROUP": _GROUP}
    weight_kernel[(groups, splits)](left, right, code, d_square, d_kernel, d_gram, *plan.sizes, per_split, **shape)
    d_weighted = d_kernel.sum(0)[:i, :h, : 2 * p].view(i, h, p, 2).permute(2, 1, 3, 0)
    if norm is None:
        return dx, d_code, d_weighted.contiguous(), factors.new_zeros(0)
    gram = d_gram.sum(0)[:i, :h, :i]  # (i, h, j)
    # Σ_j 𝓑[p, h, c, j] dG[h, i, j], as one product per column h.
    by_column = factors.permute(1, 0, 2, 3).reshape(h, 2 * p, i) @ gram.permute(1, 2, 0)
    d_factors = d_weighted * norm[:, None, None, None] + by_column.view(h, p, 2, i).transpose(0, 1) * (2 / p)
    return dx, d_code, d_factors.contiguous(), (d_weighted * factors).sum((1, 2, 3))


@mix_op.register_fake
def _(x, code, factors, norm, eps, output):  # type: ignore[no-untyped-def]
    return x.new_empty(x.shape[0], factors.shape[1] if output else 2 * factors.shape[0])


@mix_backward.register_fake
def _(gradient, x, code, factors, norm, eps, output):  # type: ignore[no-untyped-def]
    d_norm = factors.new_empty(0) if norm is None else torch.empty_like(norm)
    return (*(torch.empty_like(t, memory_format=torch.contiguous_format) for t in (x, code, factors)), d_norm)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, code, factors, norm, ctx.eps, ctx.output = inputs
    ctx.save_for_backward(x, code, factors, norm)


@differentiable_once
def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    x, code, factors, norm = ctx.saved_tensors
    dx, d_code, d_factors, d_norm = mix_backward(gradient, x, code, factors, norm, ctx.eps, ctx.output)
    return dx, d_code, d_factors, None if norm is None else d_norm, None, None


mix_op.register_autograd(_gradients, setup_context=_setup)


@mix_op.register_vmap
def _(info, in_dims, x, code, factors, norm, eps, output):  # type: ignore[no-untyped-def]
    """Stacked models have their own weights: matrix products with a leading axis of models."""
    x, code, factors, norm = (
        stack_leading_axis(value, axis, info.batch_size)
        for value, axis in zip((x, code, factors, norm), in_dims, strict=False)
    )
    code = torch.cat([code, torch.ones_like(code[..., :1])], dim=-1)
    if output:
        return mixes.mix_out_op(x.unflatten(-1, (-1, 2)), code, factors, norm, eps, FUSED, True)[0], 0
    return mixes.mix_in_op(x, code, factors, norm, eps, FUSED, True)[0], 0
