"""A two-level scan in torch: √l steps inside √l chunks at once, then a carry over the chunks.

s_k = a_k s_{k−1} + b_k costs 2√l vector operations instead of l. The gradient is the same scan backwards:
μ_k = g_k + conj(a_{k+1}) μ_{k+1}, db = μ, da_k = μ_k conj(s_{k−1}).
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tides.kernels.batching import merge_leading_axis


def scan_from_zero(a: Tensor, b: Tensor, reverse: bool, *, resets: bool = False) -> Tensor:
    """States (b, l, p) of the recurrence that starts from zero, in new memory.

    `resets`: a may be exactly zero where a sequence begins. What grew beyond all bounds before it then stays there
    (inf · 0 would be NaN); it costs two more operations per step.
    """
    if reverse:
        return scan_from_zero(a.flip(1), b.flip(1), False, resets=resets).flip(1)
    n, l, p = b.shape
    size = max(1, math.isqrt(l))
    chunks = -(-l // size)
    if chunks * size != l:
        a, b = F.pad(a, (0, 0, 0, chunks * size - l)), F.pad(b, (0, 0, 0, chunks * size - l))
    # (step inside a chunk, problem, chunk, mode): every step is one contiguous slab.
    product = _slabs(a, chunks)
    local = _slabs(b, chunks)
    for k in range(1, size):
        if resets:
            begin = product[k] == 0
            local[k] += (product[k] * local[k - 1]).masked_fill_(begin, 0)
            product[k] = (product[k] * product[k - 1]).masked_fill_(begin, 0)
        else:
            local[k].addcmul_(product[k], local[k - 1])
            product[k].mul_(product[k - 1])
    carry = torch.zeros_like(local[0])
    for j in range(1, chunks):
        carry[:, j] = _continued(product[-1, :, j - 1], carry[:, j - 1]) + local[-1, :, j - 1]
    local += _continued(product, carry)
    return local.permute(1, 2, 0, 3).reshape(n, chunks * size, p)[:, :l]


def _slabs(x: Tensor, chunks: int) -> Tensor:
    n, l, p = x.shape
    # Not `contiguous`, which gives the caller's own memory where the order happens to fit.
    return x.view(n, chunks, l // chunks, p).permute(2, 0, 1, 3).clone(memory_format=torch.contiguous_format)


def _continued(product: Tensor, carry: Tensor) -> Tensor:
    # Growing modes (Re λ > 0) may overflow their product or their carry; 0 · inf is nothing here.
    return (product * carry).masked_fill_((carry == 0) | (product == 0), 0)


@torch.library.custom_op("tides::scan_torch", mutates_args=())
def scan(a: Tensor, b: Tensor, reverse: bool) -> Tensor:
    """The scan as an operator that compilers, exporters and vmap see as one node."""
    return scan_from_zero(a.contiguous(), b.contiguous(), reverse, resets=True).contiguous()


@scan.register_fake
def _(a: Tensor, b: Tensor, reverse: bool) -> Tensor:
    return torch.empty_like(b, memory_format=torch.contiguous_format)


def previous(s: Tensor, reverse: bool) -> Tensor:
    """The state before each step: zero at the beginning."""
    zero = torch.zeros_like(s[:, :1])
    return torch.cat([s[:, 1:], zero], dim=1) if reverse else torch.cat([zero, s[:, :-1]], dim=1)


def adjoint_coefficients(a: Tensor, reverse: bool) -> Tensor:
    """conj(a_{k+1}), with which μ is the scan of the gradients in the other direction."""
    zero = torch.zeros_like(a[:, :1])
    later = torch.cat([zero, a[:, :-1]], 1) if reverse else torch.cat([a[:, 1:], zero], 1)
    return later.conj().resolve_conj()


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    a, s = ctx.saved_tensors
    mu: Tensor = scan(adjoint_coefficients(a, ctx.reverse), gradient, not ctx.reverse)
    da = mu * previous(s, ctx.reverse).conj()
    return da if a.is_complex() else da.real, mu, None


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, _, ctx.reverse = inputs
    ctx.save_for_backward(a, output)


scan.register_autograd(_backward, setup_context=_setup)
torch.library.register_vmap(scan, merge_leading_axis(scan))
