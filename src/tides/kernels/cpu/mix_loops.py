"""The elementwise parts of the mixes, (features, steps) at a time; matrix products run in torch between them."""

from typing import Any

import numpy as np

from tides.kernels.cpu.compiled_code import compiler
from tides.kernels.cpu.elementary import EXACT_MATH
from tides.kernels.cpu.intervals import compiled

# Sums over a row may be reordered: nothing cancels by design here.
summing: Any = compiler(EXACT_MATH | {"reassoc"})


# Rows × columns that a core's nearest cache holds twice.
_ROWS, _COLUMNS = 64, 32


@compiled
def transposed(x, out):  # type: ignore[no-untyped-def]
    """out = xᵀ, a tile at a time."""
    rows, columns = x.shape
    for top in range(0, rows, _ROWS):
        for left in range(0, columns, _COLUMNS):
            for j in range(left, min(left + _COLUMNS, columns)):
                for t in range(top, min(top + _ROWS, rows)):
                    # Unsigned: numba checks signed indices for negative ones.
                    out[np.uint64(j), np.uint64(t)] = x[np.uint64(t), np.uint64(j)]


@compiled
def contracted(code, products, out):  # type: ignore[no-untyped-def]
    """out[o, t] = Σ_i code[i, t] products[i·o, t]."""
    size, (width, steps) = code.shape[0], out.shape
    for o in range(width):
        y, z0, x0 = out[o], code[0], products[o]
        for t in range(steps):
            y[t] = z0[t] * x0[t]
        # Four terms at a time: fewer passes over the output.
        for i in range(1, size - 3, 4):
            z0, z1, z2, z3 = code[i], code[i + 1], code[i + 2], code[i + 3]
            at = i * width + o
            x0, x1, x2, x3 = products[at], products[at + width], products[at + 2 * width], products[at + 3 * width]
            for t in range(steps):
                y[t] += z0[t] * x0[t] + z1[t] * x1[t] + z2[t] * x2[t] + z3[t] * x3[t]
        for i in range(1 + (size - 1) // 4 * 4, size):
            z0, x0 = code[i], products[i * width + o]
            for t in range(steps):
                y[t] += z0[t] * x0[t]


@compiled
def outer_backward(code, x, d_outer, d_code, d_x):  # type: ignore[no-untyped-def]
    """From the gradient of the outer product to those of its factors; `d_outer` then holds the outer product itself."""
    size, (width, steps) = code.shape[0], x.shape
    zero = d_code.dtype.type(0)
    d_x[:, :] = zero
    d_code[:, :] = zero
    for i in range(size):
        z, dz = code[i], d_code[i]
        for a in range(width):
            d, xs, dx = d_outer[i * width + a], x[a], d_x[a]
            # Three loops: with few arrays in each the compiler proves that they do not overlap.
            for t in range(steps):
                dz[t] += xs[t] * d[t]
            for t in range(steps):
                dx[t] += z[t] * d[t]
            for t in range(steps):
                d[t] = z[t] * xs[t]


@compiled
def monomials(code, out):  # type: ignore[no-untyped-def]
    """z̃_i z̃_j for i ≤ j in the precision of `out`."""
    real = out.dtype.type
    c = 0
    for i in range(code.shape[0]):
        for j in range(i, code.shape[0]):
            x, y, product = code[i], code[j], out[c]
            for t in range(code.shape[1]):
                product[t] = real(x[t]) * real(y[t])
            c += 1


@compiled
def monomials_backward(code, weighted, d_code):  # type: ignore[no-untyped-def]
    """d_code += ∂(Σ weighted_ij z̃_i z̃_j)/∂z̃."""
    c = 0
    for i in range(code.shape[0]):
        for j in range(i, code.shape[0]):
            x, y, dx, dy, w = code[i], code[j], d_code[i], d_code[j], weighted[c]
            for t in range(code.shape[1]):
                dx[t] += w[t] * y[t]
            for t in range(code.shape[1]):
                dy[t] += w[t] * x[t]
            c += 1


@compiled
def inverse_roots(square, eps, inverse):  # type: ignore[no-untyped-def]
    """1/√(square + eps), where the sum is float64."""
    real = inverse.dtype.type
    one = real(1)
    for h in range(square.shape[0]):
        x, y = square[h], inverse[h]
        for t in range(x.size):
            y[t] = one / np.sqrt(real(x[t] + eps))


@compiled
def multiplied(x, factor, out):  # type: ignore[no-untyped-def]
    """out = x · factor."""
    for h in range(x.shape[0]):
        a, b, c = x[h], factor[h], out[h]
        for t in range(a.size):
            c[t] = a[t] * b[t]


@compiled
def scaled_by(x, factor):  # type: ignore[no-untyped-def]
    """x ← x · factor."""
    for h in range(x.shape[0]):
        a, b = x[h], factor[h]
        for t in range(a.size):
            a[t] *= b[t]


@compiled
def d_square_in(u, inverse, du):  # type: ignore[no-untyped-def]
    """In-mix: du arrives as the gradient of u · inverse and becomes that of u; `inverse` that of the mean square."""
    half = inverse.dtype.type(-0.5)
    for h in range(u.shape[0]):
        x, w, dx = u[h], inverse[h], du[h]
        for t in range(x.size):
            dx[t] *= w[t]
        for t in range(x.size):
            w[t] = half * w[t] * w[t] * x[t] * dx[t]


@compiled
def d_square_out(scaled, mixed, inverse):  # type: ignore[no-untyped-def]
    """Out-mix: `inverse` becomes the gradient of the mean square, −½ inverse² scaled · mixed; scaled = g · inverse."""
    half = inverse.dtype.type(-0.5)
    for h in range(mixed.shape[0]):
        g, m, w = scaled[h], mixed[h], inverse[h]
        for t in range(g.size):
            w[t] = half * w[t] * w[t] * g[t] * m[t]


@compiled
def finished(mixed, inverse, u, skip, y):  # type: ignore[no-untyped-def]
    """y = mixed · inverse + skip · u."""
    for h in range(mixed.shape[0]):
        m, w, x, out, factor = mixed[h], inverse[h], u[h], y[h], skip[h]
        for t in range(m.size):
            out[t] = m[t] * w[t] + factor * x[t]


@compiled
def added_skip(mixed, u, skip, y):  # type: ignore[no-untyped-def]
    """y = mixed + skip · u."""
    for h in range(mixed.shape[0]):
        m, x, out, factor = mixed[h], u[h], y[h], skip[h]
        for t in range(m.size):
            out[t] = m[t] + factor * x[t]


@summing
def skip_backward(gradient, u, skip, du, d_skip):  # type: ignore[no-untyped-def]
    """du = skip · gradient, d_skip += Σ gradient · u."""
    for h in range(u.shape[0]):
        g, x, dx, factor = gradient[h], u[h], du[h], skip[h]
        total = g.dtype.type(0)
        for t in range(g.size):
            total += g[t] * x[t]
        for t in range(g.size):
            dx[t] = factor * g[t]
        d_skip[h] += total
