"""The gradients of a block's heads: dx in one pass over the steps, the sums for their weights in another.

Together they would need more registers than a program has. Programs visit many tiles, keep sums in registers and leave
them in a row of `partial`, laid out as the packed weights are; the rows are added in a fixed order. Decay rates and
codes belong to a part of the batch that begins at the row `start`.
"""

import triton
import triton.language as tl

from tides.kernels.triton.block_kernels import decay_head, load_input, load_steps
from tides.kernels.triton.launched import launched
from tides.kernels.triton.product_kernels import halve_matrix, halve_rows, product, split
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


@launched
def heads_backward_kernel(
    gradient, x, affine, valid, packed, d_decay, d_drive_codes, d_readout_codes, d_u, dx, partial, N, W, start, tiles,
    width, at_drive_code, at_readout_code, at_affine, eps, limit,
    H: tl.constexpr, P: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, PB: tl.constexpr, IB: tl.constexpr,
    BM: tl.constexpr, DOWN: tl.constexpr, RATE_NORM: tl.constexpr, REPARAM: tl.constexpr,
    CLIPPED: tl.constexpr, HAS_VALID: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dx of a part: the residual's gradient and du ⊙ scale, with du from d_u, both codes and the decay rates.

    The gradient of the decay head's linear map takes the place of that of the decay rates.
    """
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
    acc_norm = tl.zeros((BM, PB), tl.float32)
    acc_scale = tl.zeros((BM, HB), tl.float32)
    acc_shift = tl.zeros((BM, HB), tl.float32)
    for tile in tl.range(tiles, num_stages=1, disable_licm=True):
        first = (program * tiles + tile) * BM
        raw, u, keep = load_steps(x, affine, valid, first, stop, H, HB, BM, HAS_VALID)
        # Both codes side by side.
        d_code = load_tile(d_drive_codes, first, stop, R, BM, 2 * IB)
        d_code += load_tile(d_readout_codes, first, stop, R, BM, 2 * IB, SHIFT=IB)
        halves, unit = halve_rows(d_code)
        du = product(halves, downs, PRECISION) * (unit * down_unit) + load_tile(d_u, first, stop, H, BM, HB)
        halves, unit = halve_rows(u)
        theta, inverse, norm, _, slope = decay_head(
            halves, unit, weight, weight_unit, packed, eps, limit, H, P, PB, RATE_NORM, REPARAM, CLIPPED, PRECISION
        )
        d_theta = load_tile(d_decay, first, stop, P, BM, PB) * slope
        if RATE_NORM:
            acc_norm += d_theta * theta * inverse[:, None]
            d_theta = d_theta * norm[None, :]
            along = tl.sum(d_theta * theta, axis=1) / P * inverse * inverse
            d_theta = inverse[:, None] * (d_theta - theta * along[:, None])
        store_tile(d_decay, d_theta, first, stop, P, P)
        halves, unit = halve_rows(d_theta)
        du += product(halves, weight, PRECISION) * (unit * weight_unit)

        du = tl.where(keep[:, None], du, 0.0)
        acc_scale += du * raw
        acc_shift += du
        scale = tl.load(affine + h, h < H, 0.0)[None, :]
        store_tile(dx, load_tile(gradient, first, stop, H, BM, HB) + du * scale, first, stop, H, H)

    partial += (model * tl.num_programs(0) + program) * width
    if RATE_NORM:
        tl.store(partial + P * H + P + mode, tl.sum(acc_norm, axis=0), mode < P)
    tl.store(partial + at_affine + h, tl.sum(acc_scale, axis=0), h < H)
    tl.store(partial + at_affine + H + h, tl.sum(acc_shift, axis=0), h < H)


@launched
def head_sums_kernel(
    x, affine, valid, d_theta, d_drive_codes, d_readout_codes, partial, N, start, tiles, width, at_drive_code,
    at_readout_code, H: tl.constexpr, P: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, CB: tl.constexpr,
    BM: tl.constexpr, STAGES: tl.constexpr, DOWN: tl.constexpr, HAS_VALID: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Σ d ⊗ u and Σ d for the decay head's linear map and both codes, whose gradients d lie side by side in a tile."""
    model = tl.program_id(1).to(tl.int64)
    program = tl.program_id(0).to(tl.int64)
    affine += model * 2 * H
    column = tl.arange(0, CB)
    of_decay = column < P
    of_drive = column < P + R
    inside = column < (P + 2 * R if DOWN else P)
    i = column - tl.where(of_decay, 0, tl.where(of_drive, P, P + R))
    stride = tl.where(of_decay, P, R)
    source = tl.where(of_drive, d_drive_codes + i, d_readout_codes + i)
    source = tl.where(of_decay, d_theta + i, source)
    total = tl.zeros((CB, HB), tl.float32)
    bias = tl.zeros((CB, BM), tl.float32)
    for tile in tl.range(tiles, num_stages=STAGES, disable_licm=True):
        row = start + (program * tiles + tile) * BM + tl.arange(0, BM)
        live = row < N
        row += model * N
        place = source[:, None] + (row - start)[None, :] * stride[:, None]
        if P % 4 == 0 and R % 4 == 0:
            place = tl.max_contiguous(tl.multiple_of(place, (16, 4)), (4, 1))
        change = tl.load(place, live[None, :] & inside[:, None], 0.0)
        u = load_input(x, affine, valid, row, live, H, HB, HAS_VALID)
        total = product(split(change), split(u), PRECISION, total)
        bias += change
    partial += (model * tl.num_programs(0) + program) * width
    # A map's weight, then its bias.
    h = tl.arange(0, HB)
    at = tl.where(of_decay, 0, tl.where(of_drive, at_drive_code, at_readout_code))
    tl.store(partial + (at + i * H)[:, None] + h[None, :], total, inside[:, None] & (h < H)[None, :])
    tl.store(partial + at + stride * H + i, tl.sum(bias, axis=1), inside)
