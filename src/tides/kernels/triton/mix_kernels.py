"""The input and output mixes on the GPU: a block of steps per program, B_k and C_k never leave the registers.

    in   v_o = Σ_i z̃_i Σ_h ũ_h K[i, h, o],  ũ = u ⊙ ρ        out   y_h = ρ_h Σ_i z̃_i Σ_o s_o K[i, h, o]

ρ_h = (‖R_h z̃‖² + eps)^(−½) with R_h a square root of the Gram matrix, made in float64: the quadratic form itself would
square the condition number. Weight gradients are partial sums per block of steps, added in a fixed order.
"""

import triton
import triton.language as tl

from tides.kernels.triton.launched import launched


@triton.jit
def root_kernel(
    factors, root, P2, H, I: tl.constexpr, HB: tl.constexpr, PB: tl.constexpr, IB: tl.constexpr
):  # fmt: skip
    """R_h with R_hᵀR_h = (1/P) Σ_{p,c} 𝓑_h 𝓑_hᵀ, by a Cholesky factorisation in float64 that skips null pivots."""
    h = tl.program_id(0)
    rows = tl.arange(0, PB)
    i = tl.arange(0, IB)
    # factors (p, h, 2, i): row pc = (p, c).
    base = ((rows // 2) * H + h) * 2 + rows % 2
    tile = tl.load(factors + base[:, None] * I + i[None, :], (rows < P2)[:, None] & (i < I)[None, :], 0.0)
    wide = tile.to(tl.float64)
    gram = tl.sum(wide[:, :, None] * wide[:, None, :], axis=0) / (P2 // 2)
    diagonal = tl.where(i[:, None] == i[None, :], gram, 0.0)
    tiny = tl.max(tl.sum(diagonal, axis=1), axis=0) * 1e-14
    for j in tl.static_range(I):
        column = tl.sum(tl.where(i[None, :] == j, gram, 0.0), axis=1)
        pivot = tl.sum(tl.where(i == j, column, 0.0), axis=0)
        scale = tl.where(pivot > tiny, 1.0 / tl.sqrt(tl.maximum(pivot, 1e-300)), 0.0)
        column = tl.where(i >= j, column * scale, 0.0)
        gram -= column[:, None] * column[None, :]
        tl.store(root + (j * IB + i) * HB + h, column.to(tl.float32))


@triton.jit
def load_code(z, row, N, R, IB: tl.constexpr):
    """z̃ = [z; 1] as a tile (rows, IB)."""
    i = tl.arange(0, IB)[None, :]
    tile = tl.load(z + row[:, None] * R + i, (row < N)[:, None] & (i < R), 0.0)
    return tl.where(i == R, 1.0, tile)


@triton.jit
def load_weight(z, row, live, i, R):
    """z̃_i of every row: 1 behind the last column."""
    return tl.load(z + row * R + i, live & (row * 0 + i < R), 1.0)


@triton.jit
def inverse_rms(code, root, eps, I: tl.constexpr, IB: tl.constexpr, HB: tl.constexpr, PRECISION: tl.constexpr):
    i = tl.arange(0, IB)[:, None]
    h = tl.arange(0, HB)[None, :]
    square = tl.dot(code, tl.load(root + i * HB + h), input_precision=PRECISION)
    square = square * square
    for j in range(1, I):
        part = tl.dot(code, tl.load(root + (j * IB + i) * HB + h), input_precision=PRECISION)
        square += part * part
    return tl.rsqrt(square + eps)


@launched
def forward_kernel(
    x, z, kernel, root, out, N, R, H, O, eps, I: tl.constexpr, IB: tl.constexpr, HB: tl.constexpr, OB: tl.constexpr,
    BM: tl.constexpr, NORM: tl.constexpr, OUTPUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A block of steps of the input mix, or of the output mix when OUTPUT (then x is s, whose im part is negated)."""
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    live = row < N
    h = tl.arange(0, HB)
    o = tl.arange(0, OB)
    if NORM:
        rho = inverse_rms(load_code(z, row, N, R, IB), root, eps, I, IB, HB, PRECISION)
    if OUTPUT:
        v = tl.load(x + row[:, None] * O + o[None, :], live[:, None] & (o < O)[None, :], 0.0)
        v = tl.where((o % 2 == 1)[None, :], -v, v)
        acc = tl.zeros((BM, HB), tl.float32)
    else:
        v = tl.load(x + row[:, None] * H + h[None, :], live[:, None] & (h < H)[None, :], 0.0)
        if NORM:
            v = v * rho
        acc = tl.zeros((BM, OB), tl.float32)
    for i in range(I):
        weight = load_weight(z, row, live, i, R)
        if OUTPUT:
            mixed = tl.dot(v, tl.load(kernel + (i * HB + h[None, :]) * OB + o[:, None]), input_precision=PRECISION)
        else:
            mixed = tl.dot(v, tl.load(kernel + (i * HB + h[:, None]) * OB + o[None, :]), input_precision=PRECISION)
        acc += weight[:, None] * mixed
    if OUTPUT:
        if NORM:
            acc = acc * rho
        tl.store(out + row[:, None] * H + h[None, :], acc, live[:, None] & (h < H)[None, :])
    else:
        tl.store(out + row[:, None] * O + o[None, :], acc, live[:, None] & (o < O)[None, :])


@launched
def backward_kernel(
    gradient, x, z, kernel, root, dx, dz, left, d_square, N, R, H, O, eps, I: tl.constexpr, IB: tl.constexpr,
    HB: tl.constexpr, OB: tl.constexpr, BM: tl.constexpr, NORM: tl.constexpr, OUTPUT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of x and z for a block of steps; `left` (n, h) and `d_square` (n, h) are kept for the weights."""
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    live = row < N
    h = tl.arange(0, HB)
    o = tl.arange(0, OB)
    column = tl.arange(0, IB)[None, :]
    at_h = row[:, None] * H + h[None, :]
    at_o = row[:, None] * O + o[None, :]
    in_h = live[:, None] & (h < H)[None, :]
    in_o = live[:, None] & (o < O)[None, :]
    code = load_code(z, row, N, R, IB)
    d_code = tl.zeros((BM, IB), tl.float32)
    if NORM:
        rho = inverse_rms(code, root, eps, I, IB, HB, PRECISION)
    if OUTPUT:
        g = tl.load(gradient + at_h, in_h, 0.0)
        v = tl.load(x + at_o, in_o, 0.0)
        v = tl.where((o % 2 == 1)[None, :], -v, v)
        scaled = g
        if NORM:
            scaled = g * rho
        d_v = tl.zeros((BM, OB), tl.float32)
        plain = tl.zeros((BM, HB), tl.float32)
    else:
        g = tl.load(gradient + at_o, in_o, 0.0)
        u = tl.load(x + at_h, in_h, 0.0)
        scaled = u
        if NORM:
            scaled = u * rho
        d_v = tl.zeros((BM, HB), tl.float32)
    for i in range(I):
        weight = load_weight(z, row, live, i, R)
        if OUTPUT:
            block = tl.load(kernel + (i * HB + h[:, None]) * OB + o[None, :])
            part = tl.dot(scaled, block, input_precision=PRECISION)
            d_weight = tl.sum(part * v, axis=1)
            if NORM:
                plain += weight[:, None] * tl.dot(v, tl.trans(block), input_precision=PRECISION)
        else:
            block = tl.load(kernel + (i * HB + h[None, :]) * OB + o[:, None])
            part = tl.dot(g, block, input_precision=PRECISION)
            d_weight = tl.sum(part * scaled, axis=1)
        d_v += weight[:, None] * part
        d_code += tl.where(column == i, d_weight[:, None], 0.0)
    tl.store(left + at_h, scaled, in_h)
    if NORM:
        if OUTPUT:
            d_rho = g * plain
        else:
            d_rho = d_v * u
            d_v = d_v * rho
        slope = -0.5 * rho * rho * rho * d_rho
        tl.store(d_square + at_h, slope, in_h)
        slope = tl.where(in_h, slope, 0.0)
        down = tl.arange(0, IB)[:, None]
        for j in range(I):
            block = tl.load(root + (j * IB + down) * HB + h[None, :])
            pressed = 2.0 * slope * tl.dot(code, block, input_precision=PRECISION)
            d_code += tl.dot(pressed, tl.trans(block), input_precision=PRECISION)
    if OUTPUT:
        tl.store(dx + at_o, tl.where((o % 2 == 1)[None, :], -d_v, d_v), in_o)
    else:
        tl.store(dx + at_h, d_v, in_h)
    tl.store(dz + row[:, None] * R + column, d_code, live[:, None] & (column < R))


@launched
def weight_kernel(
    left, right, z, d_square, d_kernel, d_gram, N, R, H, O, rows_per_split, I: tl.constexpr, IB: tl.constexpr,
    HB: tl.constexpr, OB: tl.constexpr, BM: tl.constexpr, GROUP: tl.constexpr, NORM: tl.constexpr,
    OUTPUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Σ_n z̃_i left ⊗ right and Σ_n z̃_i dq ⊗ z̃ over one range of steps, for GROUP values of i at once."""
    first = tl.program_id(0) * GROUP
    split = tl.program_id(1)
    h = tl.arange(0, HB)
    o = tl.arange(0, OB)
    column = tl.arange(0, IB)
    member = first + tl.arange(0, GROUP)
    acc = tl.zeros((GROUP * HB, OB), tl.float32)
    acc_gram = tl.zeros((GROUP * HB, IB), tl.float32)
    start = split.to(tl.int64) * rows_per_split
    for offset in range(0, rows_per_split, BM):
        row = start + offset + tl.arange(0, BM)
        live = row < N
        weight = tl.load(z + row[:, None] * R + member[None, :], live[:, None] & (member < R)[None, :], 0.0)
        weight = tl.where((member == R)[None, :], 1.0, weight)
        in_h = live[:, None] & (h < H)[None, :]
        a = tl.load(left + row[:, None] * H + h[None, :], in_h, 0.0)
        b = tl.load(right + row[:, None] * O + o[None, :], live[:, None] & (o < O)[None, :], 0.0)
        if OUTPUT:
            b = tl.where((o % 2 == 1)[None, :], -b, b)
        wide = tl.reshape(weight[:, :, None] * a[:, None, :], (BM, GROUP * HB))
        acc += tl.dot(tl.trans(wide), b, input_precision=PRECISION)
        if NORM:
            q = tl.load(d_square + row[:, None] * H + h[None, :], in_h, 0.0)
            wide = tl.reshape(weight[:, :, None] * q[:, None, :], (BM, GROUP * HB))
            acc_gram += tl.dot(tl.trans(wide), load_code(z, row, N, R, IB), input_precision=PRECISION)
    # Rows (i, h) of this split; groups reach beyond I, so the buffers are that long.
    at = (split * tl.num_programs(0) + tl.program_id(0)).to(tl.int64) * GROUP * HB + tl.arange(0, GROUP * HB)
    tl.store(d_kernel + at[:, None] * OB + o[None, :], acc)
    if NORM:
        tl.store(d_gram + at[:, None] * IB + column[None, :], acc_gram)
