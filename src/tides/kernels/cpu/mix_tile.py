"""One thread's part in a mix: blocks of steps that stay in cache, matrix products in torch, loops between them.

out_o = Σ_i z̃_i Σ_a x_a K[i, a, o]: one matrix product of K (i·o × a) with x, then a short sum over i. The backward pass
needs one product for the gradients of x and z̃ and one for K's, and goes over each block's outer product once.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from tides.kernels.column_norm import column_forms, d_column_forms
from tides.kernels.cpu import mix_loops as loops
from tides.kernels.cpu.planes import Planes
from tides.kernels.cpu.threads import run_jobs, spans

# Elements of a block's outer products: with what surrounds them they fit the second-level cache of a core.
_BLOCK_ELEMENTS = 1 << 18


class MixTile:
    """The matrices of one mix, its scratch for blocks of n steps, and its sums over all blocks.

    Codes have length `size`, inputs `inner` and outputs `outer`; `columns` is their number h if they are normalised.
    """

    def __init__(self, size: int, inner: int, outer: int, columns: int, planes: Planes) -> None:
        self.size, self.inner, self.outer, self.columns = size, inner, outer, columns
        monomials = size * (size + 1) // 2
        doubles = 2 if planes.dtype == torch.float32 else 1
        # One memory for everything large: norms are found before the mix and differentiated behind it.
        needed = [size * max(inner, outer)] + ([doubles * (monomials + columns), 2 * monomials] if columns else [])
        memory = planes.buffer(max(needed))
        self._partial, self._outer = planes.share(memory, size * outer), planes.share(memory, size * inner)
        if columns:
            self._double = planes.share(memory.view(torch.float64), monomials + columns)
            self._single = planes.share(memory, 2 * monomials)
            self.inverse = planes.add(columns)
        self._monomials, self._all = monomials, monomials + columns

    def load(self, kernel: Tensor, forms: Tensor | None) -> None:
        """Take the kernel (i·a, o) and the norms' forms (c, h), and begin new sums."""
        self.kernel = kernel
        self._by_input = kernel.view(self.size, self.inner, self.outer).mT.reshape(-1, self.inner)
        self.d_kernel = torch.zeros_like(kernel)
        if forms is not None:
            self._slopes, self._forms = forms.to(kernel.dtype), forms.t().contiguous()
            self.d_forms = torch.zeros_like(self._slopes)

    def forward(self, code: Any, x: Tensor, out: Any) -> None:
        """out (o, n) = K(code, x) for code (i, n) and x (a, n)."""
        torch.mm(self._by_input, x, out=self._partial.tensor)
        loops.contracted(code, self._partial.array, out)

    def backward(self, gradient: Tensor, turned: Tensor, code: Any, x: Any, d_code: Any, d_x: Any) -> None:
        """`d_code` and `d_x` from the gradient (o, n) of the output and its transpose; the kernel's is collected."""
        torch.mm(self.kernel, gradient, out=self._outer.tensor)
        loops.outer_backward(code, x, self._outer.array, d_code, d_x)
        self.d_kernel.addmm_(self._outer.tensor, turned)

    def find_norms(self, code: Any, eps: float) -> None:
        """`inverse` (h, n) ← the inverse rms of every column."""
        monomials, square = self._double.rows(0, self._monomials), self._double.rows(self._monomials, self._all)
        loops.monomials(code, monomials.array)
        torch.mm(self._forms, monomials.tensor, out=square.tensor)
        loops.inverse_roots(square.array, eps, self.inverse.array)

    def norms_backward(self, code: Any, d_code: Any) -> None:
        """Adds the norms' share to `d_code`; `inverse` holds the gradient of the mean squares by now."""
        monomials, weighted = (self._single.rows(k * self._monomials, (k + 1) * self._monomials) for k in range(2))
        loops.monomials(code, monomials.array)
        self.d_forms.addmm_(monomials.tensor, self.inverse.turned)
        torch.mm(self._slopes, self.inverse.tensor, out=weighted.tensor)
        loops.monomials_backward(code, weighted.array, d_code)


class Columns:
    """The column norms' forms over the monomials z̃_i z̃_j with i ≤ j, which occur once: (m, c, h)."""

    def __init__(self, factors: Tensor) -> None:
        size = factors.shape[-1]
        self.factors, self.first, self.second = factors, *torch.triu_indices(size, size)
        once = torch.where(self.first == self.second, 1.0, 2.0).unsqueeze(-1)
        self.forms = column_forms(factors)[:, self.first, self.second] * once

    def d_factors(self, d_forms: Tensor) -> Tensor:
        m, _, h, _, i = self.factors.shape
        products = d_forms.new_empty(m, i, i, h)
        products[:, self.first, self.second] = products[:, self.second, self.first] = d_forms
        return d_column_forms(products, self.factors)


class Scratch(Protocol):
    """What one thread needs for one problem."""

    planes: Planes


def block_steps(widest: int) -> int:
    """Steps of a block whose outer products have `widest` numbers per step: rows begin at vectors."""
    return max(64, _BLOCK_ELEMENTS // widest // 16 * 16)


S = TypeVar("S", bound=Scratch)


def run_blocks(make: Callable[[], S], steps: int, n: int, work: Callable[[S, int, int], None]) -> list[S]:
    """`work(scratch, start, stop)` for every block of [0, n); the scratches hold the sums.

    Where blocks begin does not depend on the number of threads.
    """
    blocks = [(start, min(start + steps, n)) for start in range(0, n, steps)]
    parts = [(make(), span) for span in spans(len(blocks), torch.get_num_threads())]

    def run(part: tuple[S, tuple[int, int]]) -> None:
        scratch, span = part
        # Threads of their own start with gradients on, and products into given memory refuse to record them.
        with torch.no_grad():
            for start, stop in blocks[slice(*span)]:
                scratch.planes.resize(stop - start)
                work(scratch, start, stop)

    run_jobs(run, parts)
    return [scratch for scratch, _ in parts]
