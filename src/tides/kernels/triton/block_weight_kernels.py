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
def load_rows(pointer, offset, live, BM: tl.constexpr, WIDTH: tl.constexpr, WB: tl.constexpr):
    """Rows `offset`, … of (rows, WIDTH) as a tile (BM, WB), zeros outside."""
    column = tl.arange(0, WB)[None, :]
    at = offset * WIDTH + tl.arange(0, BM)[:, None] * WIDTH + column
    return tl.load(pointer + at, live & (column < WIDTH), 0.0)


@triton.jit
def load_planes(
    right, behind, offset, live, P2: tl.constexpr, OB: tl.constexpr, BM: tl.constexpr, BOTH: tl.constexpr,
    OUTPUT: tl.constexpr,
):  # fmt: skip
    """The planes that a mix leads to (`OUTPUT`: comes from) as a tile (BM, OB)."""
    o = tl.arange(0, OB)[None, :]
    at = offset * P2 + tl.arange(0, BM)[:, None] * P2 + o
    planes = tl.load(right + at, live & (o < P2), 0.0)
    if BOTH:
        planes += tl.load(behind + at - P2, live & (o >= P2) & (o < 2 * P2), 0.0)
    if OUTPUT:
        planes = tl.where(o % 2 == 1, -planes, planes)
    return planes


@triton.jit
def load_members(codes, offset, live, first, R: tl.constexpr, COUNT: tl.constexpr, BM: tl.constexpr):
    """z_i of the rows for i = first, … (BM, COUNT), zeros beyond the last."""
    i = first + tl.arange(0, COUNT)[None, :]
    return tl.load(codes + offset * R + tl.arange(0, BM)[:, None] * R + i, live & (i < R), 0.0)


@triton.jit
def add_sums(out, at, total, inside, start):
    """What a program summed up goes to its place, in ranges behind the first on top of what is there."""
    tl.store(out + at, total + tl.load(out + at, inside & (at * 0 + start > 0), 0.0), inside)


