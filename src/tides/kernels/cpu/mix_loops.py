"""The elementwise parts of the mixes; matrix products run in torch between them. One row per step.

Arrays of all steps come whole, with the range [start, stop) of the block; scratch (codes among it) begins at row 0.
"""

from typing import Any

import numpy as np
from numba import njit

from tides.kernels.cpu.elementary import EXACT_MATH
from tides.kernels.cpu.intervals import compiled

# Sums over a row may be reordered: nothing cancels by design here.
summing: Any = njit(cache=True, nogil=True, error_model="numpy", fastmath=EXACT_MATH | {"reassoc"})


@compiled
def monomials(code, steps, lines, double, single):  # type: ignore[no-untyped-def]
    """z̃_i z̃_j for i ≤ j in float64 and in the data's precision, steps innermost; `lines` ← the codes, transposed."""
    size = code.shape[1]
    for t in range(steps):
        for i in range(size):
            lines[i, t] = code[t, i]
    c = 0
    for i in range(size):
        for j in range(i, size):
            for t in range(steps):
                double[c, t] = np.float64(lines[i, t]) * np.float64(lines[j, t])
            for t in range(steps):
                single[c, t] = lines[i, t] * lines[j, t]
            c += 1


@compiled
def normalised(x, start, stop, square, eps, inverse, scaled):  # type: ignore[no-untyped-def]
    """inverse = 1/√(square + eps), scaled = x · inverse."""
    real = inverse.dtype.type
    one = real(1)
    for t in range(stop - start):
        for h in range(inverse.shape[1]):
            inverse[t, h] = one / np.sqrt(real(square[t, h] + eps))
        for h in range(inverse.shape[1]):
            scaled[t, h] = x[start + t, h] * inverse[t, h]


@compiled
def contracted(code, start, stop, products, out):  # type: ignore[no-untyped-def]
    """out[t, o] = Σ_i code[t, i] products[t, i, o]."""
    size, width = products.shape[1], products.shape[2]
    for t in range(stop - start):
        z, y = code[t], out[start + t]
        z0 = z[0]
        for o in range(width):
            y[o] = z0 * products[t, 0, o]
        # Four terms at a time: fewer passes over the output.
        for i in range(1, size - 3, 4):
            z0, z1, z2, z3 = z[i], z[i + 1], z[i + 2], z[i + 3]
            for o in range(width):
                y[o] += (
                    z0 * products[t, i, o]
                    + z1 * products[t, i + 1, o]
                    + z2 * products[t, i + 2, o]
                    + z3 * products[t, i + 3, o]
                )
        for i in range(1 + (size - 1) // 4 * 4, size):
            z0 = z[i]
            for o in range(width):
                y[o] += z0 * products[t, i, o]


@summing
def outer_backward(code, start, stop, x, offset, d_outer, d_code, d_x):  # type: ignore[no-untyped-def]
    """From the gradient of the outer product to those of its factors; `d_outer` then holds the outer product itself.

    x begins at row `offset`, as it may be scratch; d_code is.
    """
    size, width = d_outer.shape[1], d_outer.shape[2]
    zero = d_code.dtype.type(0)
    for t in range(stop - start):
        z, dz, xs, dx = code[t], d_code[t], x[offset + t], d_x[start + t]
        for a in range(width):
            dx[a] = zero
        for i in range(size):
            factor, total = z[i], zero
            for a in range(width):
                total += xs[a] * d_outer[t, i, a]
            for a in range(width):
                dx[a] += factor * d_outer[t, i, a]
            for a in range(width):
                d_outer[t, i, a] = factor * xs[a]
            dz[i] = total


@compiled
def d_square_in(u, start, stop, inverse, du):  # type: ignore[no-untyped-def]
    """In-mix: du arrives as the gradient of u · inverse and becomes that of u; `inverse` that of the mean square."""
    half = inverse.dtype.type(-0.5)
    for t in range(stop - start):
        for h in range(inverse.shape[1]):
            w = inverse[t, h]
            slope = w * du[start + t, h]
            du[start + t, h] = slope
            inverse[t, h] = half * w * w * u[start + t, h] * slope


@compiled
def finished(start, stop, inverse, u, skip, y):  # type: ignore[no-untyped-def]
    """y ← y · inverse + skip · u."""
    for t in range(stop - start):
        for h in range(y.shape[1]):
            y[start + t, h] = y[start + t, h] * inverse[t, h] + skip[h] * u[start + t, h]


@compiled
def added_skip(start, stop, u, skip, y):  # type: ignore[no-untyped-def]
    """y ← y + skip · u."""
    for t in range(start, stop):
        for h in range(y.shape[1]):
            y[t, h] += skip[h] * u[t, h]


@compiled
def d_square_out(gradient, start, stop, mixed, inverse):  # type: ignore[no-untyped-def]
    """Out-mix: `inverse` becomes the gradient of the mean square, −½ inverse³ gradient · mixed."""
    half = inverse.dtype.type(-0.5)
    for t in range(stop - start):
        for h in range(inverse.shape[1]):
            w = inverse[t, h]
            inverse[t, h] = half * w * w * w * gradient[start + t, h] * mixed[t, h]


@compiled
def skip_backward(gradient, u, skip, start, stop, du, d_skip):  # type: ignore[no-untyped-def]
    """du += skip · gradient, d_skip += Σ gradient · u."""
    for t in range(start, stop):
        for h in range(skip.size):
            du[t, h] += skip[h] * gradient[t, h]
        for h in range(skip.size):
            d_skip[h] += gradient[t, h] * u[t, h]


@compiled
def monomials_backward(steps, lines, weighted, d_lines, d_code):  # type: ignore[no-untyped-def]
    """d_code += ∂(Σ weighted_ij z̃_i z̃_j)/∂z̃, with `lines` from `monomials` and steps innermost in `weighted`."""
    size = lines.shape[0]
    d_lines[:, :steps] = d_lines.dtype.type(0)
    c = 0
    for i in range(size):
        for j in range(i, size):
            for t in range(steps):
                d_lines[i, t] += weighted[c, t] * lines[j, t]
            for t in range(steps):
                d_lines[j, t] += weighted[c, t] * lines[i, t]
            c += 1
    for t in range(steps):
        for i in range(size):
            d_code[t, i] += d_lines[i, t]
