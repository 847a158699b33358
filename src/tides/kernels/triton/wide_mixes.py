"""Both mixes of a wide block: matrix products with the passes of `wide_kernels` between them.

Each is Σ_i z̃_i (x K)_i, with x = u/rms and K (h, i·2p) for the drive, x = s and K (2p, i·h) for the readout, which is
divided by its rms afterwards. Rows are taken in parts where the temporaries would be too large. Gradients of K are
products of z̃ ⊗ x that sum over all rows, in float32.
"""

from typing import NamedTuple

import torch

from tides.kernels.triton.bilinear import pass_tile
from tides.kernels.triton.bilinear_kernels import backward_kernel, outer_kernel
from tides.kernels.triton.buffers import Buffer, View
from tides.kernels.triton.wide_kernels import (
    both_sums_kernel,
    divide_kernel,
    drive_backward_kernel,
    drive_kernel,
    halve_rows_kernel,
    readout_backward_kernel,
    readout_kernel,
)
from tides.kernels.triton.wide_pass import Shares, WidePass, row_tile
from tides.kernels.triton.wide_products import Halves, RowSums, half_product, room_for_halves
from tides.kernels.triton.wide_weights import MixWeights

# Elements of the largest temporary, and what the beginnings of parts are a multiple of.
_PART = 1 << 26
_ROWS = 64


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

    def outer(self, rows: Rows, x: Buffer, width: int) -> Buffer:
        """z̃ ⊗ x (n, i·a)."""
        return self._outer(self.codes(rows), x, rows.size, width, torch.float32)

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


def drive(run: WidePass) -> None:
    """v (n, 2p) of u (n, h) and z̃ (n, i), zero over padding, and the inverse rms (n, h)."""
    plan, mix = run.plan, Mix(run, "drive")
    h, planes, width = mix.width, mix.planes, mix.code * mix.planes
    matrix = mix.weights.matrix(by_plane=False, signed=False)
    forms = mix.weights.forms() if mix.norm else None
    for rows in rows_of(run, width):
        n, u = rows.size, mix.part("u", rows, h)
        if forms is None:
            halves = mix.halve(rows, u, h)
        else:
            square, halves = mix.squares(rows, forms), room_for_halves(plan, n, h)
            grid, tile = row_tile(n, h)
            plan.launch(
                divide_kernel, grid, square, u, mix.part("drive rms", rows, h), *halves, n, **tile, EPS=run.config.eps
            )
            plan.release(square)
        found = mix.product(n, halves, matrix, h, width)
        grid, tile = row_tile(n, planes)
        tensors = (*found, mix.codes(rows), run.valid, mix.part("drive", rows, planes))
        plan.launch(drive_kernel, grid, *tensors, n, rows.start, **tile, I=mix.code, **run.has_valid)
        plan.release(found.product, *halves)
    plan.release(*matrix, *([] if forms is None else [forms]))


def drive_backward(run: WidePass, gradient: Buffer, du: Buffer, d_packed: Buffer) -> tuple[Buffer, Buffer]:
    """Gradients of the code, and of the code through the norm, from that of v; that of u is added to `du`."""
    plan, mix = run.plan, Mix(run, "drive")
    h, planes, width = mix.width, mix.planes, mix.code * mix.width
    d_code, d_kernel, parts = run.room(mix.code), plan.space(width, planes), rows_of(run, width)
    norms = Norms(mix, parts)
    matrix = mix.weights.matrix(by_plane=True, signed=False)
    sums = RowSums(plan, [rows.size for rows in parts], width, planes, d_kernel)
    for rows in parts:
        n, g = rows.size, rows.of(gradient, planes)
        halves = mix.halve(rows, g, planes, clear=run.shape.masked)
        found = mix.product(n, halves, matrix, planes, width)
        d_square = norms.room(n)
        grid, tile = row_tile(n, h)
        inputs = (*found, mix.codes(rows), mix.part("u", rows, h), mix.part("drive rms", rows, h))
        outputs = (rows.of(d_code, mix.code), rows.of(du, h), d_square)
        plan.launch(drive_backward_kernel, grid, *inputs, *outputs, n, **tile, I=mix.code, NORM=mix.norm)
        sums.add(View.dense(found.product, n, width), View.dense(g, n, planes))
        plan.release(found.product, *halves)
        norms.add(rows, d_square)
        norms.release(d_square)
    sums.finish()
    plan.release(*matrix)
    mix.weights.gradients(d_kernel, norms.finish(), d_packed)
    plan.release(d_kernel, *norms.products)
    return d_code, norms.d_code


