"""A block's weights as its compiled passes read them: panels for products, forwards and turned, and column norms."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tides.kernels.cpu.block_layout import Layout, Sizes
from tides.kernels.cpu.column_loops import gram, triangle
from tides.kernels.cpu.intervals import compiled


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
def _pack(dense, lanes, out):  # type: ignore[no-untyped-def]
    """A matrix of whole vectors in panels."""
    depth, columns = dense.shape
    at = 0
    for left in range(0, columns, 2 * lanes):
        width = min(2 * lanes, columns - left)
        for k in range(depth):
            for c in range(width):
                out[np.uint64(at + c)] = dense[np.uint64(k), np.uint64(left + c)]
            at += width


@compiled
def _pack_linear(dense, lanes, forward, turned):  # type: ignore[no-untyped-def]
    """From (in + 1, whole out), the bias first: its panels, and those of the map turned, as deep as there is room."""
    width, columns = dense.shape[0] - 1, dense.shape[1]
    whole = -(-width // lanes) * lanes
    _pack(dense, lanes, forward)
    back = np.zeros((turned.size // whole, whole), dtype=dense.dtype)
    for j in range(min(columns, back.shape[0])):
        for k in range(width):
            back[j, k] = dense[k + 1, j]
    _pack(back, lanes, turned)


@compiled
def _place(flat, weight, bias, rows, width, dense, column):  # type: ignore[no-untyped-def]
    """A map (rows, width) of the vector as columns from `column` on."""
    for j in range(rows):
        dense[0, column + j] = flat[bias + j]
        for k in range(width):
            dense[k + 1, column + j] = flat[weight + j * width + k]


@compiled
def _place_code(flat, layout, weight, bias, dense):  # type: ignore[no-untyped-def]
    """z̃ = [W_down u + c; 1], or [u; 1] for a full-rank head."""
    if layout.down:
        _place(flat, weight, bias, layout.rank, layout.width, dense, 0)
    else:
        for k in range(layout.width):
            dense[k + 1, k] = flat.dtype.type(1)
    dense[0, layout.rank] = flat.dtype.type(1)


@compiled
def _pack_mix(flat, base, up, norm, normed, modes, width, rank, readout, factor, lanes, kernel, turned):  # type: ignore[no-untyped-def]
    """K (h to 2p) of the drive or (2p to h) of the readout."""
    inner, outer = (2 * modes, width) if readout else (width, 2 * modes)
    inner_whole, outer_whole = -(-inner // lanes) * lanes, -(-outer // lanes) * lanes
    dense = np.zeros((inner, outer_whole), dtype=flat.dtype)
    back = np.zeros((outer, inner_whole), dtype=flat.dtype)
    for i in range(rank + 1):
        for p in range(modes):
            weight = flat.dtype.type(factor)
            if normed:
                weight *= flat[norm + p]
            for h in range(width):
                for part in range(2):
                    at = 2 * (p * width + h) + part
                    value = (flat[up + at * rank + i] if i < rank else flat[base + at]) * weight
                    column = 2 * p + part
                    if readout:
                        # Re(C s) = C_re s_re − C_im s_im.
                        value = -value if part == 1 else value
                        dense[column, h] = value
                        back[h, column] = value
                    else:
                        dense[h, column] = value
                        back[column, h] = value
        _pack(dense, lanes, kernel[i * inner * outer_whole :])
        _pack(back, lanes, turned[i * outer * inner_whole :])


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
    rows = np.empty((size * (size + 1) // 2, columns), dtype=flat.dtype)
    at = 0
    for i in range(size):
        for j in range(i, size):
            for h in range(columns):
                forms[at * columns + h] = 2.0 * form[i, j, h]
                rows[at, h] = root[i, j, h]
            at += 1
    _pack(rows, lanes, triangles)


@compiled
def pack(flat, layout, places, sizes, factor, panels):  # type: ignore[no-untyped-def]
    """Everything but scale and shift; `factor` multiplies the readout."""
    lanes, width, inner, real = sizes.lanes, sizes.width, sizes.inner, flat.dtype.type
    dense = np.zeros((width + 1, sizes.heads), dtype=flat.dtype)
    _place_code(flat, layout, places.drive_down, places.drive_down_bias, dense)
    _place(flat, places.decay, places.decay_bias, sizes.modes, width, dense, sizes.code_whole)
    _pack_linear(dense, lanes, panels.heads, panels.heads_turned)
    dense = np.zeros((width + 1, sizes.code_whole), dtype=flat.dtype)
    _place_code(flat, layout, places.readout_down, places.readout_down_bias, dense)
    _pack_linear(dense, lanes, panels.codes, panels.codes_turned)
    dense = np.zeros((width + 1, sizes.inner_whole), dtype=flat.dtype)
    _place(flat, places.value, places.value_bias, inner, width, dense, 0)
    _pack_linear(dense, lanes, panels.value, panels.value_turned)
    _place(flat, places.gate, places.gate_bias, inner, width, dense, 0)
    _pack_linear(dense, lanes, panels.gate, panels.gate_turned)
    dense = np.zeros((inner + 1, sizes.whole), dtype=flat.dtype)
    _place(flat, places.outer, places.outer_bias, width, inner, dense, 0)
    _pack_linear(dense, lanes, panels.outer, panels.outer_turned)
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
