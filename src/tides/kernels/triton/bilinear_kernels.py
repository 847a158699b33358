"""Passes over the temporaries of bilinear forms: rows n, of which each program has `BM`, and i products of width a."""

import triton
import triton.language as tl

from tides.kernels.triton.launched import launched


@launched
def outer_kernel(z, x, out, N, I: tl.constexpr, A: tl.constexpr, AB: tl.constexpr, BM: tl.constexpr):
    """out[n, i, a] = z[n, i] x[n, a], in the precision of `out`."""
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    a = tl.arange(0, AB)
    inside = (row < N)[:, None] & (a < A)[None, :]
    precision = out.dtype.element_ty
    values = tl.load(x + row[:, None] * A + a[None, :], inside, 0.0).to(precision)
    at = row[:, None] * (I * A) + a[None, :]
    for i in range(I):
        weight = tl.load(z + row * I + i, row < N, 0.0).to(precision)
        tl.store(out + at + i * A, weight[:, None] * values, inside)


@launched
def weighted_sum_kernel(z, product, out, N, I: tl.constexpr, A: tl.constexpr, AB: tl.constexpr, BM: tl.constexpr):
    """out[n, a] = Σ_i z[n, i] product[n, i, a]."""
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    a = tl.arange(0, AB)
    inside = (row < N)[:, None] & (a < A)[None, :]
    at = row[:, None] * (I * A) + a[None, :]
    total = tl.zeros((BM, AB), out.dtype.element_ty)
    for i in range(I):
        weight = tl.load(z + row * I + i, row < N, 0.0)
        total += weight[:, None] * tl.load(product + at + i * A, inside, 0.0)
    tl.store(out + row[:, None] * A + a[None, :], total, inside)


@launched
def backward_kernel(
    work, z, x, dz, dx, N, I: tl.constexpr, A: tl.constexpr, AB: tl.constexpr, BM: tl.constexpr, WITH_DX: tl.constexpr
):
    """dz[n, i] = Σ_a work[n, i, a] x[n, a] and, with `WITH_DX`, dx[n, a] = Σ_i work[n, i, a] z[n, i].

    In their place `work` is left with z[n, i] x[n, a].
    """
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    a = tl.arange(0, AB)
    inside = (row < N)[:, None] & (a < A)[None, :]
    values = tl.load(x + row[:, None] * A + a[None, :], inside, 0.0)
    at = row[:, None] * (I * A) + a[None, :]
    total = tl.zeros((BM, AB), work.dtype.element_ty)
    for i in range(I):
        weight = tl.load(z + row * I + i, row < N, 0.0)
        found = tl.load(work + at + i * A, inside, 0.0)
        tl.store(dz + row * I + i, tl.sum(found * values, axis=1), row < N)
        tl.store(work + at + i * A, weight[:, None] * values, inside)
        if WITH_DX:
            total += weight[:, None] * found
    if WITH_DX:
        tl.store(dx + row[:, None] * A + a[None, :], total, inside)


@triton.jit
def inverse_root_kernel(square, x, inverse, scaled, size, EPS: tl.constexpr, BLOCK: tl.constexpr):
    """inverse = 1/√(square + EPS) and scaled = x · inverse, element by element; `scaled` may be x."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    # Rounded once, at the end; `EPS` is a constant because a number that is passed has single precision.
    root = tl.rsqrt(tl.load(square + at, inside, 1.0) + EPS).to(inverse.dtype.element_ty)
    tl.store(inverse + at, root, inside)
    tl.store(scaled + at, tl.load(x + at, inside, 0.0) * root, inside)


@triton.jit
def triple_product_kernel(a, b, c, out, size, BLOCK: tl.constexpr):
    """out = a b c, element by element."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    product = tl.load(a + at, inside, 0.0) * tl.load(b + at, inside, 0.0) * tl.load(c + at, inside, 0.0)
    tl.store(out + at, product, inside)
