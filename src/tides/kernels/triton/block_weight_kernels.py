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
def load_codes(codes, offset, n, live, first, R: tl.constexpr, COUNT: tl.constexpr):
    """Columns `first`, … of z̃ = [z; 1] (rows, COUNT); zeros behind it."""
    i = first + tl.arange(0, COUNT)[None, :]
    code = tl.load(codes + offset * R + n * R + i, live & (i < R), 0.0)
    return tl.where(live & (i == R), 1.0, code)


@triton.jit
def block_weight_kernel(
    left, right, behind, codes, d_square, out, N, start, rows, rows_per_split,
    H: tl.constexpr, P2: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, OB: tl.constexpr, IB: tl.constexpr,
    BM: tl.constexpr, LEAST: tl.constexpr, STAGES: tl.constexpr, NORM: tl.constexpr, BOTH: tl.constexpr,
    OUTPUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Σ z̃_i left_h right_o over a split of the range (i, HB, OB), then Σ z_i z̃_j dq_h (i < R, IB, HB) and Σ dq_h (HB).

    A program serves as many i of one of the two sums as make LEAST rows of a product: small programs, of which many
    run at once. Pairs z_i z̃_j are the same for every h; those with i = R are there already as i and j change places.
    """
    part = tl.program_id(1).to(tl.int64)
    model = tl.program_id(2).to(tl.int64)
    begin = part * rows_per_split
    limit = tl.minimum(tl.minimum(rows, N - start) - begin, rows_per_split).to(tl.int32)
    left += (model * rows + begin) * H
    codes += (model * rows + begin) * R
    d_square += (model * rows + begin) * H
    right += (model * N + start + begin) * P2
    behind += (model * N + start + begin) * P2
    pairs: tl.constexpr = (R * IB + 1) * HB if NORM else 0
    out += (model * tl.num_programs(1) + part) * ((R + 1) * HB * OB + pairs)
    n = tl.arange(0, BM)[:, None]
    h = tl.arange(0, HB)[None, :]
    count: tl.constexpr = LEAST // HB
    groups: tl.constexpr = (R + count) // count
    if tl.program_id(0) < groups:
        first = tl.program_id(0) * count
        o = tl.arange(0, OB)[None, :]
        total = tl.zeros((count * HB, OB), tl.float32)
        for offset in tl.range(0, limit, BM, num_stages=STAGES):
            live = offset + n < limit
            a = tl.load(left + offset * H + n * H + h, live & (h < H), 0.0)
            at = n * P2 + o
            b = tl.load(right + offset * P2 + at, live & (o < P2), 0.0)
            if BOTH:
                b += tl.load(behind + offset * P2 + at - P2, live & (o >= P2) & (o < 2 * P2), 0.0)
            if OUTPUT:
                b = tl.where(o % 2 == 1, -b, b)
            weight = load_codes(codes, offset, n, live, first, R, count)
            total += product(weighted(weight, a, count, HB), split(b), PRECISION)
        line = first * HB + tl.arange(0, count * HB)[:, None]
        tl.store(out + line * OB + o, total, line + o * 0 < (R + 1) * HB)
    elif NORM:
        members: tl.constexpr = LEAST // IB
        least = (tl.program_id(0) - groups) * members
        total_pairs = tl.zeros((members * IB, HB), tl.float32)
        last = tl.zeros((BM, HB), tl.float32)
        for offset in tl.range(0, limit, BM, num_stages=STAGES):
            live = offset + n < limit
            q = tl.load(d_square + offset * H + n * H + h, live & (h < H), 0.0)
            weight = load_codes(codes, offset, n, live, least, R, members)
            code = load_codes(codes, offset, n, live, 0, R, IB)
            total_pairs += product(weighted(weight, code, members, IB), split(q), PRECISION)
            last += q
        out += (R + 1) * HB * OB
        pair = least * IB + tl.arange(0, members * IB)[:, None]
        tl.store(out + pair * HB + h, total_pairs, pair + h * 0 < R * IB)
        if least == 0:
            tl.store(out + R * IB * HB + tl.arange(0, HB), tl.sum(last, axis=0))
