"""What both mixes of a wide block share: their rows, products and norms, and the gradients of their weights."""

from typing import NamedTuple

import torch
from torch import Tensor

from tides.functional.products import pieces_wanted
from tides.kernels.triton.bilinear import pass_tile
from tides.kernels.triton.bilinear_kernels import backward_kernel, outer_kernel
from tides.kernels.triton.block_config import padded
from tides.kernels.triton.buffers import Buffer, View
from tides.kernels.triton.wide_kernels import halve_rows_kernel
from tides.kernels.triton.wide_pass import WidePass, add_up, row_tile, tile_width
from tides.kernels.triton.wide_products import Halves, RowSums, cut, half_product, room_for_halves
from tides.kernels.triton.wide_sum_kernels import largest_kernel, outer_halves_kernel
from tides.kernels.triton.wide_weights import MixWeights

# Elements of the largest temporary, and what the beginnings of parts are a multiple of.
_PART = 1 << 26
_ROWS = 64
# Rows of a program that looks for the largest numbers.
_TALL = 32


class Rows(NamedTuple):
    """Rows that are taken together."""

    start: int
    size: int

    def of(self, buffer: Buffer, width: int) -> Buffer:
        """Theirs of a buffer (n, width)."""
        numbers = 4 // buffer.dtype.itemsize
        return buffer.part(self.start * width // numbers, -(-self.size * width // numbers))


def rows_of(run: WidePass, width: int) -> list[Rows]:
    """All rows in parts whose temporaries of this width fit `_PART`."""
    most = max(_ROWS, _PART // width // _ROWS * _ROWS)
    return [Rows(start, min(most, run.rows - start)) for start in range(0, run.rows, most)]


class Units(NamedTuple):
    """A product and what it is to be multiplied with, row by row and column by column."""

    product: Buffer
    rows: Buffer
    columns: Buffer


class Mix:
    """One mix: code z̃ (n, i) with its norm's forms, `width` numbers of K for every number of the code."""

    def __init__(self, run: WidePass, name: str) -> None:
        self.run, self.plan, self.name = run, run.plan, name
        self.weights = MixWeights(run, name)
        self.width, self.code, self.planes = run.layout.width, run.layout.rank + 1, 2 * self.weights.modes
        self.norm = run.layout.mix_norm

    def part(self, name: str, rows: Rows, width: int) -> Buffer:
        """Rows of something kept; where there is no norm, any pointer for those that belong to it."""
        return rows.of(self.run.parts.get(name, self.run.parts["u"]), width)

    def codes(self, rows: Rows) -> Buffer:
        return self.part(f"{self.name} code", rows, self.code)

    def squares(self, rows: Rows, forms: Buffer | None) -> Buffer:
        """The mean square of every column, for every row (n, h), in float64."""
        codes, n, pairs = self.codes(rows), rows.size, self.code * self.code
        if forms is None:
            return codes
        outer = self._outer(codes, codes, n, self.code, torch.float64)
        squares = self.plan.space(n, self.width, dtype=torch.float64)
        matrix = View.dense(forms, self.width, pairs).mT
        self.plan.call(torch.mm, View.dense(outer, n, pairs), matrix, out=View.dense(squares, n, self.width))
        self.plan.release(outer)
        return squares

    def _outer(self, z: Buffer, x: Buffer, n: int, width: int, dtype: torch.dtype) -> Buffer:
        outer = self.plan.space(n, self.code * width, dtype=dtype)
        grid, tile = pass_tile(n, self.code, width)
        self.plan.launch(outer_kernel, grid, z, x, outer, n, **tile)
        return outer

    def halve(self, rows: Rows, x: Buffer, width: int, *, clear: bool = False) -> Halves:
        """Of x (n, a), these rows; with `clear` they become zero over padding."""
        halves = room_for_halves(self.plan, rows.size, width)
        grid, tile = row_tile(rows.size, width)
        tensors = (x, self.run.valid, *halves)
        self.plan.launch(halve_rows_kernel, grid, *tensors, rows.size, rows.start, **tile, CLEAR=clear)
        return halves

    def product(self, n: int, halves: Halves, matrix: Halves, a: int, width: int) -> Units:
        """x K (n, w) in units of x's rows and K's columns."""
        product = self.plan.space(n, width)
        x, k = View.dense(halves.parts, n, 3 * a), View.dense(matrix.parts, 3 * a, width)
        self.plan.call(half_product, x, k, View.dense(product, n, width))
        return Units(product, halves.units, matrix.units)


class Norms:
    """Gradients through the column norms of a mix, part by part; without norms there is nothing to do."""

    def __init__(self, mix: Mix, parts: list[Rows]) -> None:
        self._mix, self._plan = mix, mix.plan
        self.d_code = mix.run.room(mix.code) if mix.norm else mix.run.parts["u"]
        self.products: list[Buffer] = []
        if mix.norm:
            pairs = mix.code * mix.code
            self.products.append(mix.plan.space(mix.width, pairs))
            counts = [rows.size for rows in parts]
            self._sums = RowSums(mix.plan, counts, mix.width, pairs, self.products[0])

    def room(self, n: int) -> Buffer:
        """Twice the gradient of the mean squares goes there."""
        return self._plan.space(n, self._mix.width) if self._mix.norm else self._mix.run.parts["u"]

    def release(self, d_square: Buffer) -> None:
        if self._mix.norm:
            self._plan.release(d_square)

    def add(self, rows: Rows, d_square: Buffer) -> None:
        if not self._mix.norm:
            return
        mix, n, pairs = self._mix, rows.size, self._mix.code * self._mix.code
        work, z = self._plan.space(n, pairs), mix.codes(rows)
        change, products = View.dense(d_square, n, mix.width), View.dense(work, n, pairs)
        forms = View.dense(mix.run.parts[f"{mix.name} forms"], mix.width, pairs)
        self._plan.call(torch.mm, change, forms, out=products)
        grid, tile = pass_tile(n, mix.code, mix.code)
        tensors = (work, z, z, rows.of(self.d_code, mix.code), z)
        self._plan.launch(backward_kernel, grid, *tensors, n, **tile, WITH_DX=False)
        self._sums.add(change, products)
        self._plan.release(work)

    def finish(self) -> Buffer | None:
        """Σ_k 2 ds_k (z̃_i z̃_j)_k (h, i·i)."""
        if not self._mix.norm:
            return None
        self._sums.finish()
        return self.products[0]


class OuterSums:
    """Σ_n y_n ⊗ z̃_n ⊗ x_n (o, i·h), the gradient of a mix's K, for y (n, o) and x (n, h), or x ⊙ scale.

    Of halves, in units of columns: y₁ᵀb₁ + y₀ᵀb₁ + y₁ᵀb₀ with b = z̃ ⊗ x, cut into pieces.
    """

    def __init__(self, mix: Mix, y: Buffer, x: Buffer, scale: Buffer | None = None) -> None:
        self._mix, self._plan, run = mix, mix.plan, mix.run
        o, h, i = mix.planes, mix.width, mix.code
        self.largest, self.d_kernel = run.plan.space(o + h + i), run.plan.space(o, i * h)
        self._inputs = (y, x, x if scale is None else scale, run.parts[f"{mix.name} code"])
        self._widths = (o, h, h, i)
        self._flags = {"O": o, "A": h, "I": i, "OB": tile_width(o), "AB": tile_width(h), "SCALED": scale is not None}
        self._plan.call(Tensor.zero_, View.dense(self.largest, o + h + i))
        grid, flags = (-(-run.rows // _TALL),), self._flags | {"IB": padded(i), "BM": _TALL}
        self._plan.launch(largest_kernel, grid, *self._inputs, self.largest, run.rows, **flags)
        parts = rows_of(run, i * h)
        pieces = [pieces_wanted(1, o, rows.size, i * h) for rows in parts]
        partial, done = self._plan.space(3 * sum(pieces), o, i * h), 0
        for rows, count in zip(parts, pieces, strict=True):
            target = partial.part(3 * done * o * i * h, 3 * count * o * i * h)
            self._add(rows, count, target)
            done += count
        add_up(self._plan, partial, self.d_kernel, 3 * done, o * i * h)
        self._plan.release(partial)

    def _add(self, rows: Rows, pieces: int, target: Buffer) -> None:
        n, (o, h, _, i) = rows.size, self._widths
        halves = self._plan.space(n, 2 * o, dtype=torch.float16)
        outer, rest = (self._plan.space(n, i * h, dtype=torch.float16) for _ in range(2))
        grid, tile = row_tile(n, max(o, h))
        inputs = (rows.of(buffer, width) for buffer, width in zip(self._inputs, self._widths, strict=True))
        flags = self._flags | {"BM": tile["BM"]}
        self._plan.launch(outer_halves_kernel, grid, *inputs, self.largest, halves, outer, rest, n, **flags)
        both, first, size = View.dense(halves, n, 2 * o), 2 * pieces * o * i * h, o * i * h
        products = View.dense(target.part(0, first), pieces, 2 * o, i * h)
        self._plan.call(half_product, cut(both, pieces).mT, cut(View.dense(outer, n, i * h), pieces), products)
        products = View.dense(target.part(first, pieces * size), pieces, o, i * h)
        one = cut(both.columns(0, o), pieces).mT
        self._plan.call(half_product, one, cut(View.dense(rest, n, i * h), pieces), products)
        self._plan.release(halves, outer, rest)

    def release(self) -> None:
        self._plan.release(self.largest, self.d_kernel)
