"""Bilinear forms out_o = Σ_i Σ_a z_i x_a K[i, a, o] of many rows: one matrix product and one pass over a temporary.

Either the outer product z ⊗ x, of width i·a, comes first and is multiplied with K, or the product x K, of width i·o,
comes first and is summed with the weights z_i. The narrower temporary wins, because these passes wait for memory. The
backward pass makes the temporary again.
"""

import torch
from torch import Tensor

from tides.functional.products import row_product


def bilinear_form(kernel: Tensor, i: int) -> "OuterFirst | ProductFirst":
    """The form of a kernel (m, i·a, o), in the narrower of both orders."""
    by_code = kernel.unflatten(1, (i, -1))
    return OuterFirst(by_code) if by_code.shape[2] <= by_code.shape[3] else ProductFirst(by_code)


class OuterFirst:
    """(z ⊗ x) @ K for a kernel (m, i, a, o); it collects the kernel's gradient."""

    def __init__(self, kernel: Tensor) -> None:
        self._sizes = kernel.shape[1:3]
        self._matrix = kernel.flatten(1, 2)
        self._change: Tensor | None = None

    def apply(self, z: Tensor, x: Tensor, out: Tensor) -> Tensor:
        """z (m, n, i) and x (m, n, a) to `out` (m, n, o)."""
        return torch.bmm(outer(z, x), self._matrix, out=out)

    def backward(self, gradient: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of z and x."""
        d_outer = (gradient @ self._matrix.mT).unflatten(-1, self._sizes)
        # Products and sums along the small axes: batched products of such tiny matrices are far slower.
        work = d_outer * x.unsqueeze(-2)
        dz = work.sum(-1)
        dx = d_outer.mul_(z.unsqueeze(-1)).sum(-2)
        torch.mul(z.unsqueeze(-1), x.unsqueeze(-2), out=work)
        self._change = added(self._change, row_product(work.flatten(-2).mT, gradient))
        return dz, dx

    def d_kernel(self) -> Tensor:
        """Σ of all backward passes (m, i, a, o)."""
        assert self._change is not None, "d_kernel is asked for after a backward pass"
        d_kernel: Tensor = self._change.unflatten(1, self._sizes)
        return d_kernel


class ProductFirst:
    """Σ_i z_i (x @ K')_i with K' (m, a, i·o), K in another order; otherwise like `OuterFirst`."""

    def __init__(self, kernel: Tensor) -> None:
        self._sizes = kernel.shape[1], kernel.shape[3]
        self._matrix = kernel.transpose(1, 2).flatten(2)
        self._change: Tensor | None = None

    def apply(self, z: Tensor, x: Tensor, out: Tensor) -> Tensor:
        product = (x @ self._matrix).unflatten(-1, self._sizes)
        return torch.sum(product.mul_(z.unsqueeze(-1)), -2, out=out)

    def backward(self, gradient: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        product = (x @ self._matrix).unflatten(-1, self._sizes)
        dz = product.mul_(gradient.unsqueeze(-2)).sum(-1)
        torch.mul(z.unsqueeze(-1), gradient.unsqueeze(-2), out=product)
        d_product = product.flatten(-2)
        self._change = added(self._change, row_product(x.mT, d_product))
        return dz, d_product @ self._matrix.mT

    def d_kernel(self) -> Tensor:
        assert self._change is not None, "d_kernel is asked for after a backward pass"
        d_kernel: Tensor = self._change.unflatten(2, self._sizes)
        return d_kernel.transpose(1, 2)


def outer(z: Tensor, x: Tensor) -> Tensor:
    """z ⊗ x, flat: (m, n, i·a)."""
    return (z.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)


def added(total: Tensor | None, change: Tensor) -> Tensor:
    """A sum over blocks of steps, which begins with the first of them."""
    return change if total is None else total.add_(change)
