"""The tail's gradients inside a block: dy in one pass over the steps, the sums for its weights in another.

Together they would need more registers than a program has.
"""

import triton
import triton.language as tl

from tides.kernels.triton.block_kernels import kept, load_input
from tides.kernels.triton.block_weight_kernels import add_sums, alone, weighted
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
    m_value = split(load_matrix(value, f, h, F, H))
    m_gate = split(load_matrix(gate, f, h, F, H))
    halves = split(activated)
    linear = product(halves, (tl.trans(m_value[0]), tl.trans(m_value[1])), PRECISION)
    linear += tl.load(value + F * H + f, f < F, 0.0)[None, :]
    gating = product(halves, (tl.trans(m_gate[0]), tl.trans(m_gate[1])), PRECISION)
    gating = tl.sigmoid(gating + tl.load(gate + F * H + f, f < F, 0.0)[None, :])
    d_linear = product(split(g), split(load_matrix(gate + F * H + F, h, f, H, F)), PRECISION) * gating
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
        change = change * kept(seed + model, 0, row, HB, DROP)
    change = change * (cumulative + y * 0.3989422804014327 * tl.exp(-0.5 * y * y))
    tl.store(d_y + at, tl.where(keep[:, None], change, 0.0), inside)


@triton.jit
def tail_sums_kernel(
    gradient, x, affine, valid, packed, readout, seed, d_y, d_inner, gated, partial, N, W, start, rows, tiles, width,
    at_skip, H: tl.constexpr, F: tl.constexpr, HB: tl.constexpr, FB: tl.constexpr, BM: tl.constexpr,
    ALONE: tl.constexpr, HAS_VALID: tl.constexpr, DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Sums for the weights of tail and skip, over all ranges so far."""
    model = tl.program_id(1).to(tl.int64)
    program = tl.program_id(0).to(tl.int64)
    packed += model * W
    h = tl.arange(0, HB)
    f = tl.arange(0, FB)
    # Value and gate of the inner maps side by side.
    both = tl.arange(0, 2 * FB)
    f_both = both % FB
    place = both // FB * F + f_both
    acc_inner = tl.zeros((2 * FB, HB), tl.float32)
    acc_out = tl.zeros((ALONE * HB, FB), tl.float32)
    acc_inner_bias = tl.zeros((BM, 2 * FB), tl.float32)
    acc_out_bias = tl.zeros((BM, HB), tl.float32)
    acc_skip = tl.zeros((BM, HB), tl.float32)
    for tile in tl.range(tiles, num_stages=1, disable_licm=True):
        local = (program * tiles + tile) * BM + tl.arange(0, BM)
        live = (local < rows) & (start + local < N)
        row = model * N + start + local
        local += model * rows
        at = row[:, None] * H + h[None, :]
        inside = live[:, None] & (h < H)[None, :]
        # All loads before the first barrier: they wait for memory together. Beyond the last step g is zero, so nothing
        # of it reaches the sums.
        g = tl.load(gradient + at, inside, 0.0)
        in_f = live[:, None] & (f < F)[None, :]
        passed = tl.load(gated + local[:, None] * F + f[None, :], in_f, 0.0)
        behind = tl.load(d_y + at, inside, 0.0)
        u, _, _, _, activated = load_activation(
            x, affine + model * 2 * H, valid, packed, readout, seed + model, row, local, live, at_skip, H, HB,
            HAS_VALID, DROP,
        )  # fmt: skip
        change = tl.load(
            d_inner + local[:, None] * (2 * F) + place[None, :], live[:, None] & (f_both < F)[None, :], 0.0
        )
        acc_skip += behind * u
        acc_inner += product(split(tl.trans(change)), split(activated), PRECISION)
        acc_inner_bias += change
        if DROP > 0:
            g = g * kept(seed + model, 1, row, HB, DROP)
        acc_out += product(weighted(alone(ALONE), g, ALONE, HB), split(passed), PRECISION)
        acc_out_bias += g

    partial += (model * tl.num_programs(0) + program) * width
    add_sums(partial, h, tl.sum(acc_skip, axis=0), h < H, start)
    partial += H
    # A map's weight, then its bias, for value and for gate.
    at = both // FB * (F * H + F)
    inside = (f_both < F)[:, None] & (h < H)[None, :]
    add_sums(partial, at[:, None] + f_both[:, None] * H + h[None, :], acc_inner, inside, start)
    add_sums(partial, at + F * H + f_both, tl.sum(acc_inner_bias, axis=0), f_both < F, start)
    partial += 2 * (F * H + F)
    tall = tl.arange(0, ALONE * HB)[:, None]
    add_sums(partial, tall * F + f[None, :], acc_out, (tall < H) & (f < F)[None, :], start)
    add_sums(partial, H * F + h, tl.sum(acc_out_bias, axis=0), h < H, start)
