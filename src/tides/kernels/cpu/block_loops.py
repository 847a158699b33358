"""The elementwise parts of a fused block, (features, steps) at a time."""

import math

import numpy as np

from tides.kernels.cpu.elementary import exp_and_expm1, normal
from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.mix_loops import summing

_ROWS = 64
_DENSITY = 1 / math.sqrt(2 * math.pi)


@compiled
def entered(rows, scale, shift, valid, u):  # type: ignore[no-untyped-def]
    """u = (rows · scale + shift)ᵀ, zero where a step is not valid (`valid` is empty if all are)."""
    steps, width = rows.shape
    for top in range(0, steps, _ROWS):
        for h in range(width):
            factor, offset = scale[h], shift[h]
            for t in range(top, min(top + _ROWS, steps)):
                # Unsigned: numba checks signed indices for negative ones.
                u[np.uint64(h), np.uint64(t)] = rows[np.uint64(t), np.uint64(h)] * factor + offset
    masked(u, valid)


@compiled
def left(x, scale, rows, out):  # type: ignore[no-untyped-def]
    """out = rows + xᵀ · scale."""
    steps, width = rows.shape
    for top in range(0, steps, _ROWS):
        for h in range(width):
            factor = scale[h]
            for t in range(top, min(top + _ROWS, steps)):
                i, j = np.uint64(t), np.uint64(h)
                out[i, j] = rows[i, j] + x[j, i] * factor


@compiled
def masked(x, valid):  # type: ignore[no-untyped-def]
    """x ← 0 at steps that are not valid: a choice, not a product, as padding may hold NaN."""
    zero = x.dtype.type(0)
    if valid.size > 0:
        for h in range(x.shape[0]):
            row = x[h]
            for t in range(row.size):
                row[t] = row[t] if valid[t] else zero


@compiled
def dropped(x, kept, factor):  # type: ignore[no-untyped-def]
    """Dropout: x ← x · factor where `kept`, else 0."""
    real, zero = x.dtype.type, x.dtype.type(0)
    for h in range(x.shape[0]):
        row, mask = x[h], kept[h]
        for t in range(row.size):
            row[t] = row[t] * real(factor) if mask[t] else zero


@compiled
def added(x, out):  # type: ignore[no-untyped-def]
    """out += x."""
    for h in range(x.shape[0]):
        a, b = x[h], out[h]
        for t in range(a.size):
            b[t] += a[t]


@compiled
def normalised_modes(theta, weight, normed, eps, scales, out):  # type: ignore[no-untyped-def]
    """out = θ · scale · weight with the inverse rms over the modes of every step in `scales`."""
    real = theta.dtype.type
    width, steps = theta.shape
    if normed:
        scales[:] = real(0)
        for p in range(width):
            x = theta[p]
            for t in range(steps):
                scales[t] += x[t] * x[t]
        for t in range(steps):
            scales[t] = real(1) / np.sqrt(scales[t] / real(width) + real(eps))
    else:
        scales[:] = real(1)
    for p in range(width):
        x, y, w = theta[p], out[p], weight[p]
        for t in range(steps):
            y[t] = x[t] * scales[t] * w


@summing
def modes_backward(theta, weight, normed, scales, gradient, along, d_theta, d_weight):  # type: ignore[no-untyped-def]
    """Gradients of θ and of the weight from that of `normalised_modes`; `along` is scratch for every step."""
    real = theta.dtype.type
    width, steps = theta.shape
    along[:] = real(0)
    if normed:
        for p in range(width):
            x, g, w = theta[p], gradient[p], weight[p]
            total = real(0)
            for t in range(steps):
                total += g[t] * x[t] * scales[t]
            d_weight[p] += total
            for t in range(steps):
                along[t] += g[t] * x[t] * w
        for t in range(steps):
            along[t] *= scales[t] * scales[t] / real(width)
    for p in range(width):
        x, g, dx, w = theta[p], gradient[p], d_theta[p], weight[p]
        for t in range(steps):
            dx[t] = scales[t] * (g[t] * w - along[t] * x[t])


@compiled
def gelu(y, out):  # type: ignore[no-untyped-def]
    """y Φ(y)."""
    for h in range(y.shape[0]):
        x, z = y[h], out[h]
        for t in range(x.size):
            z[t] = x[t] * normal(x[t])[0]


@compiled
def gelu_and_slope(y, out):  # type: ignore[no-untyped-def]
    """out = y Φ(y), y ← its derivative Φ(y) + y φ(y)."""
    density = y.dtype.type(_DENSITY)
    for h in range(y.shape[0]):
        x, z = y[h], out[h]
        for t in range(x.size):
            share, bell = normal(x[t])
            z[t] = x[t] * share
            x[t] = share + density * x[t] * bell


@compiled
def gated(linear, out):  # type: ignore[no-untyped-def]
    """values · σ(gates), both halves of `linear`."""
    width = out.shape[0]
    one = out.dtype.type(1)
    for f in range(width):
        value, gate, y = linear[f], linear[width + f], out[f]
        for t in range(y.size):
            y[t] = value[t] / (one + exp_and_expm1(-gate[t])[0])


@compiled
def gated_backward(linear, gradient, out):  # type: ignore[no-untyped-def]
    """`linear` ← its gradient from that of the product, which `out` ← is."""
    width = out.shape[0]
    one = out.dtype.type(1)
    for f in range(width):
        value, gate, y, g = linear[f], linear[width + f], out[f], gradient[f]
        for t in range(y.size):
            gate[t] = one / (one + exp_and_expm1(-gate[t])[0])
        for t in range(y.size):
            y[t] = value[t] * gate[t]
        for t in range(y.size):
            value[t] = g[t] * gate[t]
        for t in range(y.size):
            gate[t] = g[t] * y[t] * (one - gate[t])
