"""The tail's gradients inside a block: dy in one pass over the steps, the sums for its weights in another.

Together they would need more registers than a program has.
"""

import triton
import triton.language as tl

from tides.kernels.triton.block_kernels import kept, load_input, load_steps
from tides.kernels.triton.block_weight_kernels import add_sums
from tides.kernels.triton.launched import launched
from tides.kernels.triton.product_kernels import halve_matrix, halve_rows, product, split, turned
from tides.kernels.triton.tail_kernels import gelu, load_matrix, sigmoid
from tides.kernels.triton.tile_kernels import channels, load_tile, store_tile


@launched
def tail_backward_block_kernel(
    gradient, x, affine, valid, packed, readout, seed, d_y, d_inner, gated, N, W, start, rows, tiles, at_skip,
    H: tl.constexpr, F: tl.constexpr, HB: tl.constexpr, FB: tl.constexpr, BM: tl.constexpr, HAS_VALID: tl.constexpr,
    DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dy of a range; what the tail's weights need, the inner maps' gradients and products, is written out."""
    program = tl.program_id(0).to(tl.int64)
    model = tl.program_id(1).to(tl.int64)
    stop = tl.minimum(rows, N - start)
    begin = model * N + start
    packed += model * W
    affine += model * 2 * H
    seed += model
    x += begin * H
    valid += begin
    gradient += begin * H
    d_y += begin * H
    readout += model * rows * H
    gated += model * rows * F
    d_inner += model * rows * (2 * F)
    h = channels(HB)
    f = channels(FB)
    value = packed + at_skip + H
    gate = value + F * H + F
    m_value, value_unit = halve_matrix(load_matrix(value, f, h, F, H))
    m_gate, gate_unit = halve_matrix(load_matrix(gate, f, h, F, H))
    m_last, last_unit = halve_matrix(load_matrix(gate + F * H + F, h, f, H, F))
    for tile in tl.range(tiles, num_stages=1, disable_licm=True):
        first = (program * tiles + tile) * BM
        _, u, keep = load_steps(x, affine, valid, first, stop, H, HB, BM, HAS_VALID)
        y = load_tile(readout, first, stop, H, BM, HB)
        g = load_tile(gradient, first, stop, H, BM, HB)
        y += u * tl.load(packed + at_skip + h, h < H, 0.0)[None, :]
        activated, slope = gelu(tl.where(keep[:, None], y, 0.0))
        if DROP > 0:
            row = begin + first + tl.arange(0, BM)
            activated = activated * kept(seed, 0, row, h, DROP)
            g = g * kept(seed, 1, row, h, DROP)
        halves, unit = halve_rows(activated)
        linear = product(halves, turned(m_value), PRECISION) * (unit * value_unit)
        linear += tl.load(value + F * H + f, f < F, 0.0)[None, :]
        gating = product(halves, turned(m_gate), PRECISION) * (unit * gate_unit)
        gating = sigmoid(gating + tl.load(gate + F * H + f, f < F, 0.0)[None, :])
        halves, unit = halve_rows(g)
        d_linear = product(halves, m_last, PRECISION) * (unit * last_unit) * gating
        d_gating = d_linear * linear * (1.0 - gating)
        store_tile(gated, linear * gating, first, stop, F, F)
        store_tile(d_inner, d_linear, first, stop, F, 2 * F)
        store_tile(d_inner + F, d_gating, first, stop, F, 2 * F)
        halves, unit = halve_rows(d_linear)
        change = product(halves, m_value, PRECISION) * (unit * value_unit)
        halves, unit = halve_rows(d_gating)
        change += product(halves, m_gate, PRECISION) * (unit * gate_unit)
        if DROP > 0:
            change = change * kept(seed, 0, row, h, DROP)
        store_tile(d_y, tl.where(keep[:, None], change * slope, 0.0), first, stop, H, H)


@triton.jit
def load_activated(
    x, affine, valid, packed, readout, seed, row, local, live, at_skip, H: tl.constexpr, HB: tl.constexpr,
    HAS_VALID: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """GELU(Re(C s) + skip ⊙ u), dropped out as it was, with its channels one after the other."""
    h = tl.arange(0, HB)
    u = load_input(x, affine, valid, row, live, H, HB, HAS_VALID)
    y = tl.load(readout + local[:, None] * H + h[None, :], live[:, None] & (h < H)[None, :], 0.0)
    y += u * tl.load(packed + at_skip + h, h < H, 0.0)[None, :]
    if HAS_VALID:
        y = tl.where((tl.load(valid + row, live, 0) != 0)[:, None], y, 0.0)
    activated, _ = gelu(y)
    if DROP > 0:
        activated = activated * kept(seed, 0, row, h, DROP)
    return activated


@triton.jit
def load_columns(pointer, step, live, column, STRIDE: tl.constexpr, inside):
    """`column` of the steps as a tile (columns, steps): what a product over steps has on its left."""
    return tl.load(pointer + step[None, :] * STRIDE + column[:, None], live[None, :] & inside[:, None], 0.0)


@triton.jit
def sum_inner(
    x, affine, valid, packed, readout, seed, d_inner, partial, N, start, rows, tiles, first, model, at_skip,
    H: tl.constexpr, F: tl.constexpr, HB: tl.constexpr, FB: tl.constexpr, BM: tl.constexpr, STAGES: tl.constexpr,
    HAS_VALID: tl.constexpr, DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Σ d_inner ⊗ GELU(y) and Σ d_inner."""
    h = tl.arange(0, HB)
    # Value and gate side by side.
    both = tl.arange(0, 2 * FB)
    f = both % FB
    place = both // FB * F + f
    total = tl.zeros((2 * FB, HB), tl.float32)
    bias = tl.zeros((2 * FB, BM), tl.float32)
    for tile in tl.range(tiles, num_stages=STAGES, disable_licm=True):
        local = first + tile * BM + tl.arange(0, BM)
        live = (local < rows) & (start + local < N)
        row = model * N + start + local
        local += model * rows
        change = load_columns(d_inner, local, live, place, 2 * F, f < F)
        activated = load_activated(
            x, affine, valid, packed, readout, seed, row, local, live, at_skip, H, HB, HAS_VALID, DROP
        )
        total = product(split(change), split(activated), PRECISION, total)
        bias += change
    # A map's weight, then its bias, for value and for gate.
    at = H + both // FB * (F * H + F)
    inside = (f < F)[:, None] & (h < H)[None, :]
    add_sums(partial, at[:, None] + f[:, None] * H + h[None, :], total, inside, start)
    add_sums(partial, at + F * H + f, tl.sum(bias, axis=1), f < F, start)


@triton.jit
def sum_outer(
    gradient, x, affine, valid, seed, d_y, gated, partial, N, start, rows, tiles, first, model, H: tl.constexpr,
    F: tl.constexpr, HB: tl.constexpr, FB: tl.constexpr, BM: tl.constexpr, STAGES: tl.constexpr,
    HAS_VALID: tl.constexpr, DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Σ g ⊗ (value ⊙ gate), Σ g and Σ dy ⊙ u."""
    h = tl.arange(0, HB)
    f = tl.arange(0, FB)
    total = tl.zeros((FB, HB), tl.float32)
    bias = tl.zeros((BM, HB), tl.float32)
    skip = tl.zeros((BM, HB), tl.float32)
    for tile in tl.range(tiles, num_stages=STAGES, disable_licm=True):
        local = first + tile * BM + tl.arange(0, BM)
        live = (local < rows) & (start + local < N)
        row = model * N + start + local
        passed = load_columns(gated, model * rows + local, live, f, F, f < F)
        at = row[:, None] * H + h[None, :]
        g = tl.load(gradient + at, live[:, None] & (h < H)[None, :], 0.0)
        u = load_input(x, affine, valid, row, live, H, HB, HAS_VALID)
        skip += tl.load(d_y + at, live[:, None] & (h < H)[None, :], 0.0) * u
        if DROP > 0:
            g = g * kept(seed, 1, row, h, DROP)
        total = product(split(passed), split(g), PRECISION, total)
        bias += g
    add_sums(partial, h, tl.sum(skip, axis=0), h < H, start)
    partial += H + 2 * (F * H + F)
    inside = (f < F)[:, None] & (h < H)[None, :]
    add_sums(partial, h[None, :] * F + f[:, None], total, inside, start)
    add_sums(partial, H * F + h, tl.sum(bias, axis=0), h < H, start)


@launched
def tail_sums_kernel(
    gradient, x, affine, valid, packed, readout, seed, d_y, d_inner, gated, partial, N, W, start, rows, tiles, width,
    at_skip, H: tl.constexpr, F: tl.constexpr, HB: tl.constexpr, FB: tl.constexpr, BM: tl.constexpr,
    STAGES: tl.constexpr, HAS_VALID: tl.constexpr, DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Sums for the weights of tail and skip, over all ranges so far.

    The grid's first axis: programs for the inner maps, and programs for the outer one and for skip, which read as much.
    """
    kind = tl.program_id(0)
    program = tl.program_id(1).to(tl.int64)
    model = tl.program_id(2).to(tl.int64)
    packed += model * W
    partial += (model * tl.num_programs(1) + program) * width
    first = program * tiles * BM
    if kind == 0:
        sum_inner(
            x, affine + model * 2 * H, valid, packed, readout, seed + model, d_inner, partial, N, start, rows, tiles,
            first, model, at_skip, H, F, HB, FB, BM, STAGES, HAS_VALID, DROP, PRECISION,
        )  # fmt: skip
    else:
        sum_outer(
            gradient, x, affine + model * 2 * H, valid, seed + model, d_y, gated, partial, N, start, rows, tiles, first,
            model, H, F, HB, FB, BM, STAGES, HAS_VALID, DROP, PRECISION,
        )  # fmt: skip
