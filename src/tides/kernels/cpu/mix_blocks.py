"""One thread's part in a mix: blocks of steps that stay in cache, matrix products in torch, loops between them.

out_o = Σ_i z̃_i Σ_a x_a K[i, a, o] with codes z̃ = u A + c: one matrix product of x with K (a × i·o), then a short sum
over i. The backward pass needs one product for the gradients of x and z̃ and one for K's, and goes over each block's
outer product once. Nothing but u and x is kept: codes are made again.
"""

from typing import Any

import torch
from torch import Tensor

from tides.kernels.column_norm import column_forms, d_column_forms
from tides.kernels.cpu import mix_loops as loops
from tides.kernels.cpu.threads import run_jobs, spans

# Elements of a block's outer products: with what surrounds them they fit the second-level cache of a core.
_BLOCK_ELEMENTS = 1 << 18


class Scratch:
    """One thread's memory for one problem: views for blocks of n steps, made once, and the sums over all blocks.

    `kernel` is (i·a, o), codes are u A + c with A (h, i); `forms` (c, h) if the columns are normalised.
    """

    def __init__(self, kernel: Tensor, down: Tensor, offset: Tensor, forms: Tensor | None, rows: int) -> None:
        size = offset.shape[0]
        self.size, self.inner, self.outer = size, kernel.shape[0] // size, kernel.shape[1]
        self.down, self.offset, self.lift = down, offset, down.t()
        self.code, self.d_code = (kernel.new_empty(rows, size) for _ in range(2))
        self.codes, self.d_codes = self.code.numpy(), self.d_code.numpy()
        self.d_down, self.d_offset = torch.zeros_like(down), torch.zeros_like(offset)
        self.skip_sums = torch.zeros(kernel.shape[1], dtype=torch.float64)
        self.skip_array = self.skip_sums.numpy()
        self.kernel, self.transposed, self.forms = kernel, kernel.t(), forms
        self.products = kernel.new_empty(rows * size * max(self.inner, self.outer))
        self.d_kernel = torch.zeros_like(kernel)
        # (a, i·o): the product with x comes first, the sum over i behind it.
        self.by_input = kernel.view(size, self.inner, self.outer).transpose(0, 1).reshape(self.inner, -1)
        if forms is not None:
            monomials, width = forms.shape
            self.slopes = forms.to(kernel.dtype)
            # Monomials have the steps innermost, where loops over them are long.
            self.double, self.square = forms.new_empty(monomials, rows), forms.new_empty(rows, width)
            self.single, self.weighted = kernel.new_empty(monomials, rows), kernel.new_empty(monomials * rows)
            self.inverse, self.scaled = (kernel.new_empty(rows, width) for _ in range(2))
            self.mixed = kernel.new_empty(rows, self.outer).numpy()
            self.lines, self.d_lines = (kernel.new_empty(size, rows).numpy() for _ in range(2))
            self.d_forms = torch.zeros_like(self.slopes)

    def resize(self, n: int) -> None:
        """Views for blocks of n steps, for torch's products and for compiled loops."""
        self.code_n, self.d_code_n = self.code[:n], self.d_code[:n]
        self.outer_products = self.products[: n * self.size * self.inner].view(n, -1)
        self.d_outer = self.outer_products.view(n, self.size, -1).numpy()
        self.partial = self.products[: n * self.size * self.outer].view(n, -1)
        self.partials = self.partial.view(n, self.size, -1).numpy()
        if self.forms is not None:
            self.monomials_64, self.monomials = self.double[:, :n].t(), self.single[:, :n]
            self.squares, self.scaled_n, self.inverse_n = self.square[:n], self.scaled[:n], self.inverse[:n]
            self.weighted_n = self.weighted[: self.slopes.shape[0] * n].view(-1, n)
            self.loop_arrays = tuple(x.numpy() for x in (self.double, self.single))
            self.norm_arrays = tuple(x.numpy() for x in (self.square, self.inverse, self.scaled))
            self.inverses, self.weights = self.inverse.numpy(), self.weighted_n.numpy()

    def encode(self, u: Tensor) -> None:
        """`code` ← u A + c for a block."""
        torch.addmm(self.offset, u, self.down, out=self.code_n)

    def encode_backward(self, u: Tensor) -> None:
        """Gradients of A and c from `d_code`; that of u is `d_code` · Aᵀ."""
        self.d_down.addmm_(u.t(), self.d_code_n)
        self.d_offset += self.d_code_n.sum(0)

    def normalise(self, x: Any, start: int, stop: int, eps: float) -> None:
        """`scaled` ← x · inverse for a block, `inverse` ← the inverse rms of every column."""
        loops.monomials(self.codes, stop - start, self.lines, *self.loop_arrays)
        torch.mm(self.monomials_64, self.forms, out=self.squares)  # type: ignore[arg-type]
        square, inverse, scaled = self.norm_arrays
        loops.normalised(x, start, stop, square, eps, inverse, scaled)

    def normalise_backward(self, n: int) -> None:
        """Adds the norms' share to `d_code`; `inverse` holds the gradient of the mean squares by now."""
        self.d_forms.addmm_(self.monomials, self.inverse_n)
        torch.mm(self.slopes, self.inverse_n.t(), out=self.weighted_n)
        loops.monomials_backward(n, self.lines, self.weights, self.d_lines, self.d_codes)

    def forward(self, x: Tensor, start: int, stop: int, out: Any) -> None:
        """out = K(code, x) for a block, x being the block's own."""
        torch.mm(x, self.by_input, out=self.partial)
        loops.contracted(self.codes, start, stop, self.partials, out)

    def backward(self, gradient: Tensor, x: Any, offset: int, start: int, stop: int, d_x: Any) -> None:
        """`d_code` and the gradient of x (which begins at row `offset`) for a block; the kernel's is collected."""
        torch.mm(gradient, self.transposed, out=self.outer_products)
        loops.outer_backward(self.codes, start, stop, x, offset, self.d_outer, self.d_codes, d_x)
        self.d_kernel.addmm_(self.outer_products.t(), gradient)


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


def run_blocks(
    kernel: Tensor, down: Tensor, offset: Tensor, columns: Columns | None, n: int, work: Any
) -> list[list[Scratch]]:
    """`work(scratch, m, start, stop)` for every block of every problem m; the scratches hold the sums, per problem."""
    problems, size = offset.shape
    rows = max(64, _BLOCK_ELEMENTS // max(kernel.shape[1], size * kernel.shape[2]))
    teams = []
    for m in range(problems):
        forms = None if columns is None else columns.forms[m]
        parts = [
            (Scratch(kernel[m], down[m], offset[m], forms, rows), span) for span in spans(n, torch.get_num_threads())
        ]

        def run(part: tuple[Scratch, tuple[int, int]], m: int = m) -> None:
            scratch, (first, last) = part
            # Threads of their own start with gradients on, and products into given memory refuse to record them.
            with torch.no_grad():
                for start in range(first, last, rows):
                    stop = min(start + rows, last)
                    if start == first or stop - start < rows:
                        scratch.resize(stop - start)
                    work(scratch, m, start, stop)

        run_jobs(run, parts)
        teams.append([scratch for scratch, _ in parts])
    return teams


def summed(teams: list[list[Scratch]], name: str) -> Tensor:
    """What every team of threads collected under `name`, one row per problem."""
    return torch.stack([torch.stack([getattr(scratch, name) for scratch in team]).sum(0) for team in teams])
