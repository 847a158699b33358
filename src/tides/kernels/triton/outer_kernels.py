"""Sums over steps inside a pass: of outer products, from halves that its other products have made, and of rows.

Halves are in units of their rows, and a product that sums over rows needs one unit for all of them. It is the tile's
largest; what it is larger than a row's goes to the right side. Powers of two lose nothing until a row is 2⁻²⁴ of the
largest one, and a row that small adds less than rounding the sum does.
"""

import triton
import triton.language as tl

from tides.kernels.triton.product_kernels import product, turned


@triton.jit
def shares_of(left_unit, right_unit):
    """The product of both units (rows, 1) as shares of the largest, in float16, and the largest (1, 1)."""
    exponent = (left_unit.to(tl.int32, bitcast=True) >> 23) + (right_unit.to(tl.int32, bitcast=True) >> 23)
    largest = tl.max(exponent, axis=0)[None, :]
    share = (tl.maximum(exponent - largest, -30) + 127) << 23
    # From two factors, because the sum of two exponents may be none of float32.
    one = largest >> 1
    size = (one << 23).to(tl.float32, bitcast=True) * ((largest - one) << 23).to(tl.float32, bitcast=True)
    return share.to(tl.float32, bitcast=True).to(tl.float16), size


@triton.jit
def add_outer(total, left, left_unit, right, right_unit, PRECISION: tl.constexpr):
    """total + Σ_k left_k ⊗ right_k (m, n) from the halves of both (rows, m), (rows, n) and the units of their rows."""
    share, size = shares_of(left_unit, right_unit)
    return total + product(turned(left), (right[0] * share, right[1] * share), PRECISION) * size


@triton.jit
def beside(left, right):
    """Two tiles side by side, in the registers that they are in."""
    both = tl.permute(tl.join(left, right), (0, 2, 1))
    return tl.reshape(both, (left.shape[0], 2 * left.shape[1]))


@triton.jit
def zero_pairs(BM: tl.constexpr, N: tl.constexpr):
    """A sum over the steps of tiles (BM, N) that has not begun, every thread's own."""
    return tl.zeros((BM // 16, 8, N), tl.float32)


@triton.jit
def add_pairs(total, tile):
    """The two rows that a thread has of a tile, added to its own sum; `sum_pairs` adds those of all threads up."""
    BM: tl.constexpr = tile.shape[0]
    N: tl.constexpr = tile.shape[1]
    return total + tl.sum(tl.reshape(tile, (BM // 16, 2, 8, N)), axis=1)


@triton.jit
def sum_pairs(total):
    """Σ over all steps (N)."""
    return tl.sum(tl.sum(total, axis=0), axis=0)
