"""What a block's passes sum up over steps, and the gradients of its weights made of it."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tides.kernels.cpu.block_layout import Layout, Sizes
from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.lane_values import load, store
from tides.kernels.cpu.scratch import borrowed, hold, rooms


class Sums(NamedTuple):
    """Gradients of maps (in, whole out) and biases, of K (i, in, whole out), G (i ≤ j, whole h), rows of numbers.

    `scale` is Σ du u and `shift` Σ du, of the normalised input u.
    """

    heads: Any
    heads_bias: Any
    codes: Any
    codes_bias: Any
    value: Any
    value_bias: Any
    gate: Any
    gate_bias: Any
    outer: Any
    outer_bias: Any
    drive: Any
    drive_forms: Any
    readout: Any
    readout_forms: Any
    rate_norm: Any
    skip: Any
    scale: Any
    shift: Any


@cache
def sum_lengths(layout: Layout, sizes: Sizes) -> tuple[int, ...]:
    """Of all parts, in order."""
    h, f, width = sizes.whole, sizes.inner_whole, sizes.width
    linear = (
        width * sizes.heads, sizes.heads, width * sizes.code_whole, sizes.code_whole,
        width * f, f, width * f, f, sizes.inner * h, h,
    )  # fmt: skip
    drive = (sizes.code * width * sizes.planes_whole, layout.drive_norm * sizes.monomials * h)
    readout = (sizes.code * sizes.states * h, layout.readout_norm * sizes.monomials * h)
    return (*linear, *drive, *readout, sizes.modes_whole, h, h, h)


@compiled
def _map_gradient(sums, bias_sums, columns, column, rows, width, weight, bias, out):  # type: ignore[no-untyped-def]
    """To (rows, width) and (rows) of the vector, from columns that begin at `column`."""
    for j in range(rows):
        out[bias + j] = bias_sums[column + j]
        for k in range(width):
            out[weight + j * width + k] = sums[k * columns + column + j]


@compiled
def _mix_slopes(forms, size, whole, share, out):  # type: ignore[no-untyped-def]
    """out[i, j, h], symmetric, from the gradients of G for i ≤ j."""
    at = 0
    for i in range(size):
        for j in range(i, size):
            for h in range(whole):
                out[(i * size + j) * whole + h] = out[(j * size + i) * whole + h] = forms[at * whole + h] * share
            at += 1


@compiled
def _mix_gradient(  # type: ignore[no-untyped-def]
    flat, base, up, norm, normed, modes, width, rank, readout, factor, columns, sums, forms, whole, lanes, out
):
    """Of base, up and norm from those of K and G: mean_p |𝓑 z̃|² = z̃ᵀ G z̃ has the share 2/p · 𝓑 dG.

    One plane of 𝓑 (i, h) at a time, all h side by side.
    """
    size, real = rank + 1, flat.dtype.type
    space, (slopes, own, d_own, found, along) = rooms(
        (size * size * whole, size * whole, size * whole, size * whole, whole), flat
    )
    if normed:
        _mix_slopes(forms, size, whole, real(2.0 / modes), slopes)
    inner = 2 * modes if readout else width
    for p in range(modes):
        weight = flat[norm + p] if normed else real(1)
        for part in range(2):
            sign = real(-factor if readout and part == 1 else factor)
            begin, step = ((2 * p + part) * columns, 1) if readout else (2 * p + part, columns)
            at = 2 * p * width + part
            for h in range(width):
                for i in range(rank):
                    own[np.uint64(i * whole + h)] = flat[np.uint64(up + (at + 2 * h) * rank + i)]
                own[rank * whole + h] = flat[base + at + 2 * h]
            for i in range(size):
                for h in range(width):
                    d_own[np.uint64(i * whole + h)] = sums[np.uint64(begin + i * inner * columns + h * step)] * sign
            for c in range(0, whole, lanes):
                product = load(along, c)
                for j in range(size):
                    d = load(d_own, j * whole + c)
                    product = product + d * load(own, j * whole + c)
                    value = d * weight
                    if normed:
                        for i in range(size):
                            value = value + load(own, i * whole + c) * load(slopes, (i * size + j) * whole + c)
                    store(value, found, j * whole + c)
                store(product, along, c)
            for h in range(width):
                for i in range(rank):
                    out[np.uint64(up + (at + 2 * h) * rank + i)] = found[np.uint64(i * whole + h)]
                out[base + at + 2 * h] = found[rank * whole + h]
        if normed:
            total = 0.0
            for h in range(width):
                total += along[h]
                along[h] = real(0)
            out[norm + p] = total
    hold(space)


@compiled
def weight_gradients(flat, layout, places, sizes, factor, sums, d_frequency, d_clock, clock, out):  # type: ignore[no-untyped-def]
    """The gradient of the vector of weights; `d_frequency` and `d_clock` are of frequencies and exp(step)."""
    flat, sums, d_frequency, d_clock, clock, out = borrowed((flat, sums, d_frequency, d_clock, clock, out))
    width, inner, h = sizes.width, sizes.inner, sizes.whole
    _map_gradient(
        sums.heads, sums.heads_bias, sizes.heads, sizes.code_whole, sizes.modes, width, places.decay,
        places.decay_bias, out,
    )  # fmt: skip
    if layout.down:
        _map_gradient(
            sums.heads, sums.heads_bias, sizes.heads, 0, layout.rank, width, places.drive_down,
            places.drive_down_bias, out,
        )  # fmt: skip
        _map_gradient(
            sums.codes, sums.codes_bias, sizes.code_whole, 0, layout.rank, width, places.readout_down,
            places.readout_down_bias, out,
        )  # fmt: skip
    _map_gradient(sums.value, sums.value_bias, sizes.inner_whole, 0, inner, width, places.value, places.value_bias, out)
    _map_gradient(sums.gate, sums.gate_bias, sizes.inner_whole, 0, inner, width, places.gate, places.gate_bias, out)
    _map_gradient(sums.outer, sums.outer_bias, h, 0, width, inner, places.outer, places.outer_bias, out)
    _mix_gradient(
        flat, places.drive_base, places.drive_up, places.drive_norm, layout.drive_norm, sizes.modes, width,
        layout.rank, False, 1.0, sizes.planes_whole, sums.drive, sums.drive_forms, h, sizes.lanes, out,
    )  # fmt: skip
    _mix_gradient(
        flat, places.readout_base, places.readout_up, places.readout_norm, layout.readout_norm,
        sizes.modes * sizes.directions, width, layout.rank, True, factor, h, sums.readout, sums.readout_forms, h,
        sizes.lanes, out,
    )  # fmt: skip
    for j in range(sizes.modes):
        if layout.rate_norm:
            out[places.rate_norm + j] = sums.rate_norm[j]
        out[places.frequency + j] = d_frequency[j]
        out[places.step + j] = d_clock[j] * clock[j]
    for j in range(width):
        out[places.skip + j] = sums.skip[j]
