"""The tail's gradients inside a block: dy in one pass over the steps, the sums for its weights in another.

Together they would need more registers than a program has.
"""

import triton
import triton.language as tl

from tides.kernels.triton.block_kernels import kept, load_input
from tides.kernels.triton.tail_kernels import gelu, load_matrix


@triton.jit
def store_matrix(pointer, tile, rows, columns, R, C):
    tl.store(pointer + rows[:, None] * C + columns[None, :], tile, (rows < R)[:, None] & (columns < C)[None, :])


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


@triton.jit
def tail_backward_block_kernel(
    gradient, x, affine, valid, packed, readout, seed, d_y, d_inner, gated, N, W, start, rows, at_skip,
    H: tl.constexpr, F: tl.constexpr, HB: tl.constexpr, FB: tl.constexpr, BM: tl.constexpr, HAS_VALID: tl.constexpr,
    DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dy of a range; what the tail's weights need, the inner maps' gradients and products, is written out."""
    model = tl.program_id(1).to(tl.int64)
    packed += model * W
    h = tl.arange(0, HB)
    f = tl.arange(0, FB)
    value = packed + at_skip + H
    gate = value + F * H + F
    local = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    live = (local < rows) & (start + local < N)
    row = model * N + start + local
    local += model * rows
    at = row[:, None] * H + h[None, :]
    inside = live[:, None] & (h < H)[None, :]
    u, keep, y, cumulative, activated = load_activation(
        x,
        affine + model * 2 * H,
        valid,
        packed,
        readout,
        seed + model,
        row,
        local,
        live,
        at_skip,
        H,
        HB,
        HAS_VALID,
        DROP,
    )
    g = tl.load(gradient + at, inside, 0.0)
    if DROP > 0:
        g = g * kept(seed + model, 1, row, HB, DROP)
    m_value = load_matrix(value, f, h, F, H)
    m_gate = load_matrix(gate, f, h, F, H)
    linear = tl.dot(activated, tl.trans(m_value), input_precision=PRECISION)
    linear += tl.load(value + F * H + f, f < F, 0.0)[None, :]
    gating = tl.dot(activated, tl.trans(m_gate), input_precision=PRECISION)
    gating = tl.sigmoid(gating + tl.load(gate + F * H + f, f < F, 0.0)[None, :])
    d_linear = tl.dot(g, load_matrix(gate + F * H + F, h, f, H, F), input_precision=PRECISION) * gating
    d_gating = d_linear * linear * (1.0 - gating)
    inner = local[:, None] * F + f[None, :]
    in_f = live[:, None] & (f < F)[None, :]
    tl.store(gated + inner, linear * gating, in_f)
    tl.store(d_inner + inner, d_linear, in_f)
    tl.store(d_inner + tl.num_programs(1).to(tl.int64) * rows * F + inner, d_gating, in_f)
    change = tl.dot(d_linear, m_value, input_precision=PRECISION)
    change += tl.dot(d_gating, m_gate, input_precision=PRECISION)
    if DROP > 0:
        change = change * kept(seed + model, 0, row, HB, DROP)
    change = change * (cumulative + y * 0.3989422804014327 * tl.exp(-0.5 * y * y))
    tl.store(d_y + at, tl.where(keep[:, None], change, 0.0), inside)


@triton.jit
def tail_sums_kernel(
    gradient, x, affine, valid, packed, readout, seed, d_y, d_inner, gated, partial, N, W, start, rows, tiles, width,
    at_skip, H: tl.constexpr, F: tl.constexpr, HB: tl.constexpr, FB: tl.constexpr, BM: tl.constexpr,
    HAS_VALID: tl.constexpr, DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Sums for the weights of tail and skip."""
    model = tl.program_id(1).to(tl.int64)
    program = tl.program_id(0).to(tl.int64)
    packed += model * W
    h = tl.arange(0, HB)
    f = tl.arange(0, FB)
    acc_value = tl.zeros((FB, HB), tl.float32)
    acc_gate = tl.zeros((FB, HB), tl.float32)
    acc_out = tl.zeros((HB, FB), tl.float32)
    acc_value_bias = tl.zeros((FB,), tl.float32)
    acc_gate_bias = tl.zeros((FB,), tl.float32)
    acc_out_bias = tl.zeros((HB,), tl.float32)
    acc_skip = tl.zeros((HB,), tl.float32)
    for tile in tl.range(tiles, num_stages=1, disable_licm=True):
        local = (program * tiles + tile) * BM + tl.arange(0, BM)
        live = (local < rows) & (start + local < N)
        row = model * N + start + local
        local += model * rows
        at = row[:, None] * H + h[None, :]
        inside = live[:, None] & (h < H)[None, :]
        u, _, _, _, activated = load_activation(
            x, affine + model * 2 * H, valid, packed, readout, seed + model, row, local, live, at_skip, H, HB,
            HAS_VALID, DROP,
        )  # fmt: skip
        acc_skip += tl.sum(tl.load(d_y + at, inside, 0.0) * u, axis=0)
        inner = local[:, None] * F + f[None, :]
        in_f = live[:, None] & (f < F)[None, :]
        change = tl.load(d_inner + inner, in_f, 0.0)
        acc_value += tl.dot(tl.trans(change), activated, input_precision=PRECISION)
        acc_value_bias += tl.sum(change, axis=0)
        change = tl.load(d_inner + tl.num_programs(1).to(tl.int64) * rows * F + inner, in_f, 0.0)
        acc_gate += tl.dot(tl.trans(change), activated, input_precision=PRECISION)
        acc_gate_bias += tl.sum(change, axis=0)
        # Beyond the last step g is zero, so nothing of it reaches the sums.
        g = tl.load(gradient + at, inside, 0.0)
        if DROP > 0:
            g = g * kept(seed + model, 1, row, HB, DROP)
        acc_out += tl.dot(tl.trans(g), tl.load(gated + inner, in_f, 0.0), input_precision=PRECISION)
        acc_out_bias += tl.sum(g, axis=0)

    partial += (model * tl.num_programs(0) + program) * width
    tl.store(partial + h, acc_skip, h < H)
    partial += H
    store_matrix(partial, acc_value, f, h, F, H)
    tl.store(partial + F * H + f, acc_value_bias, f < F)
    partial += F * H + F
    store_matrix(partial, acc_gate, f, h, F, H)
    tl.store(partial + F * H + f, acc_gate_bias, f < F)
    partial += F * H + F
    store_matrix(partial, acc_out, h, f, H, F)
    tl.store(partial + H * F + h, acc_out_bias, h < H)
