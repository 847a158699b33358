"""The passes of a wide block's mixes between their matrix products: rows n, of which each program has `BM`.

Temporaries of a mix are (n, i, a), a product of width a for every number of the code z̃. Every pass reads and writes
what it needs once. With `NORM` the mix is divided by the rms of its columns, whose squares come in float64.

A product x K of a mix is made of float16 halves (`product_kernels`), which lie side by side: x as [x₁, x₀, x₁] and K as
[K₁; K₁; K₀], so that one product with sums in float32 has all three parts. It comes in units of x's rows and of K's
columns.
"""

import triton
import triton.language as tl

from tides.kernels.triton.block_kernels import kept
from tides.kernels.triton.launched import launched
from tides.kernels.triton.product_kernels import halve_rows
from tides.kernels.triton.tail_kernels import gelu


@triton.jit
def place(N, A: tl.constexpr, AB: tl.constexpr, BM: tl.constexpr):
    """Rows, columns, where (n, A) lies and what of it is there."""
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    a = tl.arange(0, AB)
    return row, a, row[:, None] * A + a[None, :], (row < N)[:, None] & (a < A)[None, :]


@triton.jit
def inverse_root(square, inverse, at, inside, EPS: tl.constexpr):
    """1/√(square + EPS), rounded once, at the end; it is left in `inverse`."""
    root = tl.rsqrt(tl.load(square + at, inside, 1.0) + EPS).to(tl.float32)
    tl.store(inverse + at, root, inside)
    return root


@triton.jit
def store_halves(halves, unit, x, row, a, N, A: tl.constexpr):
    """[x₁, x₀, x₁] (n, 3A) of x (rows, AB), and the units of its rows (n)."""
    parts, units = halve_rows(x)
    at = row[:, None] * (3 * A) + a[None, :]
    inside = (row < N)[:, None] & (a < A)[None, :]
    tl.store(halves + at, parts[0], inside)
    tl.store(halves + at + A, parts[1], inside)
    tl.store(halves + at + 2 * A, parts[0], inside)
    tl.store(unit + row[:, None], units, (row < N)[:, None])


@launched
def halve_rows_kernel(
    x, valid, halves, unit, N, A: tl.constexpr, AB: tl.constexpr, BM: tl.constexpr, CLEAR: tl.constexpr
):
    """The halves of x (n, a); with `CLEAR` x becomes zero over padding."""
    row, a, at, inside = place(N, A, AB, BM)
    values = tl.load(x + at, inside, 0.0)
    if CLEAR:
        values = tl.where(tl.load(valid + row, row < N, 0)[:, None] != 0, values, 0.0)
        tl.store(x + at, values, inside)
    store_halves(halves, unit, values, row, a, N, A)


@launched
def divide_kernel(
    square, u, inverse, halves, unit, N, A: tl.constexpr, AB: tl.constexpr, BM: tl.constexpr, EPS: tl.constexpr
):
    """The halves of u/rms, and the inverse rms (n, a)."""
    row, a, at, inside = place(N, A, AB, BM)
    values = tl.load(u + at, inside, 0.0) * inverse_root(square, inverse, at, inside, EPS)
    store_halves(halves, unit, values, row, a, N, A)


@triton.jit
def load_part(product, row_unit, unit, there, i, a, inside, A: tl.constexpr):
    """Part i of a product in units, as it is."""
    columns = tl.load(unit + i * A + a, a < A, 0.0)
    return tl.load(product + there + i * A, inside, 0.0) * row_unit[:, None] * columns[None, :]


@triton.jit
def weigh_parts(product, row_units, units, z, row, a, inside, N, I: tl.constexpr, A: tl.constexpr):
    """Σ_i z̃_i product_i (rows, AB)."""
    row_unit = tl.load(row_units + row, row < N, 0.0)
    there = row[:, None] * (I * A) + a[None, :]
    total = inside.to(tl.float32) * 0.0
    for i in range(I):
        weight = tl.load(z + row * I + i, row < N, 0.0)
        total += weight[:, None] * load_part(product, row_unit, units, there, i, a, inside, A)
    return total


@triton.jit
def weigh_back(product, row_units, units, z, values, dz, row, a, inside, N, I: tl.constexpr, A: tl.constexpr):
    """`weigh_parts`, and dz_i = product_i · values for every i."""
    row_unit = tl.load(row_units + row, row < N, 0.0)
    there = row[:, None] * (I * A) + a[None, :]
    total = inside.to(tl.float32) * 0.0
    for i in range(I):
        weight = tl.load(z + row * I + i, row < N, 0.0)
        found = load_part(product, row_unit, units, there, i, a, inside, A)
        tl.store(dz + row * I + i, tl.sum(found * values, axis=1), row < N)
        total += weight[:, None] * found
    return total


