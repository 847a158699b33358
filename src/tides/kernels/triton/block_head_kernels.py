"""The gradients of a block's heads: dx and the sums for their weights, in one pass over the steps.

Programs visit many tiles, keep sums in registers and leave them in a row of `partial`, laid out as the packed weights
are; the rows are added in a fixed order. Decay rates and codes belong to a part of the batch that begins at the row
`start`.
"""

import triton
import triton.language as tl

from tides.kernels.triton.block_kernels import decay_head, normalise
from tides.kernels.triton.launched import launched
from tides.kernels.triton.outer_kernels import add_outer, add_pairs, sum_pairs, zero_pairs
from tides.kernels.triton.product_kernels import halve_matrix, halve_rows, product
from tides.kernels.triton.tail_kernels import load_matrix
from tides.kernels.triton.tile_kernels import channels, load_tile, store_tile


@triton.jit
def load_both_downs(
    packed, at_drive_code, at_readout_code, H: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, IB: tl.constexpr,
    DOWN: tl.constexpr,
):  # fmt: skip
    """W_down of the drive's code and below it that of the readout's (2 IB, HB); identities for heads of full rank."""
    both = channels(2 * IB)[:, None]
    h = channels(HB)[None, :]
    i = both % IB
    if DOWN:
        at = tl.where(both < IB, at_drive_code, at_readout_code) + i * H
        return tl.load(packed + at + h, (i < R) & (h < H), 0.0)
    else:
        return ((i == h) & (h < H)).to(tl.float32)


@triton.jit
def load_both_codes(drive, readout, first, stop, R: tl.constexpr, BM: tl.constexpr, IB: tl.constexpr):
    """Both codes' gradients side by side."""
    tile = load_tile(drive, first, stop, R, BM, 2 * IB)
    return tile + load_tile(readout, first, stop, R, BM, 2 * IB, SHIFT=IB)


@launched
def heads_backward_kernel(
    gradient, x, affine, valid, packed, d_decay, d_drive_codes, d_readout_codes, d_u, dx, partial, N, W, start, tiles,
    width, at_drive_code, at_readout_code, at_affine, eps, limit,
    H: tl.constexpr, P: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, PB: tl.constexpr, IB: tl.constexpr,
    BM: tl.constexpr, DOWN: tl.constexpr, RATE_NORM: tl.constexpr, REPARAM: tl.constexpr,
    CLIPPED: tl.constexpr, HAS_VALID: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dx of a part: the residual's gradient and du ⊙ scale, with du from d_u, both codes and the decay rates."""
    model = tl.program_id(1).to(tl.int64)
    program = tl.program_id(0).to(tl.int64)
    stop = N - start
    begin = model * N + start
    packed += model * W
    affine += model * 2 * H
    x += begin * H
    valid += begin
    gradient += begin * H
    d_u += begin * H
    dx += begin * H
    d_decay += model * N * P
    d_drive_codes += model * N * R
    d_readout_codes += model * N * R
    h = channels(HB)
    mode = channels(PB)
    downs, down_unit = halve_matrix(load_both_downs(packed, at_drive_code, at_readout_code, H, R, HB, IB, DOWN))
    weight, weight_unit = halve_matrix(load_matrix(packed, mode, h, P, H))
    of_decay = tl.zeros((PB, HB), tl.float32)
    of_codes = tl.zeros((2 * IB, HB), tl.float32)
    of_decay_bias = zero_pairs(BM, PB)
    of_code_bias = zero_pairs(BM, 2 * IB)
    of_norm = zero_pairs(BM, PB)
    of_scale = zero_pairs(BM, HB)
    of_shift = zero_pairs(BM, HB)
    near = program * tiles * BM
    end = tl.minimum(stop, near + tiles * BM)
    x_ahead = load_tile(x, near, end, H, BM, HB)
    codes_ahead = load_both_codes(d_drive_codes, d_readout_codes, near, end, R, BM, IB)
    decay_ahead = load_tile(d_decay, near, end, P, BM, PB)
    for tile in tl.range(tiles, num_stages=1, disable_licm=True):
        first = (program * tiles + tile) * BM
        raw = x_ahead
        u, keep = normalise(raw, affine, valid, first, stop, H, HB, BM, HAS_VALID)
        du = load_tile(d_u, first, stop, H, BM, HB)
        u_halves, u_unit = halve_rows(u)
        d_code = codes_ahead
        d_rate = decay_ahead
        halves, unit = halve_rows(d_code)
        if DOWN:
            of_codes = add_outer(of_codes, halves, unit, u_halves, u_unit, PRECISION)
            of_code_bias = add_pairs(of_code_bias, d_code)
        du += product(halves, downs, PRECISION) * (unit * down_unit)
        theta, inverse, norm, _, slope = decay_head(
            u_halves, u_unit, weight, weight_unit, packed, eps, limit, H, P, PB, RATE_NORM, REPARAM, CLIPPED, PRECISION
        )
        d_theta = d_rate * slope
        if RATE_NORM:
            of_norm = add_pairs(of_norm, d_theta * theta * inverse[:, None])
            d_theta = d_theta * norm[None, :]
            along = tl.sum(d_theta * theta, axis=1) / P * inverse * inverse
            d_theta = inverse[:, None] * (d_theta - theta * along[:, None])
        halves, unit = halve_rows(d_theta)
        before = load_tile(gradient, first, stop, H, BM, HB)
        # The next tile's, as in the tail's pass.
        x_ahead = load_tile(x, first + BM, end, H, BM, HB)
        codes_ahead = load_both_codes(d_drive_codes, d_readout_codes, first + BM, end, R, BM, IB)
        decay_ahead = load_tile(d_decay, first + BM, end, P, BM, PB)
        of_decay = add_outer(of_decay, halves, unit, u_halves, u_unit, PRECISION)
        of_decay_bias = add_pairs(of_decay_bias, d_theta)
        du += product(halves, weight, PRECISION) * (unit * weight_unit)

        du = tl.where(keep[:, None], du, 0.0)
        of_scale = add_pairs(of_scale, du * raw)
        of_shift = add_pairs(of_shift, du)
        scale = tl.load(affine + h, h < H, 0.0)[None, :]
        store_tile(dx, before + du * scale, first, stop, H, H)

    # A map's weight, then its bias.
    partial += (model * tl.num_programs(0) + program) * width
    tl.store(partial + (mode * H)[:, None] + h[None, :], of_decay, (mode < P)[:, None] & (h < H)[None, :])
    tl.store(partial + P * H + mode, sum_pairs(of_decay_bias), mode < P)
    if RATE_NORM:
        tl.store(partial + P * H + P + mode, sum_pairs(of_norm), mode < P)
    if DOWN:
        both = channels(2 * IB)
        i = both % IB
        at = tl.where(both < IB, at_drive_code, at_readout_code)
        tl.store(partial + (at + i * H)[:, None] + h[None, :], of_codes, (i < R)[:, None] & (h < H)[None, :])
        tl.store(partial + at + R * H + i, sum_pairs(of_code_bias), i < R)
    tl.store(partial + at_affine + h, sum_pairs(of_scale), h < H)
    tl.store(partial + at_affine + H + h, sum_pairs(of_shift), h < H)
