"""The column norms of a mix, block by block: 1/√(z̃ᵀ G_h z̃ + eps) for every column h, and their gradients."""

import torch
from torch import Tensor

from tides.functional.products import row_product
from tides.kernels.bilinear import PASSES, Passes, added
from tides.kernels.column_norm import column_forms, d_column_forms


def mix_norms(factors: Tensor, norm: Tensor | None, eps: float, passes: Passes) -> "OuterNorms | TriangleNorms | None":
    """Those of factors (m, p, h, 2, i); on a CPU half of the products are left out, elsewhere passes are few."""
    if norm is None:
        return None
    plain = passes is PASSES["torch"] and factors.device.type == "cpu"
    return TriangleNorms(factors, eps) if plain else OuterNorms(factors, eps, passes)


class OuterNorms:
    """All products z̃_i z̃_j, in passes over rows of i·i."""

    def __init__(self, factors: Tensor, eps: float, passes: Passes) -> None:
        m, _, h, _, i = factors.shape
        self._factors, self._eps, self._passes = factors, eps, passes
        self._forms = column_forms(factors).view(m, i * i, h)
        self._slopes = -self._forms.mT.to(factors.dtype)
        self._products: Tensor | None = None

    def divide(self, x: Tensor, code: Tensor, out: Tensor) -> Tensor:
        """x (m, n, h) divided by the rms of its column to `out`; the inverse rms."""
        square = self._passes.outer(code, code, torch.float64) @ self._forms
        return self._passes.inverse_root(square, self._eps, x, out)

    def backward(self, gradient: Tensor, divided: Tensor, inverse: Tensor, code: Tensor) -> Tensor:
        """Gradient of the code, given that of x, what `divide` made of x, and the inverse rms."""
        # −2 times the gradient of the mean square; the number is made up for where there are fewer elements.
        d_square = self._passes.triple_product(gradient, divided, inverse)
        work = (d_square @ self._slopes).unflatten(-1, (code.shape[-1], -1))
        d_code = self._passes.inner(work, code, code)
        self._products = added(self._products, row_product(work.flatten(-2).mT, d_square).double())
        return d_code

    def d_factors(self) -> Tensor:
        """Gradient of the factors, the sum over all blocks."""
        assert self._products is not None, "d_factors is asked for after a backward pass"
        i = self._factors.shape[-1]
        return d_column_forms(self._products.mul(-0.5).unflatten(1, (i, i)), self._factors)


class TriangleNorms:
    """The products with i ≤ j alone, steps innermost: loops over nine numbers are slow on a CPU."""

    def __init__(self, factors: Tensor, eps: float) -> None:
        i, forms = factors.shape[-1], column_forms(factors)  # (m, i, i, h)
        self._factors, self._eps = factors, eps
        self._first, self._second = torch.triu_indices(i, i, device=factors.device)
        twice = torch.where(self._first == self._second, 1.0, 2.0).to(forms).unsqueeze(-1)
        self._forms = (forms[:, self._first, self._second] * twice).mT.contiguous()
        self._slopes = -forms.flatten(1, 2).to(factors.dtype)
        self._products: Tensor | None = None

    def divide(self, x: Tensor, code: Tensor, out: Tensor) -> Tensor:
        """As in `OuterNorms`."""
        precise = code.mT.to(torch.float64, memory_format=torch.contiguous_format)
        square = (self._forms @ self._monomials(precise)).add_(self._eps).mT
        inverse = square.to(x.dtype, memory_format=torch.contiguous_format).rsqrt_()
        torch.mul(x, inverse, out=out)
        return inverse

    def backward(self, gradient: Tensor, divided: Tensor, inverse: Tensor, code: Tensor) -> Tensor:
        """As in `OuterNorms`."""
        by_step = code.mT.contiguous()
        d_square = (gradient * divided).mul_(inverse)  # times −2
        work = (self._slopes @ d_square.mT).unflatten(1, (code.shape[-1], -1))
        self._products = added(self._products, (self._monomials(by_step) @ d_square).double())
        d_code: Tensor = work.mul_(by_step.unsqueeze(1)).sum(2).mT
        return d_code

    def _monomials(self, code: Tensor) -> Tensor:
        """z̃_i z̃_j with i ≤ j of a code (m, i, n)."""
        return code.index_select(1, self._first).mul_(code.index_select(1, self._second))

    def d_factors(self) -> Tensor:
        assert self._products is not None, "d_factors is asked for after a backward pass"
        m, _, h, _, i = self._factors.shape
        whole = self._products.new_empty(m, i, i, h)
        whole[:, self._first, self._second] = whole[:, self._second, self._first] = self._products * -0.5
        return d_column_forms(whole, self._factors)
