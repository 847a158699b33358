"""The tail's gradients inside a block: dy and the sums for the tail's weights, in one pass over the steps."""

import triton.language as tl

from tides.kernels.triton.block_kernels import kept, load_steps, normalise
from tides.kernels.triton.block_weight_kernels import add_sums
from tides.kernels.triton.launched import launched
from tides.kernels.triton.outer_kernels import add_outer, add_pairs, beside, sum_pairs, zero_pairs
from tides.kernels.triton.product_kernels import halve_matrix, halve_rows, product, sides, turned
from tides.kernels.triton.tail_kernels import gelu, load_matrix, sigmoid
from tides.kernels.triton.tile_kernels import channels, load_tile, store_tile


@launched
def tail_backward_block_kernel(
    gradient, x, affine, valid, packed, readout, seed, d_y, partial, N, W, start, rows, tiles, width, at_skip,
    H: tl.constexpr, F: tl.constexpr, HB: tl.constexpr, FB: tl.constexpr, BM: tl.constexpr, HAS_VALID: tl.constexpr,
    DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dy of a range, and sums over all ranges so far for the weights of tail and skip, a row for every program."""
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
    partial += (model * tl.num_programs(0) + program) * width
    h = channels(HB)
    # Value and gate side by side; of each a weight, then its bias.
    both = channels(2 * FB)
    f = both % FB
    at_inner = H + both // FB * (F * H + F)
    at_last: tl.constexpr = H + 2 * (F * H + F)
    inside = (f < F)[:, None] & (h < H)[None, :]
    inner = packed + at_skip + at_inner
    m_inner, inner_unit = halve_matrix(tl.load(inner[:, None] + (f * H)[:, None] + h[None, :], inside, 0.0))
    outer = packed + at_skip + at_last
    m_last, last_unit = halve_matrix(load_matrix(outer, h, channels(FB), H, F))
    of_inner = tl.zeros((2 * FB, HB), tl.float32)
    of_last = tl.zeros((FB, HB), tl.float32)
    of_inner_bias = zero_pairs(BM, 2 * FB)
    of_last_bias = zero_pairs(BM, HB)
    of_skip = zero_pairs(BM, HB)
    near = program * tiles * BM
    end = tl.minimum(stop, near + tiles * BM)
    x_ahead = load_tile(x, near, end, H, BM, HB)
    y_ahead = load_tile(readout, near, end, H, BM, HB)
    g_ahead = load_tile(gradient, near, end, H, BM, HB)
    for tile in tl.range(tiles, num_stages=1, disable_licm=True):
        first = (program * tiles + tile) * BM
        u, keep = normalise(x_ahead, affine, valid, first, stop, H, HB, BM, HAS_VALID)
        g = g_ahead
        y = y_ahead + u * tl.load(packed + at_skip + h, h < H, 0.0)[None, :]
        activated, slope = gelu(tl.where(keep[:, None], y, 0.0))
        if DROP > 0:
            row = begin + first + tl.arange(0, BM)
            activated = activated * kept(seed, 0, row, h, DROP)
            g = g * kept(seed, 1, row, h, DROP)
        halves, unit = halve_rows(activated)
        mapped = product(halves, turned(m_inner), PRECISION) * (unit * inner_unit)
        linear, gating = sides(mapped + tl.load(inner + F * H + f, f < F, 0.0)[None, :])
        gating = sigmoid(gating)
        g_halves, g_unit = halve_rows(g)
        d_linear = product(g_halves, m_last, PRECISION) * (g_unit * last_unit) * gating
        gated, gated_unit = halve_rows(linear * gating)
        of_last = add_outer(of_last, gated, gated_unit, g_halves, g_unit, PRECISION)
        of_last_bias = add_pairs(of_last_bias, g)
        d_inner = beside(d_linear, d_linear * linear * (1.0 - gating))
        of_inner_bias = add_pairs(of_inner_bias, d_inner)
        d_halves, d_unit = halve_rows(d_inner)
        of_inner = add_outer(of_inner, d_halves, d_unit, halves, unit, PRECISION)
        # The next tile's, on their way from memory while the rest of this one is computed.
        x_ahead = load_tile(x, first + BM, end, H, BM, HB)
        y_ahead = load_tile(readout, first + BM, end, H, BM, HB)
        g_ahead = load_tile(gradient, first + BM, end, H, BM, HB)
        change = product(d_halves, m_inner, PRECISION) * (d_unit * inner_unit)
        if DROP > 0:
            change = change * kept(seed, 0, row, h, DROP)
        change = tl.where(keep[:, None], change * slope, 0.0)
        _, u, _ = load_steps(x, affine, valid, first, stop, H, HB, BM, HAS_VALID, AGAIN=True)
        of_skip = add_pairs(of_skip, change * u)
        store_tile(d_y, change, first, stop, H, H)
    add_sums(partial, h, sum_pairs(of_skip), h < H, start)
    add_sums(partial, (at_inner + f * H)[:, None] + h[None, :], of_inner, inside, start)
    add_sums(partial, at_inner + F * H + f, sum_pairs(of_inner_bias), f < F, start)
    partial += at_last
    inside = (channels(FB) < F)[:, None] & (h < H)[None, :]
    add_sums(partial, h[None, :] * F + channels(FB)[:, None], of_last, inside, start)
    add_sums(partial, H * F + h, sum_pairs(of_last_bias), h < H, start)