def readout(run: WidePass) -> Buffer:
    """From the planes s (n, 2p): y (n, h), the inverse rms and Re(C s) are kept; drop(GELU(y)) is returned."""
    plan, mix = run.plan, Mix(run, "readout")
    h, planes, width = mix.width, mix.planes, mix.code * mix.width
    activated = run.room(h)
    matrix = mix.weights.matrix(by_plane=True, signed=True)
    forms = mix.weights.forms() if mix.norm else None
    for rows in rows_of(run, width):
        n, square = rows.size, mix.squares(rows, forms)
        halves = mix.halve(rows, mix.part("states", rows, planes), planes)
        found = mix.product(n, halves, matrix, planes, width)
        grid, tile = row_tile(n, h)
        inputs = (*found, mix.codes(rows), square, mix.part("u", rows, h), run.weight("skip"), run.valid, run.seed)
        outputs = (*(mix.part(name, rows, h) for name in ("readout rms", "mixed", "y")), rows.of(activated, h))
        plan.launch(
            readout_kernel, grid, *inputs, *outputs, n, rows.start, run.config.factor, **tile, I=mix.code,
            EPS=run.config.eps, NORM=mix.norm, **run.has_valid, DROP=run.config.dropout,
        )  # fmt: skip
        plan.release(found.product, *halves, *([square] if mix.norm else []))
    plan.release(*matrix, *([] if forms is None else [forms]))
    return activated


def readout_backward(
    run: WidePass, shares: Shares, d_activated: Buffer, du: Buffer, d_packed: Buffer
) -> tuple[Buffer, Buffer, Buffer]:
    """Gradients of s and of the code, and of the code through the norm; that of u through skip goes to `du`.

    With g = dy/rms and K_i = K[:, i]ᵀ, the products g K_i lead to both ds = Σ_i z̃_i g K_i and dz̃_i = s · g K_i.
    """
    plan, mix = run.plan, Mix(run, "readout")
    n, h, planes, width = run.rows, mix.width, mix.planes, mix.code * mix.planes
    parts = rows_of(run, width)
    ds, d_code, d_kernel = run.room(planes), run.room(mix.code), plan.space(planes, mix.code * h)
    norms = Norms(mix, parts)
    divided, d_square, halves = run.room(h), norms.room(n), room_for_halves(plan, n, h)
    whole = Rows(0, n)
    inputs = (d_activated, run.parts["y"], run.parts["u"], run.weight("skip"), run.valid, run.seed)
    norm_inputs = (mix.part("readout rms", whole, h), mix.part("mixed", whole, h))
    outputs = (divided, *halves, du, d_square, shares.of("skip"))
    grid, tile = shares.tile(h)
    plan.launch(
        readout_backward_kernel, grid, *inputs, *norm_inputs, *outputs, n, shares.width, run.config.factor, **tile,
        NORM=mix.norm, **run.has_valid, DROP=run.config.dropout,
    )  # fmt: skip
    matrix = mix.weights.matrix(by_plane=False, signed=True)
    sums = RowSums(plan, [rows.size for rows in parts], planes, mix.code * h, d_kernel)
    for rows in parts:
        own = Halves(rows.of(halves.parts, 3 * h), rows.of(halves.units, 1))
        found = mix.product(rows.size, own, matrix, h, width)
        states = mix.part("states", rows, planes)
        grid, tile = row_tile(rows.size, planes)
        tensors = (*found, mix.codes(rows), states, rows.of(d_code, mix.code), rows.of(ds, planes))
        plan.launch(both_sums_kernel, grid, *tensors, rows.size, **tile, I=mix.code)
        plan.release(found.product)
        outer = mix.outer(rows, rows.of(divided, h), h)
        sums.add(View.dense(states, rows.size, planes), View.dense(outer, rows.size, mix.code * h))
        plan.release(outer)
        norms.add(rows, rows.of(d_square, h))
    sums.finish()
    plan.release(*matrix, *halves, divided)
    norms.release(d_square)
    mix.weights.gradients(d_kernel, norms.finish(), d_packed)
    plan.release(d_kernel, *norms.products)
    return ds, d_code, norms.d_code


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
