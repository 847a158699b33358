"""A two-level scan in torch: √l steps inside √l chunks at once, then a carry over the chunks.

s_k = a_k s_{k−1} + b_k costs 2√l vector operations instead of l. The gradient is the same scan backwards:
μ_k = g_k + conj(a_{k+1}) μ_{k+1}, db = μ, da_k = μ_k conj(s_{k−1}).
"""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from tides.kernels.batching import merge_leading_axis


def scan_from_zero(a: Tensor, b: Tensor, reverse: bool, *, resets: bool = False) -> Tensor:
    """States (b, l, p) of the recurrence that starts from zero, in new memory.

    `resets`: a may be exactly zero where a sequence begins. What grew beyond all bounds before it then stays there
    (inf · 0 would be NaN); it costs two more operations per step.
    """
    size = max(1, math.isqrt(b.shape[1]))
    product, local = _slabs(a, size), _slabs(b, size)
    steps = list(zip(product.unbind(0), local.unbind(0), strict=True))
    for (before, state), (factor, following) in pairwise(reversed(steps) if reverse else steps):
        if resets:
            begin = factor == 0
            following += (factor * state).masked_fill_(begin, 0)
            factor.copy_((factor * before).masked_fill_(begin, 0))
        else:
            following.addcmul_(factor, state)
            factor.mul_(before)
    whole, total = steps[0 if reverse else -1]
    add = _added if _is_finite(product) else _added_where_both
    carry = _carries(whole, total, reverse, add)
    if add is _added and not _is_finite(carry):
        add = _added_where_both
        carry = _carries(whole, total, reverse, add)
    states, out = add(local, product, carry), torch.empty_like(b, memory_format=torch.contiguous_format)
    for piece, place in _pieces(out, states):
        piece.copy_(place)
    return out


def _slabs(x: Tensor, size: int) -> Tensor:
    """(step inside a chunk, problem, chunk, mode): every step is one contiguous slab; zeros fill the last chunk."""
    n, l, p = x.shape
    chunks = -(-l // size)
    slabs = x.new_empty(size, n, chunks, p)
    slabs[l - (chunks - 1) * size :, :, -1:].zero_()
    for piece, place in _pieces(x, slabs):
        place.copy_(piece)
    return slabs


def _pieces(x: Tensor, slabs: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Views of x beside their places in the slabs: all whole chunks, then what is left."""
    size, places = slabs.shape[0], slabs.permute(1, 2, 0, 3)
    whole, left = divmod(x.shape[1], size)
    yield x[:, : whole * size].unflatten(1, (whole, size)), places[:, :whole]
    if left:
        yield x[:, whole * size :], places[:, whole, :left]


def _carries(product: Tensor, state: Tensor, reverse: bool, add: Callable[..., Tensor]) -> Tensor:
    """The state (problem, chunk, mode) in which every chunk begins, from what whole chunks do."""
    carry = torch.zeros_like(state)
    parts = list(zip(product.unbind(1), state.unbind(1), carry.unbind(1), strict=True))
    for (factor, summand, before), (*_, following) in pairwise(reversed(parts) if reverse else parts):
        following.copy_(add(summand, factor, before))
    return carry


def _is_finite(x: Tensor) -> bool:
    """Whether a pass over x shows that all of it is finite; never on other devices, which would have to wait."""
    return x.device.type == "cpu" and math.isfinite(abs(x.sum().item()))


def _added(state: Tensor, product: Tensor, carry: Tensor) -> Tensor:
    return torch.addcmul(state, product, carry)


def _added_where_both(state: Tensor, product: Tensor, carry: Tensor) -> Tensor:
    # Growing modes (Re λ > 0) may overflow their product or their carry; 0 · inf is nothing here.
    return (product * carry).masked_fill_((carry == 0) | (product == 0), 0).add_(state)


@torch.library.custom_op("tides::scan_torch", mutates_args=())
def scan(a: Tensor, b: Tensor, reverse: bool) -> Tensor:
    """The scan as an operator that compilers, exporters and vmap see as one node."""
    return scan_from_zero(a, b, reverse, resets=True)


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
