"""The gradients of a mix's large weights, summed over the steps of a range."""

import triton
import triton.language as tl


@triton.jit
def block_weight_kernel(
    left, right, behind, codes, d_square, out, N, start, rows, rows_per_split,
    H: tl.constexpr, P2: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, OB: tl.constexpr, IB: tl.constexpr,
    BM: tl.constexpr, GROUP: tl.constexpr, NORM: tl.constexpr, BOTH: tl.constexpr, OUTPUT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Σ z̃_i left ⊗ right (…, OB) and beside it Σ z̃_i dq ⊗ z̃ (…, IB) over a split of the range.

    A program serves GROUP of the z_i; the first group also serves the constant 1 behind them.
    """
    first = tl.program_id(0) * GROUP
    split = tl.program_id(1).to(tl.int64)
    model = tl.program_id(2).to(tl.int64)
    member = first + tl.arange(0, GROUP)
    h = tl.arange(0, HB)
    o = tl.arange(0, OB)
    i_axis = tl.arange(0, IB)
    acc = tl.zeros((GROUP * HB, OB), tl.float32)
    acc_gram = tl.zeros((GROUP * HB, IB), tl.float32)
    base = tl.zeros((HB, OB), tl.float32)
    base_gram = tl.zeros((HB, IB), tl.float32)
    for offset in range(0, rows_per_split, BM):
        local = split * rows_per_split + offset + tl.arange(0, BM)
        live = (local < rows) & (start + local < N)
        row = model * N + start + local
        local += model * rows
        weight = tl.load(codes + local[:, None] * R + member[None, :], live[:, None] & (member < R)[None, :], 0.0)
        in_h = live[:, None] & (h < H)[None, :]
        a = tl.load(left + local[:, None] * H + h[None, :], in_h, 0.0)
        at = row[:, None] * P2 + o[None, :]
        b = tl.load(right + at, live[:, None] & (o < P2)[None, :], 0.0)
        if BOTH:
            b += tl.load(behind + at - P2, live[:, None] & ((o >= P2) & (o < 2 * P2))[None, :], 0.0)
        if OUTPUT:
            b = tl.where((o % 2 == 1)[None, :], -b, b)
        wide = tl.reshape(weight[:, :, None] * a[:, None, :], (BM, GROUP * HB))
        acc += tl.dot(tl.trans(wide), b, input_precision=PRECISION)
        if first == 0:
            base += tl.dot(tl.trans(a), b, input_precision=PRECISION)
        if NORM:
            q = tl.load(d_square + local[:, None] * H + h[None, :], in_h, 0.0)
            wide = tl.reshape(weight[:, :, None] * q[:, None, :], (BM, GROUP * HB))
            code = tl.load(codes + local[:, None] * R + i_axis[None, :], live[:, None] & (i_axis < R)[None, :], 0.0)
            code = tl.where((i_axis == R)[None, :], 1.0, code)
            acc_gram += tl.dot(tl.trans(wide), code, input_precision=PRECISION)
            if first == 0:
                base_gram += tl.dot(tl.trans(q), code, input_precision=PRECISION)
    # (model, split, i, h, OB + IB) with i = 0…R.
    place = (model * tl.num_programs(1) + split) * (R + 1) * HB
    at = first * HB + tl.arange(0, GROUP * HB)
    inside = (at < R * HB)[:, None]
    at = (place + at)[:, None] * (OB + IB)
    tl.store(out + at + o[None, :], acc, inside)
    tl.store(out + at + OB + i_axis[None, :], acc_gram, inside)
    if first == 0:
        at_base = (place + R * HB + h)[:, None] * (OB + IB)
        tl.store(out + at_base + o[None, :], base)
        tl.store(out + at_base + OB + i_axis[None, :], base_gram)
