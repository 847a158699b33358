"""The gradients of a block's mixes: back through the output mix before the scan's adjoint, the input mix behind it.

What the mixes' large weights need (`left`, `d_square`, the code) is written out for `block_weight_kernel`, a range of
steps at a time: `row` counts steps of the batch, `local` those of the range. States, drives, decay rates and codes
belong to a part of the batch that begins at the row `first`.
"""

import triton
import triton.language as tl

from tides.kernels.triton.block_kernels import load_down, load_input, load_state, project_code, read_out
from tides.kernels.triton.launched import launched
from tides.kernels.triton.product_kernels import (
    halve_rows,
    inverse_rms,
    mix,
    mix_backward,
    open_matrices,
    product,
    split,
)


@triton.jit
def through_norms(
    slope, code, gram, model, R: tl.constexpr, GRAMS: tl.constexpr, STAGES: tl.constexpr, HB: tl.constexpr,
    IB: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The code's gradient through the column norms: 2 Σ_h slope_h (G_h z̃)_i."""
    matrices, units = open_matrices(gram, model, (R + 1) * IB * HB, HB)
    halves, unit = halve_rows(slope * units)
    return mix(halves, code, matrices, R, GRAMS, STAGES, HB, IB, IB, PRECISION) * (2.0 * unit)


@launched
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


@launched
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
    # A product leaves its rows where those of the mixes lie; else every column of the code would be moved there alone.
    code = product(split(code), split((i_axis[:, None] == i_axis[None, :]).to(tl.float32)), PRECISION)
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


@launched
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