@triton.jit
def sum_members(
    left, right, behind, codes, out, start, limit, first, H: tl.constexpr, P2: tl.constexpr, R: tl.constexpr,
    HB: tl.constexpr, OB: tl.constexpr, BM: tl.constexpr, GROUP: tl.constexpr, STAGES: tl.constexpr,
    BOTH: tl.constexpr, OUTPUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Σ z_i left_h right_o for i = first, … (GROUP, HB, OB)."""
    total = tl.zeros((GROUP * HB, OB), tl.float32)
    for offset in tl.range(0, limit, BM, num_stages=STAGES):
        live = offset + tl.arange(0, BM)[:, None] < limit
        # All loads before the first barrier: they wait for memory together.
        planes = load_planes(right, behind, offset, live, P2, OB, BM, BOTH, OUTPUT)
        tile = load_rows(left, offset, live, BM, H, HB)
        weight = load_members(codes, offset, live, first, R, GROUP, BM)
        total += product(weighted(weight, tile, GROUP, HB), split(planes), PRECISION)
    place = first * HB + tl.arange(0, GROUP * HB)[:, None]
    o = tl.arange(0, OB)[None, :]
    add_sums(out, place * OB + o, total, place + o * 0 < R * HB, start)


@triton.jit
def sum_pairs(
    codes, d_square, out, start, limit, first, H: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, JB: tl.constexpr,
    BM: tl.constexpr, PAIRS: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Σ z_i z_j dq_h for i = first, … (PAIRS, JB, HB)."""
    total = tl.zeros((PAIRS * JB, HB), tl.float32)
    for offset in tl.range(0, limit, BM, num_stages=STAGES):
        live = offset + tl.arange(0, BM)[:, None] < limit
        change = load_rows(d_square, offset, live, BM, H, HB)
        tile = load_members(codes, offset, live, 0, R, JB, BM)
        weight = load_members(codes, offset, live, first, R, PAIRS, BM)
        total += product(weighted(weight, tile, PAIRS, JB), split(change), PRECISION)
    place = first * JB + tl.arange(0, PAIRS * JB)[:, None]
    h = tl.arange(0, HB)[None, :]
    add_sums(out, place * HB + h, total, place + h * 0 < R * JB, start)


@triton.jit
def sum_constant(
    left, right, behind, codes, d_square, out, out_pairs, start, limit, H: tl.constexpr, P2: tl.constexpr,
    R: tl.constexpr, HB: tl.constexpr, OB: tl.constexpr, IB: tl.constexpr, BM: tl.constexpr, LEAST: tl.constexpr,
    STAGES: tl.constexpr, NORM: tl.constexpr, BOTH: tl.constexpr, OUTPUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Σ left_h right_o (HB, OB) and Σ z̃_j dq_h (IB, HB): what the constant 1 is multiplied with."""
    heights: tl.constexpr = max(1, LEAST // HB)
    lengths: tl.constexpr = max(1, LEAST // IB)
    total = tl.zeros((heights * HB, OB), tl.float32)
    total_pairs = tl.zeros((lengths * IB, HB), tl.float32)
    j = tl.arange(0, IB)[None, :]
    for offset in tl.range(0, limit, BM, num_stages=STAGES):
        live = offset + tl.arange(0, BM)[:, None] < limit
        tile = load_rows(left, offset, live, BM, H, HB)
        planes = load_planes(right, behind, offset, live, P2, OB, BM, BOTH, OUTPUT)
        if NORM:
            code = tl.where(j == R, 1.0, load_members(codes, offset, live, 0, R, IB, BM))
            change = load_rows(d_square, offset, live, BM, H, HB)
        total += product(weighted(alone(heights), tile, heights, HB), split(planes), PRECISION)
        if NORM:
            total_pairs += product(weighted(alone(lengths), code, lengths, IB), split(change), PRECISION)
    h = tl.arange(0, heights * HB)[:, None]
    o = tl.arange(0, OB)[None, :]
    add_sums(out, h * OB + o, total, h + o * 0 < HB, start)
    if NORM:
        i = tl.arange(0, lengths * IB)[:, None]
        h = tl.arange(0, HB)[None, :]
        add_sums(out_pairs, i * HB + h, total_pairs, i + h * 0 < IB, start)


@triton.jit
def block_weight_kernel(
    left, right, behind, codes, d_square, out, N, start, rows, first, rows_per_split,
    H: tl.constexpr, P2: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, OB: tl.constexpr, IB: tl.constexpr,
    JB: tl.constexpr, BM: tl.constexpr, GROUP: tl.constexpr, PAIRS: tl.constexpr, LEAST: tl.constexpr,
    STAGES: tl.constexpr, NORM: tl.constexpr, BOTH: tl.constexpr, OUTPUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Over a split of every range so far: Σ z̃_i left_h right_o (R + 1, HB, OB), Σ z_i z_j dq_h (R, JB, HB) and
    Σ z̃_j dq_h (IB, HB).

    The grid's first axis are kinds of programs, because few could run beside one that holds all sums: GROUP of the z_i,
    PAIRS of the pairs' z_i, and last the constant 1 behind them.
    """
    kind = tl.program_id(0)
    part = tl.program_id(1).to(tl.int64)
    model = tl.program_id(2).to(tl.int64)
    begin = part * rows_per_split
    limit = tl.minimum(tl.minimum(rows, N - start) - begin, rows_per_split).to(tl.int32)
    left += (model * rows + begin) * H
    codes += (model * rows + begin) * R
    d_square += (model * rows + begin) * H
    right += (model * N + start + begin - first) * P2
    behind += (model * N + start + begin - first) * P2
    groups: tl.constexpr = (R + GROUP - 1) // GROUP
    pairs: tl.constexpr = (R * JB + IB) * HB if NORM else 0
    out += (model * tl.num_programs(1) + part) * ((R + 1) * HB * OB + pairs)
    out_pairs = out + (R + 1) * HB * OB
    if kind < groups:
        sum_members(
            left, right, behind, codes, out, start, limit, kind * GROUP, H, P2, R, HB, OB, BM, GROUP, STAGES, BOTH,
            OUTPUT, PRECISION,
        )  # fmt: skip
    elif kind == tl.num_programs(0) - 1:
        sum_constant(
            left, right, behind, codes, d_square, out + R * HB * OB, out_pairs + R * JB * HB, start, limit, H, P2, R,
            HB, OB, IB, BM, LEAST, STAGES, NORM, BOTH, OUTPUT, PRECISION,
        )  # fmt: skip
    elif NORM:
        first = (kind - groups) * PAIRS
        sum_pairs(codes, d_square, out_pairs, start, limit, first, H, R, HB, JB, BM, PAIRS, STAGES, PRECISION)
