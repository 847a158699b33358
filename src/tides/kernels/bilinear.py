"""Bilinear forms out_o = Σ_i Σ_a z_i x_a K[i, a, o] of many rows: one matrix product and one pass over a temporary.

Either the outer product z ⊗ x, of width i·a, comes first and is multiplied with K, or the product x K, of width i·o,
comes first and is summed with the weights z_i. The narrower temporary wins, because these passes wait for memory. The
backward pass makes the temporary again.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from tides.functional.products import row_product


class Passes(NamedTuple):
    """What a form does to its temporaries between the matrix products; rows lead with the axes (m, n)."""

    # z ⊗ x, flat and in the given precision, from z (m, n, i) and x (m, n, a).
    outer: Callable[[Tensor, Tensor, torch.dtype], Tensor]
    # Σ_i z_i t[i] to the last argument, from z and t (m, n, i, a).
    weighted_sum: Callable[[Tensor, Tensor, Tensor], Tensor]
    # Σ_a t[i, a] x_a from t, z and x; t becomes z ⊗ x.
    inner: Callable[[Tensor, Tensor, Tensor], Tensor]
    # The same, and Σ_i z_i t[i, a] to the last argument.
    both_sums: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    # 1/√(s + eps) from the float64 s, eps and x; x times it to the last argument.
    inverse_root: Callable[[Tensor, float, Tensor, Tensor], Tensor]
    # The product of three tensors, element by element.
    triple_product: Callable[[Tensor, Tensor, Tensor], Tensor]


def _outer(z: Tensor, x: Tensor, dtype: torch.dtype) -> Tensor:
    return (z.to(dtype).unsqueeze(-1) * x.to(dtype).unsqueeze(-2)).flatten(-2)


def _weighted_sum(z: Tensor, product: Tensor, out: Tensor) -> Tensor:
    return torch.sum(product.mul_(z.unsqueeze(-1)), -2, out=out)


# Products and sums along the small axes: batched products of such tiny matrices are far slower.
def _inner(work: Tensor, z: Tensor, x: Tensor) -> Tensor:
    dz = work.mul_(x.unsqueeze(-2)).sum(-1)
    torch.mul(z.unsqueeze(-1), x.unsqueeze(-2), out=work)
    return dz


def _both_sums(work: Tensor, z: Tensor, x: Tensor, dx: Tensor) -> Tensor:
    dz = (work * x.unsqueeze(-2)).sum(-1)
    torch.sum(work.mul_(z.unsqueeze(-1)), -2, out=dx)
    torch.mul(z.unsqueeze(-1), x.unsqueeze(-2), out=work)
    return dz


def _inverse_root(square: Tensor, eps: float, x: Tensor, out: Tensor) -> Tensor:
    inverse = square.add_(eps).rsqrt_().to(x.dtype)
    torch.mul(x, inverse, out=out)
    return inverse


def _triple_product(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return (a * b).mul_(c)


# By name, because operators take names; `kernels.triton` adds its own.
PASSES = {"torch": Passes(_outer, _weighted_sum, _inner, _both_sums, _inverse_root, _triple_product)}


def bilinear_form(kernel: Tensor, i: int, passes: Passes) -> "OuterFirst | ProductFirst":
    """The form of a kernel (m, i·a, o), in the narrower of both orders."""
    by_code = kernel.unflatten(1, (i, -1))
    order = OuterFirst if by_code.shape[2] <= by_code.shape[3] else ProductFirst
    return order(by_code, passes)


class OuterFirst:
    """(z ⊗ x) @ K for a kernel (m, i, a, o); it collects the kernel's gradient."""

    def __init__(self, kernel: Tensor, passes: Passes) -> None:
        self._passes = passes
        self._sizes = kernel.shape[1:3]
        self._matrix = kernel.flatten(1, 2)
        self._change: Tensor | None = None

    def apply(self, z: Tensor, x: Tensor, out: Tensor) -> Tensor:
        """z (m, n, i) and x (m, n, a) to `out` (m, n, o)."""
        return torch.bmm(self._passes.outer(z, x, x.dtype), self._matrix, out=out)

    def backward(self, gradient: Tensor, z: Tensor, x: Tensor, dx: Tensor) -> Tensor:
        """Gradients of z, returned, and of x, to `dx`."""
        work = (gradient @ self._matrix.mT).unflatten(-1, self._sizes)
        dz = self._passes.both_sums(work, z, x, dx)
        self._change = added(self._change, row_product(work.flatten(-2).mT, gradient))
        return dz

    def d_kernel(self) -> Tensor:
        """Σ of all backward passes (m, i, a, o)."""
        assert self._change is not None, "d_kernel is asked for after a backward pass"
        d_kernel: Tensor = self._change.unflatten(1, self._sizes)
        return d_kernel


class ProductFirst:
    """Σ_i z_i (x @ K')_i with K' (m, a, i·o), K in another order; otherwise like `OuterFirst`."""

    def __init__(self, kernel: Tensor, passes: Passes) -> None:
        self._passes = passes
        self._sizes = kernel.shape[1], kernel.shape[3]
        self._matrix = kernel.transpose(1, 2).flatten(2)
        self._change: Tensor | None = None

    def apply(self, z: Tensor, x: Tensor, out: Tensor) -> Tensor:
        return self._passes.weighted_sum(z, self._product(x), out)

    def backward(self, gradient: Tensor, z: Tensor, x: Tensor, dx: Tensor) -> Tensor:
        work = self._product(x)
        dz = self._passes.inner(work, z, gradient)
        d_product = work.flatten(-2)
        self._change = added(self._change, row_product(x.mT, d_product))
        torch.bmm(d_product, self._matrix.mT, out=dx)
        return dz

    def _product(self, x: Tensor) -> Tensor:
        product: Tensor = (x @ self._matrix).unflatten(-1, self._sizes)
        return product

    def d_kernel(self) -> Tensor:
        assert self._change is not None, "d_kernel is asked for after a backward pass"
        d_kernel: Tensor = self._change.unflatten(2, self._sizes)
        return d_kernel.transpose(1, 2)


def added(total: Tensor | None, change: Tensor) -> Tensor:
    """A sum over blocks of steps, which begins with the first of them."""
    return change if total is None else total.add_(change)
