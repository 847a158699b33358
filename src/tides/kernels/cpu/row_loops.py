"""The elementwise parts of a fused block, over rows of steps whose features are filled up to whole vectors.

Global arrays are flat, their rows not filled up; scratch is flat too, with rows of whole vectors and zeros behind the
features.
"""

import numpy as np

from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.lane_values import load, load_some, spread, store, store_some, total


@compiled
def entered(x, first, count, width, whole, lanes, scale, shift, valid, u):  # type: ignore[no-untyped-def]
    """u = x · scale + shift, zero where a step is not valid (`valid` is empty if all are): padding may hold NaN."""
    nothing = spread(u.dtype.type(0))
    for t in range(count):
        if valid.size > 0 and not valid[first + t]:
            for c in range(0, whole, lanes):
                store(nothing, u, t * whole + c)
        else:
            at = (first + t) * width
            for c in range(0, whole, lanes):
                row = load_some(x, at + c, width - c)
                store(row * load(scale, c) + load(shift, c), u, t * whole + c)


@compiled
def left(x, first, count, width, whole, lanes, added, scale, out):  # type: ignore[no-untyped-def]
    """out = x + added · scale, with `added` in scratch."""
    for t in range(count):
        at = (first + t) * width
        for c in range(0, whole, lanes):
            value = load_some(x, at + c, width - c) + load(added, t * whole + c) * load(scale, c)
            store_some(value, out, at + c, width - c)


@compiled
def taken(x, first, count, width, lanes, out, step, begin):  # type: ignore[no-untyped-def]
    """out[:, begin : begin + width] = x."""
    for t in range(count):
        at = (first + t) * width
        for c in range(0, width, lanes):
            store_some(load_some(x, at + c, width - c), out, t * step + begin + c, width - c)


@compiled
def added(x, first, count, width, lanes, out, step):  # type: ignore[no-untyped-def]
    """out[:, :width] += x, to scratch."""
    for t in range(count):
        at = (first + t) * width
        for c in range(0, width, lanes):
            store(load(out, t * step + c) + load_some(x, at + c, width - c), out, t * step + c)


@compiled
def given(x, step, begin, first, count, width, lanes, out):  # type: ignore[no-untyped-def]
    """out = x[:, begin : begin + width], from scratch."""
    for t in range(count):
        at = (first + t) * width
        for c in range(0, width, lanes):
            store_some(load_some(x, t * step + begin + c, width - c), out, at + c, width - c)


@compiled
def masked(x, first, count, whole, valid):  # type: ignore[no-untyped-def]
    """x ← 0 at steps that are not valid."""
    if valid.size > 0:
        for t in range(count):
            if not valid[first + t]:
                x[t * whole : (t + 1) * whole] = x.dtype.type(0)


@compiled
def dropped(x, first, count, width, whole, kept, which, factor):  # type: ignore[no-untyped-def]
    """Dropout: x ← x · factor where `kept`, else 0."""
    if kept.shape[0] > 0:
        real, zero = x.dtype.type, x.dtype.type(0)
        for t in range(count):
            for c in range(width):
                keep = kept[which, (first + t) * width + c]
                x[t * whole + c] = x[t * whole + c] * real(factor) if keep else zero


@compiled
def normalised_modes(heads, step, begin, count, modes, lanes, weight, normed, eps, scales, out, at):  # type: ignore[no-untyped-def]
    """out = θ · scale · weight with the inverse rms over the modes of every step in `scales`; θ = heads[:, begin:]."""
    real = heads.dtype.type
    for t in range(count):
        scale = real(1)
        if normed:
            square = spread(real(0))
            for c in range(0, modes, lanes):
                theta = load(heads, t * step + begin + c)
                square = square + theta * theta
            scale = real(1) / np.sqrt(total(square) / real(modes) + real(eps))
        scales[t] = scale
        for c in range(0, modes, lanes):
            value = load(heads, t * step + begin + c) * scale * load(weight, c)
            store_some(value, out, at + t * modes + c, modes - c)


@compiled
def modes_backward(heads, step, begin, count, modes, lanes, weight, normed, scales, gradient, d_heads, d_weight):  # type: ignore[no-untyped-def]
    """d_heads[:, begin:] from the gradient (count, modes) of normalised θ; `d_weight` is added to."""
    real = heads.dtype.type
    for t in range(count):
        along, scale, at = spread(real(0)), scales[t], t * step + begin
        if normed:
            for c in range(0, modes, lanes):
                product = load_some(gradient, t * modes + c, modes - c) * load(heads, at + c)
                store(load(d_weight, c) + product * scale, d_weight, c)
                along = along + product * load(weight, c)
        share = total(along) * scale * scale / real(modes)
        for c in range(0, modes, lanes):
            g = load_some(gradient, t * modes + c, modes - c) * load(weight, c)
            store((g - load(heads, at + c) * share) * scale, d_heads, at + c)


@compiled
def finished(mixed, inverse, normed, u, skip, count, whole, lanes, y):  # type: ignore[no-untyped-def]
    """y = mixed · inverse + skip · u, without the inverse norm if there is none."""
    for t in range(count):
        for c in range(0, whole, lanes):
            at = t * whole + c
            value = load(mixed, at)
            if normed:
                value = value * load(inverse, at)
            store(value + load(skip, c) * load(u, at), y, at)


@compiled
def skip_backward(gradient, u, skip, count, whole, lanes, du, d_skip):  # type: ignore[no-untyped-def]
    """du = skip · gradient, d_skip += Σ gradient · u."""
    for c in range(0, whole, lanes):
        factor, collected = load(skip, c), spread(u.dtype.type(0))
        for t in range(count):
            g = load(gradient, t * whole + c)
            store(factor * g, du, t * whole + c)
            collected = collected + g * load(u, t * whole + c)
        store(load(d_skip, c) + collected, d_skip, c)


@compiled
def summed(x, count, step, columns, lanes, out):  # type: ignore[no-untyped-def]
    """out += Σ_t x[t]: the gradient of a bias."""
    for c in range(0, columns, lanes):
        collected = spread(x.dtype.type(0))
        for t in range(count):
            collected = collected + load(x, t * step + c)
        store(load(out, c) + collected, out, c)


@compiled
def summed_products(x, y, count, whole, lanes, out):  # type: ignore[no-untyped-def]
    """out += Σ_t x[t] y[t]."""
    for c in range(0, whole, lanes):
        collected = spread(x.dtype.type(0))
        for t in range(count):
            collected = collected + load(x, t * whole + c) * load(y, t * whole + c)
        store(load(out, c) + collected, out, c)
