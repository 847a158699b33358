"""The gradients of a mix's large weights, summed over the steps of a range."""

import triton
import triton.language as tl

from tides.kernels.triton.product_kernels import product, split


@triton.jit
def weighted(weight, tile, COUNT: tl.constexpr, WIDTH: tl.constexpr):
    """The halves of weight_i tile_j (COUNT · WIDTH, rows), for a product that sums over the rows."""
    wide = tl.reshape(weight[:, :, None] * tile[:, None, :], (tile.shape[0], COUNT * WIDTH))
    return split(tl.trans(wide))


@triton.jit
def alone(COUNT: tl.constexpr):
    """Weights (1, COUNT) for `weighted` that leave a tile as it is, with zeros below: products need many rows."""
    return tl.where(tl.arange(0, COUNT) == 0, 1.0, 0.0)[None, :]


@triton.jit
def block_weight_kernel(
    left, right, behind, codes, d_square, out, N, start, rows, rows_per_split,
    H: tl.constexpr, P2: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, OB: tl.constexpr, IB: tl.constexpr,
    BM: tl.constexpr, GROUP: tl.constexpr, ALONE: tl.constexpr, STAGES: tl.constexpr, NORM: tl.constexpr,
    BOTH: tl.constexpr, OUTPUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Σ z̃_i left_h right_o over a split of the range (i, HB, OB), then Σ z_i z̃_j dq_h (i < R, IB, HB) and Σ dq_h (HB).

    A program serves GROUP of the z_i; the first group also serves the constant 1 behind them. Pairs z_i z̃_j are the
    same for every h, and those with i = R are there already as i and j change places.
    """
    first = tl.program_id(0) * GROUP
    part = tl.program_id(1).to(tl.int64)
    model = tl.program_id(2).to(tl.int64)
    begin = part * rows_per_split
    limit = tl.minimum(tl.minimum(rows, N - start) - begin, rows_per_split).to(tl.int32)
    left += (model * rows + begin) * H
    codes += (model * rows + begin) * R
    d_square += (model * rows + begin) * H
    right += (model * N + start + begin) * P2
    behind += (model * N + start + begin) * P2
    n = tl.arange(0, BM)[:, None]
    h = tl.arange(0, HB)
    o = tl.arange(0, OB)
    i_axis = tl.arange(0, IB)
    member = first + tl.arange(0, GROUP)
    acc = tl.zeros((GROUP * HB, OB), tl.float32)
    acc_gram = tl.zeros((GROUP * IB, HB), tl.float32)
    base = tl.zeros((ALONE * HB, OB), tl.float32)
    base_gram = tl.zeros((BM, HB), tl.float32)
    for offset in tl.range(0, limit, BM, num_stages=STAGES):
        live = offset + n < limit
        weight = tl.load(codes + offset * R + n * R + member[None, :], live & (member < R)[None, :], 0.0)
        at = n * H + h[None, :]
        in_h = live & (h < H)[None, :]
        a = tl.load(left + offset * H + at, in_h, 0.0)
        at_o = n * P2 + o[None, :]
        b = tl.load(right + offset * P2 + at_o, live & (o < P2)[None, :], 0.0)
        if BOTH:
            b += tl.load(behind + offset * P2 + at_o - P2, live & ((o >= P2) & (o < 2 * P2))[None, :], 0.0)
        if OUTPUT:
            b = tl.where((o % 2 == 1)[None, :], -b, b)
        halves = split(b)
        acc += product(weighted(weight, a, GROUP, HB), halves, PRECISION)
        if first == 0:
            base += product(weighted(alone(ALONE), a, ALONE, HB), halves, PRECISION)
        if NORM:
            q = tl.load(d_square + offset * H + at, in_h, 0.0)
            code = tl.load(codes + offset * R + n * R + i_axis[None, :], live & (i_axis < R)[None, :], 0.0)
            code = tl.where((i_axis == R)[None, :], 1.0, code)
            acc_gram += product(weighted(weight, code, GROUP, IB), split(q), PRECISION)
            base_gram += q
    pairs: tl.constexpr = (R * IB + 1) * HB if NORM else 0
    out += (model * tl.num_programs(1) + part) * ((R + 1) * HB * OB + pairs)
    place = first * HB + tl.arange(0, GROUP * HB)[:, None]
    tl.store(out + place * OB + o[None, :], acc, place + o[None, :] * 0 < R * HB)
    if first == 0:
        behind_all = tl.arange(0, ALONE * HB)[:, None]
        tl.store(out + (R * HB + behind_all) * OB + o[None, :], base, behind_all + o[None, :] * 0 < HB)
    if NORM:
        out += (R + 1) * HB * OB
        pair = first * IB + tl.arange(0, GROUP * IB)[:, None]
        tl.store(out + pair * HB + h[None, :], acc_gram, pair + h[None, :] * 0 < R * IB)
        if first == 0:
            tl.store(out + R * IB * HB + h, tl.sum(base_gram, axis=0))