@launched
def drive_kernel(
    product, row_units, units, z, valid, out, N, start, I: tl.constexpr, A: tl.constexpr, AB: tl.constexpr,
    BM: tl.constexpr, HAS_VALID: tl.constexpr,
):  # fmt: skip
    """out = Σ_i z̃_i product_i, zero over padding, from row `start` of all on."""
    row, a, at, inside = place(N, A, AB, BM)
    total = weigh_parts(product, row_units, units, z, row, a, inside, N, I, A)
    if HAS_VALID:
        total = tl.where(tl.load(valid + start + row, row < N, 0)[:, None] != 0, total, 0.0)
    tl.store(out + at, total, inside)


@launched
def drive_backward_kernel(
    product, row_units, units, z, u, inverse, dz, du, d_square, N, I: tl.constexpr, A: tl.constexpr, AB: tl.constexpr,
    BM: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """From `product`, the gradient of z̃ ⊗ u/rms: those of z̃ and, added to `du`, of u.

    `d_square` is twice the gradient of the mean square.
    """
    row, a, at, inside = place(N, A, AB, BM)
    values = tl.load(u + at, inside, 0.0)
    if NORM:
        root = tl.load(inverse + at, inside, 0.0)
        values = values * root
    total = weigh_back(product, row_units, units, z, values, dz, row, a, inside, N, I, A)
    if NORM:
        total = total * root
        tl.store(d_square + at, -total * values * root, inside)
    tl.store(du + at, tl.load(du + at, inside, 0.0) + total, inside)


@launched
def readout_kernel(
    product, row_units, units, z, square, u, skip, valid, seed, inverse, mixed, y, activated, N, start, factor,
    I: tl.constexpr, A: tl.constexpr, AB: tl.constexpr, BM: tl.constexpr, EPS: tl.constexpr, NORM: tl.constexpr,
    HAS_VALID: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """mixed = Σ_i z̃_i product_i / rms, y = factor mixed + skip ⊙ u, zero over padding, and drop(GELU(y)).

    Rows begin with number `start` of all.
    """
    row, a, at, inside = place(N, A, AB, BM)
    total = weigh_parts(product, row_units, units, z, row, a, inside, N, I, A)
    if NORM:
        total = total * inverse_root(square, inverse, at, inside, EPS)
        tl.store(mixed + at, total, inside)
    total = total * factor + tl.load(skip + a, a < A, 0.0)[None, :] * tl.load(u + at, inside, 0.0)
    if HAS_VALID:
        total = tl.where(tl.load(valid + start + row, row < N, 0)[:, None] != 0, total, 0.0)
    tl.store(y + at, total, inside)
    unit, _ = gelu(total)
    if DROP > 0:
        unit = unit * kept(seed, 0, start + row, a, DROP)
    tl.store(activated + at, unit, inside)


@launched
def readout_backward_kernel(
    d_activated, y, u, skip, valid, seed, inverse, mixed, divided, halves, unit, du, d_square, share, N, W, factor,
    A: tl.constexpr, AB: tl.constexpr, BM: tl.constexpr, NORM: tl.constexpr, HAS_VALID: tl.constexpr,
    DROP: tl.constexpr,
):  # fmt: skip
    """From the gradient of drop(GELU(y)): divided = factor dy/rms and its halves, the gradient of u, the sums for skip.

    `d_square` is twice the gradient of the mean square.
    """
    row, a, at, inside = place(N, A, AB, BM)
    gradient = tl.load(d_activated + at, inside, 0.0)
    if DROP > 0:
        gradient = gradient * kept(seed, 0, row, a, DROP)
    piece = tl.load(y + at, inside, 0.0)
    _, slope = gelu(piece)
    gradient = gradient * slope
    if HAS_VALID:
        gradient = tl.where(tl.load(valid + row, row < N, 0)[:, None] != 0, gradient, 0.0)
    tl.store(du + at, gradient * tl.load(skip + a, a < A, 0.0)[None, :], inside)
    through_skip = tl.sum(gradient * tl.load(u + at, inside, 0.0), axis=0)
    tl.store(share + tl.program_id(0).to(tl.int64) * W + a, through_skip, a < A)
    gradient = gradient * factor
    if NORM:
        root = tl.load(inverse + at, inside, 0.0)
        gradient = gradient * root
        tl.store(d_square + at, -gradient * tl.load(mixed + at, inside, 0.0) * root, inside)
    tl.store(divided + at, gradient, inside)
    store_halves(halves, unit, gradient, row, a, N, A)


@launched
def both_sums_kernel(
    product, row_units, units, z, x, dz, dx, N, I: tl.constexpr, A: tl.constexpr, AB: tl.constexpr, BM: tl.constexpr
):
    """dz_i = Σ_a product[i, a] x_a and dx_a = Σ_i z̃_i product[i, a]."""
    row, a, at, inside = place(N, A, AB, BM)
    values = tl.load(x + at, inside, 0.0)
    total = weigh_back(product, row_units, units, z, values, dz, row, a, inside, N, I, A)
    tl.store(dx + at, total, inside)
