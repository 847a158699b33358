"""The gradients of a mix's large weights, summed over the steps of a range.

A program is one warp. It holds a share of the sums in its registers, multiplies steps by small products of its own and
waits for nobody, so that a few of them keep a processor busy: with four warps that build a wide product together, most
of the time went into waiting for each other.
"""

import triton
import triton.language as tl

from tides.kernels.triton.launched import launched_by_size
from tides.kernels.triton.product_kernels import halve, inverse_of, product
from tides.kernels.triton.unit_kernels import CODE, KINDS, LEFT, RIGHT, SQUARE, load_unit


@triton.jit
def add_sums(out, at, total, inside, start):
    """What a program summed up goes to its place, in ranges behind the first on top of what is there."""
    tl.store(out + at, total + tl.load(out + at, inside & (at * 0 + start > 0), 0.0), inside)


@triton.jit
def zeros(COUNT: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """So many sums that have not begun."""
    sums = ()
    for _ in tl.static_range(COUNT):
        sums += (tl.zeros((HEIGHT, WIDTH), tl.float32),)  # type: ignore[assignment]
    return sums


@triton.jit
def load_planes(
    right, behind, row, live, P2: tl.constexpr, OB: tl.constexpr, BOTH: tl.constexpr, OUTPUT: tl.constexpr
):  # fmt: skip
    """The planes that a mix leads to (`OUTPUT`: comes from) as a tile (rows, OB)."""
    o = tl.arange(0, OB)[None, :]
    at = row[:, None] * P2 + o
    planes = tl.load(right + at, live[:, None] & (o < P2), 0.0)
    if BOTH:
        planes += tl.load(behind + at - P2, live[:, None] & (o >= P2) & (o < 2 * P2), 0.0)
    if OUTPUT:
        planes = tl.where(o % 2 == 1, -planes, planes)
    return planes


@triton.jit
def load_member(codes, row, live, i, R: tl.constexpr):
    """z̃_i of the rows as a row of its own (1, rows): 1 for i = R, zeros beyond."""
    i = row * 0 + i
    z = tl.load(codes + row * R + i, live & (i < R), 0.0)
    return tl.where(i == R, 1.0, z)[None, :]


@triton.jit
def load_members(codes, row, live, i, R: tl.constexpr):
    """The same for several i (i, rows)."""
    z = tl.load(codes + row[None, :] * R + i[:, None], live[None, :] & (i < R)[:, None], 0.0)
    return tl.where((i == R)[:, None], 1.0, z)


@triton.jit
def sum_members(
    left, right, behind, codes, out, start, limit, first, channel, units, H: tl.constexpr, P2: tl.constexpr,
    R: tl.constexpr, HB: tl.constexpr, OB: tl.constexpr, BM: tl.constexpr, TALL: tl.constexpr,
    GROUP: tl.constexpr, STAGES: tl.constexpr, BOTH: tl.constexpr, OUTPUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Σ z̃_i left_h right_o for i = first, … (GROUP, TALL, OB) and TALL channels h."""
    h = channel + tl.arange(0, TALL)[:, None]
    totals = zeros(GROUP, TALL, OB)
    of_left = load_unit(units, LEFT)
    of_right = load_unit(units, RIGHT)
    of_code = load_unit(units, CODE)
    shrunk = inverse_of(of_left) * (inverse_of(of_code) * 2.0**-15)
    for offset in tl.range(0, limit, BM, num_stages=STAGES):
        row = offset + tl.arange(0, BM)
        live = row < limit
        planes = halve(load_planes(right, behind, row, live, P2, OB, BOTH, OUTPUT) * inverse_of(of_right))
        # Steps are columns from the load on: what a product multiplies with them lies as its units read it.
        tile = tl.load(left + row[None, :] * H + h, live[None, :] & (h < H), 0.0) * shrunk
        sums = ()
        for k in tl.static_range(GROUP):
            weight = load_member(codes, row, live, first + k, R)
            sums += (product(halve(tile * weight), planes, PRECISION, totals[k]),)  # type: ignore[assignment]
        totals = sums
    o = tl.arange(0, OB)[None, :]
    for k in tl.static_range(GROUP):
        at = ((first + k) * HB + h) * OB + o
        add_sums(out, at, totals[k] * of_left * (of_code * 2.0**15) * of_right, at < (R + 1) * HB * OB, start)


@triton.jit
def load_pairs(
    codes, row, live, ahead, back, R: tl.constexpr, SIDE: tl.constexpr, TALL: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    """Products of pairs (TALL, rows), tile TILE of those that `block_tiles.pair_rows` counts.

    The pairs of SIDE numbers are SIDE / 2 groups of SIDE: group t has z_t z_j where j ≥ t, and where j < t the pairs of
    a number that many places before the last, counted backwards. Behind them come the squares of the second half, then
    z̃ itself. `ahead` and `back` are z_j and z_(SIDE − 1 − j).
    """
    half: tl.constexpr = SIDE // 2
    start: tl.constexpr = TILE * TALL
    n = start + tl.arange(0, TALL)
    if start < SIDE * half:
        t = n // SIDE
        j = n % SIDE
        first: tl.constexpr = start // SIDE
        one = load_member(codes, row, live, first, R)
        other = load_member(codes, row, live, SIDE - 1 - first, R)
        if SIDE < TALL:
            early = (t == first)[:, None]
            one = tl.where(early, one, load_member(codes, row, live, first + 1, R))
            other = tl.where(early, other, load_member(codes, row, live, SIDE - 2 - first, R))
        weight = tl.where((j >= t)[:, None], one, other)
        return weight * tl.where((j >= t)[:, None], ahead, back)
    else:
        n -= SIDE * half
        z = load_members(codes, row, live, tl.where(n < half, half + n, n - half), R)
        return tl.where((n < half)[:, None], z * z, z)


@triton.jit
def sum_pairs(
    codes, d_square, out, start, limit, units, FIRST: tl.constexpr, COUNT: tl.constexpr, H: tl.constexpr,
    R: tl.constexpr, HB: tl.constexpr, SIDE: tl.constexpr, BM: tl.constexpr, TALL: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Tiles FIRST, … of the sums Σ (z_i z_j) dq_h over pairs (pairs, HB)."""
    h = tl.arange(0, HB)[None, :]
    totals = zeros(COUNT, TALL, HB)
    of_square = load_unit(units, SQUARE)
    of_code = load_unit(units, CODE)
    # Of a product of two numbers below 2¹⁵.
    shrunk = inverse_of(of_code) * (inverse_of(of_code) * 2.0**-15)
    for offset in range(0, limit, BM):
        row = offset + tl.arange(0, BM)
        live = row < limit
        change = tl.load(d_square + row[:, None] * H + h, live[:, None] & (h < H), 0.0)
        change = halve(change * inverse_of(of_square))
        j = tl.arange(0, TALL) % SIDE
        ahead = load_members(codes, row, live, j, R)
        back = load_members(codes, row, live, SIDE - 1 - j, R)
        sums = ()
        for k in tl.static_range(COUNT):
            pairs = load_pairs(codes, row, live, ahead, back, R, SIDE, TALL, FIRST + k)
            pairs = halve(pairs * shrunk)
            sums += (product(pairs, change, PRECISION, totals[k]),)  # type: ignore[assignment]
        totals = sums
    for k in tl.static_range(COUNT):
        pair = (FIRST + k) * TALL + tl.arange(0, TALL)[:, None]
        add_sums(out, pair * HB + h, totals[k] * of_square * of_code * (of_code * 2.0**15), pair + h >= 0, start)


@launched_by_size
def block_weight_kernel(
    left, right, behind, codes, d_square, units, out, N, start, rows, splits, rows_per_split, rows_per_pair_split,
    height,
    H: tl.constexpr, P2: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, OB: tl.constexpr, SIDE: tl.constexpr,
    PAIRS: tl.constexpr, TALL: tl.constexpr, BM: tl.constexpr, GROUP: tl.constexpr, TILES: tl.constexpr,
    STAGES: tl.constexpr, BOTH: tl.constexpr, OUTPUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Over a split of every range so far: Σ z̃_i left_h right_o (R + 1, HB, OB) and Σ (z_i z_j) dq_h (PAIRS, HB).

    On the grid's first axis come, `splits` times, shares of the former, GROUP of the z̃_i and TALL channels each; behind
    them shares of the latter, TILES of TALL pairs each, whose splits have another length. `out` has `height` rows.
    Without norms there are no pairs.
    """
    groups: tl.constexpr = (R + GROUP) // GROUP * (HB // TALL)
    pair_groups: tl.constexpr = (PAIRS // TALL + TILES - 1) // TILES
    share = tl.program_id(0)
    of_pairs = share >= groups * splits
    kind = share % groups
    part = share // groups
    per_split = rows_per_split
    if PAIRS > 0:
        rest = share - groups * splits
        kind = tl.where(of_pairs, groups + rest % pair_groups, kind)
        part = tl.where(of_pairs, rest // pair_groups, part)
        per_split = tl.where(of_pairs, rows_per_pair_split, rows_per_split)
    model = tl.program_id(1).to(tl.int64)
    begin = part.to(tl.int64) * per_split
    limit = tl.minimum(tl.minimum(rows, N - start) - begin, per_split).to(tl.int32)
    left += (model * rows + begin) * H
    codes += (model * rows + begin) * R
    d_square += (model * rows + begin) * H
    right += (model * N + start + begin) * P2
    behind += (model * N + start + begin) * P2
    units += model * KINDS
    out += (model * height + part) * ((R + 1) * HB * OB + PAIRS * HB)
    if kind < groups:
        sum_members(
            left, right, behind, codes, out, start, limit, kind // (HB // TALL) * GROUP, kind % (HB // TALL) * TALL,
            units, H, P2, R, HB, OB, BM, TALL, GROUP, STAGES, BOTH, OUTPUT, PRECISION,
        )  # fmt: skip
    for tile in tl.static_range(0, PAIRS // TALL, TILES):
        if kind == groups + tile // TILES:
            sum_pairs(
                codes, d_square, out + (R + 1) * HB * OB, start, limit, units, tile,
                TILES if PAIRS // TALL - tile > TILES else PAIRS // TALL - tile, H, R, HB, SIDE, BM, TALL, PRECISION,
            )  # fmt: skip
