"""The batch norm of a fused block, compiled: moments of every channel over the valid rows, and their gradient."""

import numpy as np

from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.lane_values import load, load_some, spread, store, store_some

# Rows that are added up in the data's own precision before they join the total.
_ROWS = 64


@compiled
def _collect(x, width, valid, lanes, centre, square, totals):  # type: ignore[no-untyped-def]
    """totals += Σ (x − centre), or its square; returns the number of valid rows."""
    rows, count = x.size // width, 0
    part = np.zeros(lanes, dtype=x.dtype)
    for top in range(0, rows, _ROWS):
        end = min(top + _ROWS, rows)
        for t in range(top, end):
            if valid.size == 0 or valid[t]:
                count += 1
        for c in range(0, width, lanes):
            collected, middle = spread(x.dtype.type(0)), load(centre, c)
            for t in range(top, end):
                if valid.size == 0 or valid[t]:
                    value = load_some(x, t * width + c, width - c) - middle
                    if square:
                        value = value * value
                    collected = collected + value
            store(collected, part, 0)
            for j in range(min(lanes, width - c)):
                totals[c + j] += part[j]
    return count


@compiled
def moments(x, width, valid, lanes, eps, scale, shift, mean, var):  # type: ignore[no-untyped-def]
    """Scale and shift of every channel in rows of whole vectors; returns the number of rows they are of.

    `mean` and `var`, unbiased, are for running statistics.
    """
    real = x.dtype.type
    totals, middle = np.zeros(scale.size), np.zeros(scale.size, dtype=x.dtype)
    count = _collect(x, width, valid, lanes, middle, False, totals)
    for j in range(width):
        mean[j] = middle[j] = totals[j] / count
        totals[j] = 0.0
    _collect(x, width, valid, lanes, middle, True, totals)
    for j in range(width):
        scale[j] = real(1) / np.sqrt(real(totals[j] / count) + real(eps))
        shift[j] = -middle[j] * scale[j]
        var[j] = totals[j] / (count - 1)
    return count


@compiled
def add_moments_gradient(x, width, valid, lanes, scale, shift, d_scale, d_shift, count, dx):  # type: ignore[no-untyped-def]
    """dx += what flows through mean and variance, with u = x · scale + shift, d_scale = Σ du u and d_shift = Σ du.

    dx = −scale/n (Σ du + u Σ du u), the textbook's result.
    """
    rows, columns = x.size // width, scale.size
    constant, slope = np.empty_like(scale), np.empty_like(scale)
    share = x.dtype.type(-1.0 / count)
    for j in range(columns):
        slope[j] = share * scale[j] * d_scale[j]
        constant[j] = share * scale[j] * d_shift[j]
    for t in range(rows):
        if valid.size == 0 or valid[t]:
            for c in range(0, columns, lanes):
                at = t * width + c
                u = load_some(x, at, width - c) * load(scale, c) + load(shift, c)
                value = load_some(dx, at, width - c) + (load(constant, c) + load(slope, c) * u)
                store_some(value, dx, at, width - c)
