"""From packed weights to the tiles that the block's kernels multiply with, and from their gradients back."""

import triton
import triton.language as tl

from tides.kernels.triton.device_math import accurate_exp
from tides.kernels.triton.launched import launched
from tides.kernels.triton.product_kernels import VECTORS, halve, unit_of
from tides.kernels.triton.tile_kernels import place_of


@triton.jit
def load_factors(
    packed, at_base, h, H: tl.constexpr, P: tl.constexpr, R: tl.constexpr, PB: tl.constexpr, IB: tl.constexpr
):
    """𝓑_h (PB rows = (p, c), IB columns): base (p, h, 2) as column R, up (p, h, 2, r) before it."""
    o = tl.arange(0, PB)[:, None]
    i = tl.arange(0, IB)[None, :]
    at = ((o // 2) * H + h) * 2 + o % 2
    inside = (o < 2 * P) & (o * 0 + h < H)
    up = tl.load(packed + at_base + 2 * P * H + at * R + i, inside & (i < R), 0.0)
    return up + tl.load(packed + at_base + at + i * 0, inside & (i == R), 0.0)


@triton.jit
def store_halves(pointer, at, value, mask, inverse, size):
    """A half's `size` elements, then the other's, in units."""
    pointer = pointer.to(tl.pointer_type(tl.float16), bitcast=True)
    high, rest = halve(value * inverse)
    tl.store(pointer + at, high, mask)
    tl.store(pointer + size + at, rest, mask)


@launched
def pack_kernel(
    packed, kernel, mirror, root, gram_out, frequency, scale, W, at_base, packed_step, step, at_frequency, batch,
    H: tl.constexpr, P: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, PB: tl.constexpr, IB: tl.constexpr,
    NORM: tl.constexpr, CLOCKS: tl.constexpr,
):  # fmt: skip
    """Column h of a mix: K[i, h, o] = w_p 𝓑_h[o, i], G_h = 𝓑_hᵀ𝓑_h / P, and R_h with R_hᵀR_h = G_h (as in mix_kernels).

    All of them as halves in units of h (`product_kernels`): `kernel` (i, o, h) for products that sum over h, `mirror`
    (i, h, o) for those that sum over o, `root` (j, h, i) and `gram_out` (j, i, h). The grid's third axis are mixes,
    `packed_step` apart in `packed` and `step` where they go. With `CLOCKS` also a row of frequencies and of time scales
    exp(log step) for every sequence, as `evolve` wants them.
    """
    h = tl.program_id(0)
    model = tl.program_id(1).to(tl.int64)
    packed += model * W
    mix = tl.program_id(2)
    at_base += mix * packed_step
    large: tl.constexpr = (R + 1) * HB * PB
    small: tl.constexpr = (R + 1) * HB * IB
    kernel += model * (large + VECTORS * HB) + mix * step
    mirror += model * (large + VECTORS * HB) + mix * step
    root += model * (small + VECTORS * HB) + mix * step
    gram_out += model * (small + VECTORS * HB) + mix * step
    o = tl.arange(0, PB)
    i = tl.arange(0, IB)
    if CLOCKS:
        turn = tl.load(packed + at_frequency + o, o < P, 0.0)
        # Its error would turn every step of a mode the same way, and a long memory adds them up.
        pace = accurate_exp(tl.load(packed + at_frequency + P + o, o < P, 0.0))
        for sequence in range(h + mix * batch, batch, HB):
            at = (model * batch + sequence) * P + o
            tl.store(frequency + at, turn, o < P)
            tl.store(scale + at, pace, o < P)
    tile = load_factors(packed, at_base, h, H, P, R, PB, IB)
    weighted = tile
    if NORM:
        norm = tl.load(packed + at_base + 2 * P * H * (R + 1) + o // 2, o < 2 * P, 0.0)
        weighted = tile * norm[:, None]
    inside = (i <= R)[None, :] & (o < PB)[:, None]
    unit, inverse = unit_of(tl.max(tl.abs(weighted)))
    # Channels, planes and codes have the places that the columns of a tile have.
    to_h, to_o, to_i = place_of(h), place_of(o), place_of(i)
    tl.store(kernel + large + to_h, unit)
    tl.store(mirror + large + to_h, unit)
    store_halves(kernel, (i[None, :] * PB + to_o[:, None]) * HB + to_h, weighted, inside, inverse, large)
    store_halves(mirror, (i[None, :] * HB + to_h) * PB + to_o[:, None], weighted, inside, inverse, large)
    if NORM:
        wide = tile.to(tl.float64)
        gram = tl.sum(wide[:, :, None] * wide[:, None, :], axis=0) / P
        # Nothing of G is larger than its diagonal, nothing of R than the square root of it.
        largest = tl.max(tl.sum(tl.where(i[:, None] == i[None, :], gram, 0.0), axis=1), axis=0)
        unit, inverse = unit_of(largest.to(tl.float32))
        tl.store(gram_out + small + to_h, unit)
        at = (i[:, None] * IB + to_i[None, :]) * HB + to_h
        store_halves(gram_out, at, gram.to(tl.float32), (i <= R)[:, None] & (i < IB)[None, :], inverse, small)
        unit, inverse = unit_of(tl.sqrt(largest.to(tl.float32)))
        tl.store(root + small + to_h, unit)
        tiny = largest * 1e-14
        for j in tl.static_range(R + 1):
            pivots = tl.sum(tl.where(i[None, :] == j, gram, 0.0), axis=1)
            pivot = tl.sum(tl.where(i == j, pivots, 0.0), axis=0)
            scaled = tl.where(pivot > tiny, 1.0 / tl.sqrt(tl.maximum(pivot, 1e-300)), 0.0)
            pivots = tl.where(i >= j, pivots * scaled, 0.0)
            gram -= pivots[:, None] * pivots[None, :]
            store_halves(root, (j * HB + to_h) * IB + to_i, pivots.to(tl.float32), i < IB, inverse, small)
            if j == R:
                # A single number: nothing stands before the diagonal.
                last = tl.sum(pivots, axis=0)
                tl.store(root + small + HB + to_h, (last * last).to(tl.float32))


@triton.jit
def unpack_kernel(
    packed, d_kernel, d_packed, d_norm, W, at_base, packed_step, H: tl.constexpr, P: tl.constexpr, R: tl.constexpr,
    HB: tl.constexpr, PB: tl.constexpr, IB: tl.constexpr, SIDE: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """Gradients of base and up for column h, and its share of the norm weight's, from those of K and of G.

    `d_kernel` is (mix, model) of what `block_weight_kernel` sums up, without norms no pairs, d_norm (mix, model, h, p).
    """
    h = tl.program_id(0)
    model = tl.program_id(1).to(tl.int64)
    mix = tl.program_id(2)
    at_base += mix * packed_step
    packed += model * W
    d_packed += model * W
    model += mix * tl.num_programs(1)
    d_kernel += model * ((R + 1) * HB * PB + PAIRS * HB)
    o = tl.arange(0, PB)
    i = tl.arange(0, IB)
    at = (i[None, :] * HB + h) * PB
    change = tl.load(d_kernel + at + o[:, None], (i <= R)[None, :] & (o < 2 * P)[:, None], 0.0)
    if PAIRS > 0:
        tile = load_factors(packed, at_base, h, H, P, R, PB, IB)
        # The Gram form is symmetric; where a pair lies, `load_pairs` says.
        half: tl.constexpr = SIDE // 2
        lower = tl.minimum(i[:, None], i[None, :])
        upper = tl.maximum(i[:, None], i[None, :])
        late = tl.where(lower == upper, SIDE * half + lower - half, (SIDE - 1 - lower) * SIDE + SIDE - 1 - upper)
        place = tl.where(lower < half, lower * SIDE + upper, late)
        place = tl.where(upper < R, place, SIDE * half + half + lower)
        gram = tl.load(d_kernel + (R + 1) * HB * PB + place * HB + h, upper <= R, 0.0)
        p = tl.arange(0, PB // 2)
        pairs = tl.sum(tl.reshape(tl.sum(change * tile, axis=1), (PB // 2, 2)), axis=1)
        tl.store(d_norm + (model * H + h) * P + p, pairs, p < P)
        norm = tl.load(packed + at_base + 2 * P * H * (R + 1) + o // 2, o < 2 * P, 0.0)
        change = change * norm[:, None] + tl.dot(tile, gram, input_precision="ieee") * (2.0 / P)
    column = ((o // 2) * H + h) * 2 + o % 2
    inside = (o < 2 * P)[:, None]
    tl.store(d_packed + at_base + 2 * P * H + column[:, None] * R + i[None, :], change, inside & (i < R)[None, :])
    tl.store(d_packed + at_base + column[:, None] + i[None, :] * 0, change, inside & (i == R)[None, :])
