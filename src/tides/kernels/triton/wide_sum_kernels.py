"""Sums over rows Σ_n y_n ⊗ z̃_n ⊗ x_n for the weights of a wide block's mixes, from float16 halves.

What is summed over rows needs units of columns (`product_kernels`): the largest numbers of y's, x's and z̃'s columns lie
side by side, (o + a + i). That of a column of z̃ ⊗ x is bounded by both.
"""

import triton
import triton.language as tl

from tides.kernels.triton.launched import launched
from tides.kernels.triton.product_kernels import halve, unit_of
from tides.kernels.triton.wide_kernels import place


@triton.jit
def add_largest(largest, values, column, WIDTH: tl.constexpr):
    """Numbers that are not negative are ordered as their bits are, and the order of programs does not matter."""
    found = tl.max(tl.abs(values), axis=0).to(tl.int32, bitcast=True)
    tl.atomic_max(largest.to(tl.pointer_type(tl.int32), bitcast=True) + column, found, column < WIDTH)


@triton.jit
def load_scaled(x, scale, at, inside, SCALED: tl.constexpr):
    values = tl.load(x + at, inside, 0.0)
    if SCALED:
        values = values * tl.load(scale + at, inside, 0.0)
    return values


@launched
def largest_kernel(
    y, x, scale, z, largest, N, O: tl.constexpr, A: tl.constexpr, I: tl.constexpr, OB: tl.constexpr, AB: tl.constexpr,
    IB: tl.constexpr, BM: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """The largest numbers of the columns of y (n, o), x (n, a), times `scale` where there is one, and z̃ (n, i)."""
    _, o, at, inside = place(N, O, OB, BM)
    add_largest(largest, tl.load(y + at, inside, 0.0), o, O)
    _, a, at, inside = place(N, A, AB, BM)
    add_largest(largest + O, load_scaled(x, scale, at, inside, SCALED), a, A)
    _, i, at, inside = place(N, I, IB, BM)
    add_largest(largest + O + A, tl.load(z + at, inside, 0.0), i, I)


@triton.jit
def inverse_unit(largest):
    _, inverse = unit_of(largest)
    return inverse


@triton.jit
def store_halves(first, second, values, inside):
    high, low = halve(values)
    tl.store(first, high, inside)
    tl.store(second, low, inside)


@launched
def outer_halves_kernel(
    y, x, scale, z, largest, y_halves, outer, rest, N, O: tl.constexpr, A: tl.constexpr, I: tl.constexpr,
    OB: tl.constexpr, AB: tl.constexpr, BM: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """[y₁, y₀] (n, 2o), and of z̃ ⊗ x the first halves (n, i·a) to `outer`, the others to `rest`."""
    row, o, y_at, y_inside = place(N, O, OB, BM)
    shrunk = tl.load(y + y_at, y_inside, 0.0) * inverse_unit(tl.load(largest + o, o < O, 0.0))[None, :]
    target = y_halves + row[:, None] * (2 * O) + o[None, :]
    store_halves(target, target + O, shrunk, y_inside)
    row, a, at, inside = place(N, A, AB, BM)
    values = load_scaled(x, scale, at, inside, SCALED) * inverse_unit(tl.load(largest + O + a, a < A, 0.0))[None, :]
    at = row[:, None] * (I * A) + a[None, :]
    for i in range(I):
        # Both are below 2¹⁵, and so has to be their product.
        weight = tl.load(z + row * I + i, row < N, 0.0) * inverse_unit(tl.load(largest + O + A + i)) * 3.0517578125e-05
        store_halves(outer + at + i * A, rest + at + i * A, weight[:, None] * values, inside)
