"""The block's gradients: back through the tail, the output mix, the scan's adjoint, the input mix and the heads.

Passes whose weights are small visit many tiles per program, keep the sums of their gradients in registers and leave
them in a row of `partial`, laid out as the packed weights are; the rows are added in a fixed order. What the mixes'
large weights need (`left`, `d_square`, the code) is written out for `block_weight_kernel`, a range of steps at a time:
`row` counts steps of the batch, `local` those of the range. States, drives, decay rates and codes belong to a part of
the batch that begins at the row `first`.
"""

import triton
import triton.language as tl

from tides.kernels.triton.block_kernels import decay_head, load_down, load_input, load_state, project_code, read_out
from tides.kernels.triton.block_tail_kernels import store_matrix
from tides.kernels.triton.product_kernels import (
    halve_rows,
    inverse_rms,
    mix,
    mix_backward,
    open_matrices,
    product,
    split,
)
from tides.kernels.triton.tail_kernels import load_matrix


@triton.jit
def through_norms(
    slope, code, gram, model, R: tl.constexpr, GRAMS: tl.constexpr, STAGES: tl.constexpr, HB: tl.constexpr,
    IB: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The code's gradient through the column norms: 2 Σ_h slope_h (G_h z̃)_i."""
    matrices, units = open_matrices(gram, model, (R + 1) * IB * HB, HB)
    halves, unit = halve_rows(slope * units)
    return mix(halves, code, matrices, R, GRAMS, STAGES, HB, IB, IB, PRECISION) * (2.0 * unit)


@triton.jit(do_not_specialize=["start", "first"])
def readout_kernel(
    x, affine, valid, packed, mirror, root, s, backward_s, out, inverse, codes, N, W, start, rows, first, at_down, eps,
    factor,
    H: tl.constexpr, P: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, OB: tl.constexpr, IB: tl.constexpr,
    BM: tl.constexpr, COUNT: tl.constexpr, ROOTS: tl.constexpr, STAGES: tl.constexpr, DOWN: tl.constexpr,
    NORM: tl.constexpr, BOTH: tl.constexpr, HAS_VALID: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Re(C s) of a range, made again for the tail's gradient; ρ and the code for `readout_backward_kernel`."""
    model = tl.program_id(1).to(tl.int64)
    local = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    live = (local < rows) & (start + local < N)
    row = model * N + start + local
    s -= first.to(tl.int64) * (2 * P)
    backward_s -= first.to(tl.int64) * (2 * P)
    _, u, _ = load_input(x, affine + model * 2 * H, valid, row, live, H, HB, HAS_VALID)
    y, code, rho = read_out(
        split(u), packed + model * W, mirror, root, s, backward_s, model, row, live, at_down, eps, H, P, R, HB, OB, IB,
        COUNT, ROOTS, STAGES, DOWN, NORM, BOTH, PRECISION,
    )  # fmt: skip
    h = tl.arange(0, HB)
    i = tl.arange(0, IB)
    local += model * rows
    at = local[:, None] * H + h[None, :]
    in_h = live[:, None] & (h < H)[None, :]
    tl.store(out + at, y * factor, in_h)
    if NORM:
        tl.store(inverse + at, rho, in_h)
    tl.store(codes + local[:, None] * R + i[None, :], code, live[:, None] & (i < R)[None, :])


@triton.jit(do_not_specialize=["start", "first"])
def readout_backward_kernel(
    packed, kernel, gram, s, backward_s, d_s, d_backward_s, d_u, left, d_square, codes, d_codes,
    N, W, start, rows, first, at_skip, factor,
    H: tl.constexpr, P: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, OB: tl.constexpr, IB: tl.constexpr,
    BM: tl.constexpr, COUNT: tl.constexpr, GRAMS: tl.constexpr, STAGES: tl.constexpr, NORM: tl.constexpr,
    BOTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """From dy (in d_u), Re(C s) (in left) and ρ (in d_square): the gradients of s and of the code, skip ⊙ dy in d_u."""
    model = tl.program_id(1).to(tl.int64)
    local = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    live = (local < rows) & (start + local < N)
    row = model * N + start + local
    local += model * rows
    s -= first.to(tl.int64) * (2 * P)
    backward_s -= first.to(tl.int64) * (2 * P)
    d_s -= first.to(tl.int64) * (2 * P)
    d_backward_s -= first.to(tl.int64) * (2 * P)
    d_codes -= first.to(tl.int64) * R
    h = tl.arange(0, HB)
    o = tl.arange(0, OB)
    i_axis = tl.arange(0, IB)
    at_h = row[:, None] * H + h[None, :]
    in_h = live[:, None] & (h < H)[None, :]
    at_local = local[:, None] * H + h[None, :]
    in_code = live[:, None] & (i_axis < R)[None, :]
    code = tl.load(codes + local[:, None] * R + i_axis[None, :], in_code, 0.0)
    code = tl.where((i_axis == R)[None, :], 1.0, code)
    d_y = tl.load(d_u + at_h, in_h, 0.0)
    # Loads before stores, which wait for what they store.
    if NORM:
        rho = tl.load(d_square + at_local, in_h, 0.0)
        y = tl.load(left + at_local, in_h, 0.0)
    tl.store(d_u + at_h, d_y * tl.load(packed + model * W + at_skip + h, h < H, 0.0)[None, :], in_h)
    scaled = d_y * factor
    d_code = tl.zeros((BM, IB), tl.float32)
    if NORM:
        slope = -0.5 * rho * rho * d_y * y
        tl.store(d_square + at_local, slope, in_h)
        d_code = through_norms(slope, code, gram, model, R, GRAMS, STAGES, HB, IB, PRECISION)
        scaled = scaled * rho
    tl.store(left + at_local, scaled, in_h)
    v = load_state(s, backward_s, row, live, 2 * P, OB, BOTH)
    matrices, units = open_matrices(kernel, model, (R + 1) * OB * HB, HB)
    halves, unit = halve_rows(scaled * units)
    d_v, d_mixed = mix_backward(halves, v, code, matrices, R, COUNT, STAGES, HB, OB, IB, PRECISION)
    tl.store(d_codes + row[:, None] * R + i_axis[None, :], d_code + d_mixed * unit, in_code)
    d_v = d_v * unit
    d_v = tl.where((o % 2 == 1)[None, :], -d_v, d_v)
    at_o = row[:, None] * (2 * P) + o[None, :]
    tl.store(d_s + at_o, d_v, live[:, None] & (o < 2 * P)[None, :])
    if BOTH:
        behind = (o >= 2 * P) & (o < 4 * P)
        tl.store(d_backward_s + at_o - 2 * P, d_v, live[:, None] & behind[None, :])


@triton.jit(do_not_specialize=["start", "first"])
def drive_backward_kernel(
    x, affine, valid, packed, mirror, root, gram, d_drive, d_u, left, d_square, codes, d_codes,
    N, W, start, rows, first, at_down, eps,
    H: tl.constexpr, P: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, OB: tl.constexpr, IB: tl.constexpr,
    BM: tl.constexpr, COUNT: tl.constexpr, ROOTS: tl.constexpr, GRAMS: tl.constexpr, STAGES: tl.constexpr,
    DOWN: tl.constexpr, NORM: tl.constexpr, HAS_VALID: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """From the drive's gradient: the input mix's share of du, added to d_u, and the gradient of its code."""
    model = tl.program_id(1).to(tl.int64)
    local = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    live = (local < rows) & (start + local < N)
    row = model * N + start + local
    local += model * rows
    packed += model * W
    d_drive -= first.to(tl.int64) * (2 * P)
    d_codes -= first.to(tl.int64) * R
    h = tl.arange(0, HB)
    o = tl.arange(0, OB)
    i_axis = tl.arange(0, IB)
    at_h = row[:, None] * H + h[None, :]
    in_h = live[:, None] & (h < H)[None, :]
    at_local = local[:, None] * H + h[None, :]
    _, u, keep = load_input(x, affine + model * 2 * H, valid, row, live, H, HB, HAS_VALID)
    # Loaded before the first barrier, it waits for memory together with x.
    g = tl.load(d_drive + row[:, None] * (2 * P) + o[None, :], keep[:, None] & (o < 2 * P)[None, :], 0.0)
    halves, unit = halve_rows(g)
    down = packed + at_down
    code = project_code(split(u), load_down(down, H, R, HB, IB, DOWN), down, H, R, IB, DOWN, PRECISION)
    tl.store(codes + local[:, None] * R + i_axis[None, :], code, live[:, None] & (i_axis < R)[None, :])
    scaled = u
    if NORM:
        rho = inverse_rms(code, root, model, eps, R, ROOTS, STAGES, IB, HB, PRECISION)
        scaled = u * rho
    tl.store(left + at_local, scaled, in_h)
    matrices, units = open_matrices(mirror, model, (R + 1) * HB * OB, HB)
    d_v, d_code = mix_backward(halves, scaled * units, code, matrices, R, COUNT, STAGES, OB, HB, IB, PRECISION)
    d_v = d_v * unit * units
    d_code = d_code * unit
    if NORM:
        slope = -0.5 * rho * rho * d_v * scaled
        d_v = d_v * rho
        tl.store(d_square + at_local, slope, in_h)
        d_code += through_norms(slope, code, gram, model, R, GRAMS, STAGES, HB, IB, PRECISION)
    tl.store(d_codes + row[:, None] * R + i_axis[None, :], d_code, live[:, None] & (i_axis < R)[None, :])
    tl.store(d_u + at_h, tl.load(d_u + at_h, in_h, 0.0) + d_v, in_h)


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


@triton.jit(do_not_specialize=["start"])
def heads_backward_kernel(
    gradient, x, affine, valid, packed, d_decay, d_drive_codes, d_readout_codes, d_u, dx, partial, N, W, start, tiles,
    width, at_drive_code, at_readout_code, at_affine, eps, limit,
    H: tl.constexpr, P: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, PB: tl.constexpr, IB: tl.constexpr,
    BM: tl.constexpr, DOWN: tl.constexpr, RATE_NORM: tl.constexpr, REPARAM: tl.constexpr,
    CLIPPED: tl.constexpr, HAS_VALID: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dx of a part: the residual's gradient and du ⊙ scale, with du from d_u, both codes and the decay rates.

    Sums over the steps are products with LEAST rows, of which some are zeros.
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
    acc_decay = tl.zeros((PB, HB), tl.float32)
    acc_codes = tl.zeros((2 * IB, HB), tl.float32)
    acc_decay_bias = tl.zeros((BM, PB), tl.float32)
    acc_decay_norm = tl.zeros((BM, PB), tl.float32)
    acc_codes_bias = tl.zeros((BM, 2 * IB), tl.float32)
    acc_scale = tl.zeros((BM, HB), tl.float32)
    acc_shift = tl.zeros((BM, HB), tl.float32)
    for tile in tl.range(tiles, num_stages=1, disable_licm=True):
        row = start + (program * tiles + tile) * BM + tl.arange(0, BM)
        live = row < N
        row += model * N
        at_h = row[:, None] * H + h[None, :]
        in_h = live[:, None] & (h < H)[None, :]
        raw, u, keep = load_input(x, affine, valid, row, live, H, HB, HAS_VALID)
        halves = split(u)
        at_code = row[:, None] * R + i_axis[None, :]
        in_code = live[:, None] & (i_axis < R)[None, :]
        d_code = tl.load(d_drive_codes + at_code, in_code & of_drive[None, :], 0.0)
        d_code += tl.load(d_readout_codes + at_code, in_code & ~of_drive[None, :], 0.0)
        downs = load_both_downs(packed, at_drive_code, at_readout_code, H, R, HB, IB, DOWN)
        du = product(split(d_code), split(downs), PRECISION) + tl.load(d_u + at_h, in_h, 0.0)
        if DOWN:
            acc_codes = product(split(tl.trans(d_code)), halves, PRECISION, acc_codes)
            acc_codes_bias += d_code

        theta, inverse, norm, _, slope = decay_head(
            halves, packed, eps, limit, H, P, HB, PB, RATE_NORM, REPARAM, CLIPPED, PRECISION
        )
        d_theta = tl.load(d_decay + row[:, None] * P + mode[None, :], live[:, None] & (mode < P)[None, :], 0.0)
        d_theta = d_theta * slope
        if RATE_NORM:
            acc_decay_norm += d_theta * theta * inverse[:, None]
            d_theta = d_theta * norm[None, :]
            along = tl.sum(d_theta * theta, axis=1) / P * inverse * inverse
            d_theta = inverse[:, None] * (d_theta - theta * along[:, None])
        acc_decay = product(split(tl.trans(d_theta)), halves, PRECISION, acc_decay)
        acc_decay_bias += d_theta
        du += product(split(d_theta), split(load_matrix(packed, mode, h, P, H)), PRECISION)

        du = tl.where(keep[:, None], du, 0.0)
        acc_scale += du * raw
        acc_shift += du
        tl.store(dx + at_h, tl.load(gradient + at_h, in_h, 0.0) + du * scale, in_h)

    partial += (model * tl.num_programs(0) + program) * width
    store_matrix(partial, acc_decay, mode, h, P, H)
    tl.store(partial + P * H + mode, tl.sum(acc_decay_bias, axis=0), mode < P)
    if RATE_NORM:
        tl.store(partial + P * H + P + mode, tl.sum(acc_decay_norm, axis=0), mode < P)
    if DOWN:
        place = tl.where(of_drive, at_drive_code, at_readout_code)
        inside = (i_axis < R)[:, None] & (h < H)[None, :]
        tl.store(partial + (place + i_axis * H)[:, None] + h[None, :], acc_codes, inside)
        tl.store(partial + place + R * H + i_axis, tl.sum(acc_codes_bias, axis=0), i_axis < R)
    tl.store(partial + at_affine + h, tl.sum(acc_scale, axis=0), h < H)
    tl.store(partial + at_affine + H + h, tl.sum(acc_shift, axis=0), h < H)
