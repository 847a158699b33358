"""The tail's gradients inside a block: dy in one pass over the steps, the sums for its weights in another.

Together they would need more registers than a program has.
"""

import triton
import triton.language as tl

from tides.kernels.triton.block_kernels import kept, load_input
from tides.kernels.triton.block_weight_kernels import add_sums
from tides.kernels.triton.launched import launched
from tides.kernels.triton.product_kernels import product, split
from tides.kernels.triton.tail_kernels import gelu, load_matrix


@triton.jit
def load_activation(
    x, affine, valid, packed, readout, seed, row, local, live, at_skip, H: tl.constexpr, HB: tl.constexpr,
    HAS_VALID: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """u, which rows are kept, y = Re(C s) + skip ⊙ u, Φ(y) and GELU(y), dropped out as it was."""
    h = tl.arange(0, HB)
    _, u, keep = load_input(x, affine, valid, row, live, H, HB, HAS_VALID)
    y = tl.load(readout + local[:, None] * H + h[None, :], live[:, None] & (h < H)[None, :], 0.0)
    y = tl.where(keep[:, None], y + u * tl.load(packed + at_skip + h, h < H, 0.0)[None, :], 0.0)
    activated, cumulative = gelu(y)
    if DROP > 0:
        activated = activated * kept(seed, 0, row, HB, DROP)
    return u, keep, y, cumulative, activated


@launched
def tail_backward_block_kernel(
    gradient, x, affine, valid, packed, readout, seed, d_y, d_inner, gated, N, W, start, rows, tiles, at_skip,
    H: tl.constexpr, F: tl.constexpr, HB: tl.constexpr, FB: tl.constexpr, BM: tl.constexpr, HAS_VALID: tl.constexpr,
    DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dy of a range; what the tail's weights need, the inner maps' gradients and products, is written out."""
    model = tl.program_id(1).to(tl.int64)
    packed += model * W
    affine += model * 2 * H
    seed += model
    h = tl.arange(0, HB)
    f = tl.arange(0, FB)
    value = packed + at_skip + H
    gate = value + F * H + F
    # In shared memory for all tiles.
    m_value = split(load_matrix(value, f, h, F, H))
    m_gate = split(load_matrix(gate, f, h, F, H))
    m_out = split(load_matrix(gate + F * H + F, h, f, H, F))
    value_turned = (tl.trans(m_value[0]), tl.trans(m_value[1]))
    gate_turned = (tl.trans(m_gate[0]), tl.trans(m_gate[1]))
    for tile in tl.range(tiles, num_stages=1, disable_licm=True):
        local = (tl.program_id(0).to(tl.int64) * tiles + tile) * BM + tl.arange(0, BM)
        live = (local < rows) & (start + local < N)
        row = model * N + start + local
        local += model * rows
        at = row[:, None] * H + h[None, :]
        inside = live[:, None] & (h < H)[None, :]
        _, keep, y, cumulative, activated = load_activation(
            x, affine, valid, packed, readout, seed, row, local, live, at_skip, H, HB, HAS_VALID, DROP
        )
        g = tl.load(gradient + at, inside, 0.0)
        if DROP > 0:
            g = g * kept(seed, 1, row, HB, DROP)
        halves = split(activated)
        linear = product(halves, value_turned, PRECISION)
        linear += tl.load(value + F * H + f, f < F, 0.0)[None, :]
        gating = product(halves, gate_turned, PRECISION)
        gating = tl.sigmoid(gating + tl.load(gate + F * H + f, f < F, 0.0)[None, :])
        d_linear = product(split(g), m_out, PRECISION) * gating
        d_gating = d_linear * linear * (1.0 - gating)
        inner = local[:, None] * F + f[None, :]
        in_f = live[:, None] & (f < F)[None, :]
        tl.store(gated + inner, linear * gating, in_f)
        inner += local[:, None] * F
        tl.store(d_inner + inner, d_linear, in_f)
        tl.store(d_inner + F + inner, d_gating, in_f)
        change = product(split(d_linear), m_value, PRECISION)
        change += product(split(d_gating), m_gate, PRECISION)
        if DROP > 0:
            change = change * kept(seed, 0, row, HB, DROP)
        change = change * (cumulative + y * 0.3989422804014327 * tl.exp(-0.5 * y * y))
        tl.store(d_y + at, tl.where(keep[:, None], change, 0.0), inside)


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
        _, _, _, _, activated = load_activation(
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
        _, u, _ = load_input(x, affine, valid, row, live, H, HB, HAS_VALID)
        skip += tl.load(d_y + at, live[:, None] & (h < H)[None, :], 0.0) * u
        if DROP > 0:
            g = g * kept(seed, 1, row, HB, DROP)
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
