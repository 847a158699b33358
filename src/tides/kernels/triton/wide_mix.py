"""What both mixes of a wide block share: their rows, products and norms, and the gradients of their weights."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from tides.functional.products import pieces_wanted
from tides.kernels.triton.bilinear import pass_tile
from tides.kernels.triton.bilinear_kernels import backward_kernel, outer_kernel
from tides.kernels.triton.block_config import padded
from tides.kernels.triton.buffers import BYTES, Buffer, View
from tides.kernels.triton.wide_kernels import halve_rows_kernel
from tides.kernels.triton.wide_pass import WidePass, add_up, row_tile, tile_width
from tides.kernels.triton.wide_products import Halves, RowSums, cut, half_product, room_for_halves
from tides.kernels.triton.wide_sum_kernels import largest_kernel, outer_halves_kernel
from tides.kernels.triton.wide_weights import MixWeights

# Elements of the largest temporary, and what the beginnings of parts are a multiple of. Smaller parts are slower.
_PART = 1 << 25
_ROWS = 64
# Rows of a program that looks for the largest numbers.
_TALL = 32


class Rows(NamedTuple):
    """Rows that are taken together."""

    start: int
    size: int

    def of(self, buffer: Buffer, width: int) -> Buffer:
        """Theirs of a buffer (n, width)."""
        start, size = (rows * width * buffer.dtype.itemsize for rows in self)
        return buffer.part(start // BYTES, -(-size // BYTES))


def rows_of(run: WidePass, width: int) -> list[Rows]:
    """All rows in parts whose temporaries of this width fit `_PART`, as even as can be."""
    most = max(_ROWS, _PART // width // _ROWS * _ROWS)
    even = -(-run.rows // -(-run.rows // most))
    size = -(-even // _ROWS) * _ROWS
    return [Rows(start, min(size, run.rows - start)) for start in range(0, run.rows, size)]


class Product(NamedTuple):
    """A product of some rows, and what it is to be multiplied with, row by row and column by column."""

    values: Buffer
    rows: Buffer
    columns: Buffer


class Mix:
    """One mix: its sizes, its weights, and what it makes of all rows."""

    def __init__(self, run: WidePass, name: str) -> None:
        self.run, self.plan, self.name = run, run.plan, name
        self.weights = MixWeights(run, name)
        self.width, self.code, self.planes = run.layout.width, run.layout.rank + 1, 2 * self.weights.modes
        self.norm = run.layout.mix_norm

    def kept(self, name: str) -> Buffer:
        """Something kept; where there is no norm, any pointer for those that belong to it."""
        return self.run.parts.get(name, self.run.parts["u"])

    def part(self, name: str, rows: Rows, width: int) -> Buffer:
        return rows.of(self.kept(name), width)

    def codes(self, rows: Rows) -> Buffer:
        return self.part(f"{self.name} code", rows, self.code)

    def squares(self) -> Buffer:
        """The mean square of every column, for every row (n, h), in float64."""
        plan, pairs, forms = self.plan, self.code * self.code, self.weights.forms()
        squares = plan.space(self.run.rows, self.width, dtype=torch.float64)
        matrix = View.dense(forms, self.width, pairs).mT
        for rows in rows_of(self.run, 2 * pairs):
            n, codes = rows.size, self.codes(rows)
            outer = plan.space(n, pairs, dtype=torch.float64)
            grid, tile = pass_tile(n, self.code, self.code)
            plan.launch(outer_kernel, grid, codes, codes, outer, n, **tile)
            target = View.dense(rows.of(squares, self.width), n, self.width)
            plan.call(torch.mm, View.dense(outer, n, pairs), matrix, out=target)
            plan.release(outer)
        plan.release(forms)
        return squares

    def halve(self, x: Buffer, width: int, *, clear: bool = False) -> Halves:
        """Of x (n, a); with `clear` it becomes zero over padding."""
        n = self.run.rows
        halves = room_for_halves(self.plan, n, width)
        grid, tile = row_tile(n, width)
        self.plan.launch(halve_rows_kernel, grid, x, self.run.valid, *halves, n, **tile, CLEAR=clear)
        return halves

    def products(self, halves: Halves, matrix: Halves, a: int, width: int) -> Iterator[tuple[Rows, Product]]:
        """x K (n, w) in units of x's rows and K's columns, part by part; matrix and halves are released at the end."""
        k = View.dense(matrix.parts, 3 * a, width)
        for rows in rows_of(self.run, width):
            values = self.plan.space(rows.size, width)
            x = View.dense(rows.of(halves.parts, 3 * a), rows.size, 3 * a)
            self.plan.call(half_product, x, k, View.dense(values, rows.size, width))
            yield rows, Product(values, rows.of(halves.units, 1), matrix.units)
            self.plan.release(values)
        self.plan.release(*matrix, *halves)


class NormGradients:
    """Gradients through the column norms of a mix, from twice those of the mean squares (n, h): of the code, and
    Σ_k 2 ds_k (z̃_i z̃_j)_k (h, i·i) for the weights."""

    def __init__(self, mix: Mix, d_square: Buffer) -> None:
        plan, h, pairs, parts = mix.plan, mix.width, mix.code * mix.code, rows_of(mix.run, mix.code * mix.code)
        self.d_code, self.products = mix.run.room(mix.code), plan.space(h, pairs)
        sums = RowSums(plan, [rows.size for rows in parts], h, pairs, self.products)
        forms = View.dense(mix.run.parts[f"{mix.name} forms"], h, pairs)
        for rows in parts:
            n, work, z = rows.size, plan.space(rows.size, pairs), mix.codes(rows)
            change, products = View.dense(rows.of(d_square, h), n, h), View.dense(work, n, pairs)
            plan.call(torch.mm, change, forms, out=products)
            grid, tile = pass_tile(n, mix.code, mix.code)
            tensors = (work, z, z, rows.of(self.d_code, mix.code), z)
            plan.launch(backward_kernel, grid, *tensors, n, **tile, WITH_DX=False)
            sums.add(change, products)
            plan.release(work)
        sums.finish()


class OuterSums:
    """Σ_n y_n ⊗ z̃_n ⊗ x_n (o, i·h), the gradient of a mix's K, for y (n, o) and x (n, h), or x ⊙ scale.

    Of halves, in units of columns: y₁ᵀb₁ + y₀ᵀb₁ + y₁ᵀb₀ with b = z̃ ⊗ x, cut into pieces.
    """

    def __init__(self, mix: Mix, y: Buffer, x: Buffer, scale: Buffer | None = None) -> None:
        self._plan, run = mix.plan, mix.run
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


def weight_gradients(mix: Mix, sums: OuterSums, norms: NormGradients | None, d_packed: Buffer) -> None:
    """Those of the mix's base, up and norm; what they are made of is released."""
    products = None if norms is None else norms.products
    mix.weights.gradients(sums.d_kernel, sums.largest, products, d_packed)
    mix.plan.release(sums.largest, sums.d_kernel, *([] if products is None else [products]))
