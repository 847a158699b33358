"""A tile of steps times the many small matrices of a mix, with float32's accuracy on units for shorter numbers.

Three products of halves replace one of float32: a b ≈ a₁b₁ + a₁b₀ + a₀b₁ with a₁ = a rounded to 11 bits and
a₀ = a − a₁. Triton can split operands itself, but would do so again for every product. Here weights are split once when
they are packed, and a tile of steps once before the loop over the matrices.

Halves are TF32 numbers (`split`) or, in the mixes, float16 (`halve`): as many bits in half the bytes and at twice the
rate, but with a short range. So a row of steps, and of the weights all that belongs to a channel, is divided by a power
of two, its unit, which brings its largest number to between 2¹⁴ and 2¹⁵. All 22 bits are then kept of whatever is at
least 2⁻¹⁶ of that number, and nothing is off by more than 2⁻³⁹ of it.

Matrices lie as (half, i, n, k), the axis k that a product sums over innermost, as Hopper's units read them. Behind them
are the units of the channels in float32 and, of roots, the squares of the last row. Several matrices go into one
product: wider ones wait less often for each other.
"""

import triton
import triton.language as tl

from tides.kernels.triton.tile_kernels import channels

# Numbers of every channel behind a set of matrices.
VECTORS = tl.constexpr(2)


