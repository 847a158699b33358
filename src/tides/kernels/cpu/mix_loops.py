"""The elementwise parts of the mixes; matrix products run in torch between them. One row per step, modes innermost."""

from typing import Any

import numpy as np
from numba import njit

from tides.kernels.cpu.elementary import EXACT_MATH
from tides.kernels.cpu.intervals import compiled

# Sums over a row may be reordered: nothing cancels by design here.
summing: Any = njit(cache=True, nogil=True, error_model="numpy", fastmath=EXACT_MATH | {"reassoc"})


@compiled
def inverse_rms(pressed, eps, inverse):  # type: ignore[no-untyped-def]
    """inverse[t, h] = 1/√(Σ_k pressed[t, k, h]² + eps)."""
    steps, rank, width = pressed.shape
    one = inverse.dtype.type(1)
    for t in range(steps):
        for h in range(width):
            inverse[t, h] = pressed[t, 0, h] * pressed[t, 0, h] + eps
        for k in range(1, rank):
            for h in range(width):
                inverse[t, h] += pressed[t, k, h] * pressed[t, k, h]
        for h in range(width):
            inverse[t, h] = one / np.sqrt(inverse[t, h])


@compiled
def contracted(code, products, out):  # type: ignore[no-untyped-def]
    """out[t, o] = Σ_i code[t, i] products[t, i, o]."""
    steps, size, width = products.shape
    for t in range(steps):
        z = code[t, 0]
        for o in range(width):
            out[t, o] = z * products[t, 0, o]
        # Four terms at a time: fewer passes over the output.
        for i in range(1, size - 3, 4):
            z0, z1, z2, z3 = code[t, i], code[t, i + 1], code[t, i + 2], code[t, i + 3]
            for o in range(width):
                out[t, o] += (
                    z0 * products[t, i, o]
                    + z1 * products[t, i + 1, o]
                    + z2 * products[t, i + 2, o]
                    + z3 * products[t, i + 3, o]
                )
        for i in range(1 + (size - 1) // 4 * 4, size):
            z = code[t, i]
            for o in range(width):
                out[t, o] += z * products[t, i, o]


@summing
def outer_backward(code, x, d_outer, d_code, d_x):  # type: ignore[no-untyped-def]
    """From the gradient of the outer product to those of its factors; `d_outer` then holds the outer product itself."""
    steps, size, width = d_outer.shape
    zero = d_code.dtype.type(0)
    for t in range(steps):
        for a in range(width):
            d_x[t, a] = zero
        for i in range(size):
            z, total = code[t, i], zero
            for a in range(width):
                total += x[t, a] * d_outer[t, i, a]
            for a in range(width):
                d_x[t, a] += z * d_outer[t, i, a]
            for a in range(width):
                d_outer[t, i, a] = z * x[t, a]
            d_code[t, i] = total


@compiled
def d_square_in(u, inverse, du, pressed):  # type: ignore[no-untyped-def]
    """In-mix: `du` comes as that of u · inverse; ds = −½ inverse³ u du, pressed ← pressed · ds, du ← inverse · du."""
    steps, rank, width = pressed.shape
    half = inverse.dtype.type(-0.5)
    for t in range(steps):
        for h in range(width):
            w = inverse[t, h]
            d_scaled = w * du[t, h]
            du[t, h] = d_scaled
            inverse[t, h] = half * w * w * u[t, h] * d_scaled
        for k in range(rank):
            for h in range(width):
                pressed[t, k, h] *= inverse[t, h]


@compiled
def d_square_out(gradient, y, inverse, pressed):  # type: ignore[no-untyped-def]
    """Out-mix: pressed ← pressed · ds with ds = −½ inverse² gradient y; `inverse` is overwritten with ds."""
    steps, rank, width = pressed.shape
    half = inverse.dtype.type(-0.5)
    for t in range(steps):
        for h in range(width):
            inverse[t, h] = half * inverse[t, h] * inverse[t, h] * gradient[t, h] * y[t, h]
        for k in range(rank):
            for h in range(width):
                pressed[t, k, h] *= inverse[t, h]
