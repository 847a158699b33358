"""The gradients of a block's heads: dx in one pass over the steps, the sums for their weights in another.

Together they would need more registers than a program has. Programs visit many tiles, keep sums in registers and leave
them in a row of `partial`, laid out as the packed weights are; the rows are added in a fixed order. Decay rates and
codes belong to a part of the batch that begins at the row `start`.
"""

import triton
import triton.language as tl

from tides.kernels.triton.block_kernels import decay_head, load_input
from tides.kernels.triton.launched import launched
from tides.kernels.triton.product_kernels import product, split
from tides.kernels.triton.tail_kernels import load_matrix


@triton.jit
def load_both_downs(
    packed, at_drive_code, at_readout_code, H: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, IB: tl.constexpr,
    DOWN: tl.constexpr,
):  # fmt: skip
    """W_down of the drive's code and below it that of the readout's (2 IB, HB); identities for heads of full rank."""
    both = tl.arange(0, 2 * IB)[:, None]
    h = tl.arange(0, HB)[None, :]
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
    packed += model * W
    affine += model * 2 * H
    d_decay -= start.to(tl.int64) * P
    d_drive_codes -= start.to(tl.int64) * R
    d_readout_codes -= start.to(tl.int64) * R
    h = tl.arange(0, HB)
    mode = tl.arange(0, PB)
    # Both codes side by side.
    both = tl.arange(0, 2 * IB)
    i_axis = both % IB
    of_drive = both < IB
    scale = tl.load(affine + h, h < H, 0.0)[None, :]
    # In shared memory for all tiles.
    downs = split(load_both_downs(packed, at_drive_code, at_readout_code, H, R, HB, IB, DOWN))
    weight = split(load_matrix(packed, mode, h, P, H))
    turned = (tl.trans(weight[0]), tl.trans(weight[1]))
    acc_norm = tl.zeros((BM, PB), tl.float32)
    acc_scale = tl.zeros((BM, HB), tl.float32)
    acc_shift = tl.zeros((BM, HB), tl.float32)
    for tile in tl.range(tiles, num_stages=1, disable_licm=True):
        row = start + (program * tiles + tile) * BM + tl.arange(0, BM)
        live = row < N
        row += model * N
        at_h = row[:, None] * H + h[None, :]
        in_h = live[:, None] & (h < H)[None, :]
        raw, u, keep = load_input(x, affine, valid, row, live, H, HB, HAS_VALID)
        at_code = row[:, None] * R + i_axis[None, :]
        in_code = live[:, None] & (i_axis < R)[None, :]
        d_code = tl.load(d_drive_codes + at_code, in_code & of_drive[None, :], 0.0)
        d_code += tl.load(d_readout_codes + at_code, in_code & ~of_drive[None, :], 0.0)
        du = product(split(d_code), downs, PRECISION) + tl.load(d_u + at_h, in_h, 0.0)
        theta, inverse, norm, _, slope = decay_head(
            split(u), turned, packed, eps, limit, H, P, PB, RATE_NORM, REPARAM, CLIPPED, PRECISION
        )
        at_mode = row[:, None] * P + mode[None, :]
        in_mode = live[:, None] & (mode < P)[None, :]
        d_theta = tl.load(d_decay + at_mode, in_mode, 0.0) * slope
        if RATE_NORM:
            acc_norm += d_theta * theta * inverse[:, None]
            d_theta = d_theta * norm[None, :]
            along = tl.sum(d_theta * theta, axis=1) / P * inverse * inverse
            d_theta = inverse[:, None] * (d_theta - theta * along[:, None])
        tl.store(d_decay + at_mode, d_theta, in_mode)
        du += product(split(d_theta), weight, PRECISION)

        du = tl.where(keep[:, None], du, 0.0)
        acc_scale += du * raw
        acc_shift += du
        tl.store(dx + at_h, tl.load(gradient + at_h, in_h, 0.0) + du * scale, in_h)

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
        _, u, _ = load_input(x, affine, valid, row, live, H, HB, HAS_VALID)
        total = product(split(change), split(u), PRECISION, total)
        bias += change
    partial += (model * tl.num_programs(0) + program) * width
    # A map's weight, then its bias.
    h = tl.arange(0, HB)
    at = tl.where(of_decay, 0, tl.where(of_drive, at_drive_code, at_readout_code))
    tl.store(partial + (at + i * H)[:, None] + h[None, :], total, inside[:, None] & (h < H)[None, :])
    tl.store(partial + at + stride * H + i, tl.sum(bias, axis=1), inside)