@triton.jit
def split(x):
    """x₁, the nearest number with TF32's 10 bits, and x − x₁, which is exact."""
    high = ((x.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)
    return high, x - high


@triton.jit
def inverse_of(unit):
    """Of a power of two."""
    return (0x7F000000 - unit.to(tl.int32, bitcast=True)).to(tl.float32, bitcast=True)


@triton.jit
def unit_of(largest):
    """The power of two that takes numbers up to `largest` below 2¹⁵ when they are divided by it, and its inverse."""
    exponent = largest.to(tl.int32, bitcast=True) & 0x7F800000
    # Not below 2⁻¹²⁶; what is smaller than 2⁻¹¹² then ends below 2¹⁴, with bits enough.
    unit = tl.maximum(exponent - 0x07000000, 0x00800000).to(tl.float32, bitcast=True)
    return unit, inverse_of(unit)


@triton.jit
def halve(x):
    """x₁ and x₀ of numbers below 2¹⁵."""
    high = x.to(tl.float16)
    return high, (x - high.to(tl.float32)).to(tl.float16)


@triton.jit
def halve_rows(x):
    """The halves of x (rows, n) in the units of its rows, and those units (rows, 1)."""
    unit, inverse = unit_of(tl.max(tl.abs(x), axis=1))
    return halve(x * inverse[:, None]), unit[:, None]


@triton.jit
def halve_matrix(x):
    """The halves of a small matrix in one unit for all of it, and that unit."""
    unit, inverse = unit_of(tl.max(tl.max(tl.abs(x), axis=1), axis=0))
    return halve(x * inverse), unit


@triton.jit
def turned(halves):
    """The halves of the transposed matrix."""
    return tl.trans(halves[0]), tl.trans(halves[1])


@triton.jit
def open_matrices(pointer, model, SIZE: tl.constexpr, HB: tl.constexpr):
    """Where the halves of a model's matrices lie, each half of SIZE, and the numbers of their channels."""
    pointer += model * (SIZE + VECTORS * HB)
    at = pointer + SIZE + tl.arange(0, HB)[None, :]
    return pointer.to(tl.pointer_type(tl.float16), bitcast=True), (tl.load(at), tl.load(at + HB))


@triton.jit
def load_vector(vectors, HB: tl.constexpr, WHICH: tl.constexpr = 0):
    """The units of the channels (1, HB), or with 1 the squares that roots leave beside them."""
    return vectors[WHICH]


@triton.jit
def product(a, b, PRECISION: tl.constexpr, total=None):
    """a b from the halves of both, added to `total` where there is one; the small products first."""
    if a[0].dtype == tl.float16:
        if PRECISION == "tf32x3":
            total = tl.dot(a[1], b[0], total)
            total = tl.dot(a[0], b[1], total)
        return tl.dot(a[0], b[0], total)
    elif PRECISION == "tf32x3":
        total = tl.dot(a[1], b[0], total, input_precision="tf32")
        total = tl.dot(a[0], b[1], total, input_precision="tf32")
        return tl.dot(a[0], b[0], total, input_precision="tf32")
    else:
        return tl.dot(a[0], b[0], total, input_precision=PRECISION)


@triton.jit
def load_matrices(
    pointer, first, R: tl.constexpr, LAST: tl.constexpr, COUNT: tl.constexpr, K: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """The halves of matrices `first`, … side by side (K, COUNT · N) of R + 1; zeros from number LAST on."""
    n = first * N + tl.arange(0, COUNT * N)[None, :]
    at = n * K + tl.arange(0, K)[:, None]
    rest = pointer + (R + 1) * N * K
    if LAST % COUNT == 0 or R % COUNT == 0:
        return tl.load(pointer + at), tl.load(rest + at)
    else:
        inside = n + tl.arange(0, K)[:, None] * 0 < LAST * N
        return tl.load(pointer + at, inside, 0.0), tl.load(rest + at, inside, 0.0)


@triton.jit
def load_sets(
    pointer, R: tl.constexpr, LAST: tl.constexpr, COUNT: tl.constexpr, K: tl.constexpr, N: tl.constexpr,
    RESIDENT: tl.constexpr,
):  # fmt: skip
    """All of them, COUNT at once, for programs that go through many tiles with their matrices in shared memory.

    Nothing where there is no room for them and every tile fetches its own.
    """
    sets = ()
    if RESIDENT:
        for first in tl.static_range(0, R, COUNT):
            sets += (load_matrices(pointer, first, R, LAST, COUNT, K, N),)  # type: ignore[assignment]
        if LAST > R and R % COUNT == 0:
            sets += (load_matrices(pointer, R, R, LAST, 1, K, N),)  # type: ignore[assignment]
    return sets


@triton.jit
def sides(x):
    """The left and the right half of a tile's columns, which stay in the registers they are in."""
    return tl.split(tl.permute(tl.reshape(x, (x.shape[0], 2, x.shape[1] // 2)), (0, 2, 1)))


@triton.jit
def column(code, i, IB: tl.constexpr):
    """z̃_i (rows, 1)."""
    return tl.sum(tl.where(channels(IB)[None, :] == i, code, 0.0), axis=1)[:, None]


@triton.jit
def add_weighted(total, part, code, first, COUNT: tl.constexpr, IB: tl.constexpr):
    """total + Σ_i z̃_i a M_i from the products a M_i with COUNT matrices, side by side: one instruction for each."""
    if COUNT == 1:
        return part * column(code, first, IB) + total
    else:
        left, right = sides(part)
        total = add_weighted(total, left, code, first, COUNT // 2, IB)
        return add_weighted(total, right, code, first + COUNT // 2, COUNT // 2, IB)


@triton.jit
def add_squares(total, part, COUNT: tl.constexpr):
    """total + Σ_i (a M_i)²."""
    if COUNT == 1:
        return part * part + total
    else:
        left, right = sides(part)
        return add_squares(add_squares(total, left, COUNT // 2), right, COUNT // 2)


@triton.jit
def put_inner(d_code, part, along, first, COUNT: tl.constexpr, IB: tl.constexpr):
    """d_code (rows, IB) with a M_i · `along` in the columns of these matrices."""
    if COUNT == 1:
        inner = tl.sum(part * along, axis=1)[:, None]
        return tl.where(channels(IB)[None, :] == first, inner, d_code)
    else:
        left, right = sides(part)
        d_code = put_inner(d_code, left, along, first, COUNT // 2, IB)
        return put_inner(d_code, right, along, first + COUNT // 2, COUNT // 2, IB)


@triton.jit
def begin_mix(
    a, matrices, sets, R: tl.constexpr, COUNT: tl.constexpr, K: tl.constexpr, N: tl.constexpr, RESIDENT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The share of z̃_R = 1, or nothing where it is one of the last COUNT."""
    if R % COUNT != 0:
        return tl.zeros((a[0].shape[0], N), tl.float32)
    elif RESIDENT:
        return product(a, sets[R // COUNT], PRECISION)
    else:
        return product(a, load_matrices(matrices, R, R, R + 1, 1, K, N), PRECISION)


@triton.jit
def mix(
    a, code, matrices, sets, R: tl.constexpr, COUNT: tl.constexpr, STAGES: tl.constexpr, K: tl.constexpr,
    N: tl.constexpr, IB: tl.constexpr, RESIDENT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Σ_i z̃_i a M_i (rows, N) for the halves of a (rows, K)."""
    total = begin_mix(a, matrices, sets, R, COUNT, K, N, RESIDENT, PRECISION)
    if RESIDENT:
        for first in tl.static_range(0, R, COUNT):
            total = add_weighted(total, product(a, sets[first // COUNT], PRECISION), code, first, COUNT, IB)
    else:
        for first in tl.range(0, R, COUNT, num_stages=STAGES):
            part = product(a, load_matrices(matrices, first, R, R + 1, COUNT, K, N), PRECISION)
            total = add_weighted(total, part, code, first, COUNT, IB)
    return total


@triton.jit
def mix_backward(
    a, along, code, matrices, sets, R: tl.constexpr, COUNT: tl.constexpr, STAGES: tl.constexpr, K: tl.constexpr,
    N: tl.constexpr, IB: tl.constexpr, RESIDENT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """`mix`, and a M_i · `along` for every i < R (rows, IB)."""
    total = begin_mix(a, matrices, sets, R, COUNT, K, N, RESIDENT, PRECISION)
    d_code = tl.zeros((total.shape[0], IB), tl.float32)
    if RESIDENT:
        for first in tl.static_range(0, R, COUNT):
            part = product(a, sets[first // COUNT], PRECISION)
            total = add_weighted(total, part, code, first, COUNT, IB)
            d_code = put_inner(d_code, part, along, first, COUNT, IB)
    else:
        for first in tl.range(0, R, COUNT, num_stages=STAGES):
            part = product(a, load_matrices(matrices, first, R, R + 1, COUNT, K, N), PRECISION)
            total = add_weighted(total, part, code, first, COUNT, IB)
            d_code = put_inner(d_code, part, along, first, COUNT, IB)
    return total, d_code


@triton.jit
def inverse_rms(
    z, unit, root, vectors, sets, eps, R: tl.constexpr, COUNT: tl.constexpr, STAGES: tl.constexpr, IB: tl.constexpr,
    HB: tl.constexpr, RESIDENT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """ρ_h = (‖R_h z̃‖² + eps)^(−½) from the halves of z̃ and their unit.

    R_h is upper triangular: its last row, whose square is known, meets 1 alone.
    """
    square = tl.zeros((z[0].shape[0], HB), tl.float32)
    if RESIDENT:
        for first in tl.static_range(0, R, COUNT):
            square = add_squares(square, product(z, sets[first // COUNT], PRECISION), COUNT)
    else:
        for first in tl.range(0, R, COUNT, num_stages=STAGES):
            part = product(z, load_matrices(root, first, R, R, COUNT, IB, HB), PRECISION)
            square = add_squares(square, part, COUNT)
    factor = unit * load_vector(vectors, HB)
    return tl.rsqrt(square * factor * factor + (load_vector(vectors, HB, 1) + eps))
