"""A block's weights as its compiled passes read them: panels for products, forwards and turned, and column norms."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tides.kernels.cpu.block_layout import Layout, Sizes
from tides.kernels.cpu.column_loops import gram, triangle
from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.scratch import borrowed


class Panels(NamedTuple):
    """Linear maps with their bias as first row, and `…_turned`; K of a mix for every entry of its code.

    `…_triangles` and `…_forms` are R (in panels) and 2G (rows of h for i ≤ j) of the column norms, empty without a
    norm. `scale` and `shift` are the block's norm, `clock` is exp(step).
    """

    heads: Any
    heads_turned: Any
    codes: Any
    codes_turned: Any
    value: Any
    value_turned: Any
    gate: Any
    gate_turned: Any
    outer: Any
    outer_turned: Any
    drive: Any
    drive_turned: Any
    drive_triangles: Any
    drive_forms: Any
    readout: Any
    readout_turned: Any
    readout_triangles: Any
    readout_forms: Any
    rate_norm: Any
    skip: Any
    ones: Any
    scale: Any
    shift: Any
    frequency: Any
    clock: Any


@cache
def panel_lengths(layout: Layout, sizes: Sizes) -> tuple[int, ...]:
    """Of all parts, in order."""
    h, f = sizes.whole, sizes.inner_whole
    size, triangles = sizes.code, sizes.code * (sizes.code + 1) // 2
    drive = (size * sizes.width * sizes.planes_whole, size * sizes.planes * h)
    readout = (size * sizes.states * h, size * sizes.width * sizes.states_whole)
    norms = [(flag * triangles * h, flag * sizes.monomials * h) for flag in (layout.drive_norm, layout.readout_norm)]
    linear = (
        (sizes.width + 1) * sizes.heads, sizes.heads * h, (sizes.width + 1) * sizes.code_whole, size * h,
        *((sizes.width + 1) * f, sizes.inner * h) * 2, (sizes.inner + 1) * h, sizes.width * f,
    )  # fmt: skip
    rows = (sizes.modes_whole, h, h, h, h, sizes.modes_whole, sizes.modes_whole)
    return (*linear, *drive, *norms[0], *readout, *norms[1], *rows)


@compiled
def _place(row, column, depth, columns, lanes):  # type: ignore[no-untyped-def]
    """Where an element of a matrix (depth, columns), whole vectors, lies in its panels."""
    pair = 2 * lanes
    left = column & -pair
    return np.uint64(left * depth + row * min(pair, columns - left) + column - left)


@compiled
def _pack_linear(flat, weight, bias, rows, width, first, columns, forward, turned, back, lanes):  # type: ignore[no-untyped-def]
    """A map (rows, width) of the vector as columns from `first` on, behind its bias, and as rows of the map turned.

    `back` is the whole width.
    """
    depth = turned.size // back
    for j in range(rows):
        forward[_place(0, first + j, width + 1, columns, lanes)] = flat[bias + j]
        for k in range(width):
            value = flat[weight + j * width + k]
            forward[_place(k + 1, first + j, width + 1, columns, lanes)] = value
            turned[_place(first + j, k, depth, back, lanes)] = value


@compiled
def _pack_code(flat, layout, sizes, weight, bias, columns, forward, turned):  # type: ignore[no-untyped-def]
    """z̃ = [W_down u + c; 1], or [u; 1] for a full-rank head."""
    depth, one, lanes = turned.size // sizes.whole, flat.dtype.type(1), sizes.lanes
    if layout.down:
        _pack_linear(flat, weight, bias, layout.rank, layout.width, 0, columns, forward, turned, sizes.whole, lanes)
    else:
        for k in range(layout.width):
            forward[_place(k + 1, k, layout.width + 1, columns, lanes)] = one
            turned[_place(k, k, depth, sizes.whole, lanes)] = one
    forward[_place(0, layout.rank, layout.width + 1, columns, lanes)] = one


@compiled
def _pack_mix(flat, base, up, norm, normed, modes, width, rank, readout, factor, lanes, kernel, turned):  # type: ignore[no-untyped-def]
    """K (h to 2p) of the drive or (2p to h) of the readout."""
    inner, outer = (2 * modes, width) if readout else (width, 2 * modes)
    inner_whole, outer_whole = -(-inner // lanes) * lanes, -(-outer // lanes) * lanes
    for i in range(rank + 1):
        source, step = (up + i, rank) if i < rank else (base, 1)
        own, back = kernel[i * inner * outer_whole :], turned[i * outer * inner_whole :]
        for p in range(modes):
            for part in range(2):
                # Re(C s) = C_re s_re − C_im s_im.
                weight = flat.dtype.type(-factor if readout and part == 1 else factor)
                if normed:
                    weight *= flat[norm + p]
                plane, at = 2 * p + part, source + (2 * p * width + part) * step
                for h in range(width):
                    row, column = (plane, h) if readout else (h, plane)
                    value = flat[np.uint64(at + 2 * h * step)] * weight
                    own[_place(row, column, inner, outer_whole, lanes)] = value
                    back[_place(column, row, outer, inner_whole, lanes)] = value


@compiled
def _pack_columns(flat, base, up, modes, width, rank, lanes, triangles, forms):  # type: ignore[no-untyped-def]
    """R and 2G of every column, made in float64."""
    size, columns = rank + 1, -(-width // lanes) * lanes
    precise = np.zeros((2 * modes, size, columns))
    for p in range(modes):
        for h in range(width):
            for part in range(2):
                at = 2 * (p * width + h) + part
                for i in range(rank):
                    precise[2 * p + part, i, h] = flat[up + at * rank + i]
                precise[2 * p + part, rank, h] = flat[base + at]
    form, root = np.empty((size, size, columns)), np.empty((size, size, columns))
    gram(precise, form)
    triangle(form, root)
    at, entries = 0, size * (size + 1) // 2
    for i in range(size):
        for j in range(i, size):
            for h in range(columns):
                forms[at * columns + h] = 2.0 * form[i, j, h]
                triangles[_place(at, h, entries, columns, lanes)] = root[i, j, h]
            at += 1


@compiled
def pack(flat, layout, places, sizes, factor, panels):  # type: ignore[no-untyped-def]
    """Everything but scale and shift, where zeros are; `factor` multiplies the readout."""
    flat, panels = borrowed((flat, panels))
    lanes, width, inner, real = sizes.lanes, sizes.width, sizes.inner, flat.dtype.type
    h, f = sizes.whole, sizes.inner_whole
    _pack_code(
        flat, layout, sizes, places.drive_down, places.drive_down_bias, sizes.heads, panels.heads, panels.heads_turned
    )
    _pack_linear(
        flat, places.decay, places.decay_bias, sizes.modes, width, sizes.code_whole, sizes.heads, panels.heads,
        panels.heads_turned, h, lanes,
    )  # fmt: skip
    _pack_code(
        flat, layout, sizes, places.readout_down, places.readout_down_bias, sizes.code_whole, panels.codes,
        panels.codes_turned,
    )  # fmt: skip
    _pack_linear(flat, places.value, places.value_bias, inner, width, 0, f, panels.value, panels.value_turned, h, lanes)
    _pack_linear(flat, places.gate, places.gate_bias, inner, width, 0, f, panels.gate, panels.gate_turned, h, lanes)
    _pack_linear(flat, places.outer, places.outer_bias, width, inner, 0, h, panels.outer, panels.outer_turned, f, lanes)
    _pack_mix(
        flat, places.drive_base, places.drive_up, places.drive_norm, layout.drive_norm, sizes.modes, width, layout.rank,
        False, 1.0, lanes, panels.drive, panels.drive_turned,
    )  # fmt: skip
    if layout.drive_norm:
        _pack_columns(
            flat, places.drive_base, places.drive_up, sizes.modes, width, layout.rank, lanes,
            panels.drive_triangles, panels.drive_forms,
        )  # fmt: skip
    modes = sizes.modes * sizes.directions
    _pack_mix(
        flat, places.readout_base, places.readout_up, places.readout_norm, layout.readout_norm, modes, width,
        layout.rank, True, factor, lanes, panels.readout, panels.readout_turned,
    )  # fmt: skip
    if layout.readout_norm:
        _pack_columns(
            flat, places.readout_base, places.readout_up, modes, width, layout.rank, lanes,
            panels.readout_triangles, panels.readout_forms,
        )  # fmt: skip
    for j in range(sizes.modes):
        panels.rate_norm[j] = flat[places.rate_norm + j] if layout.rate_norm else real(1)
        panels.frequency[j] = flat[places.frequency + j]
        panels.clock[j] = np.exp(flat[places.step + j])
    for j in range(width):
        panels.skip[j] = flat[places.skip + j]
        panels.ones[j] = real(1)
