"""From packed weights to the tiles that the block's kernels multiply with, and from their gradients back."""

import triton
import triton.language as tl

from tides.kernels.triton.device_math import accurate_exp


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
def pack_kernel(
    packed, kernel, root, gram_out, frequency, scale, W, at_base, packed_step, step, at_frequency, batch,
    H: tl.constexpr, P: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, PB: tl.constexpr, IB: tl.constexpr,
    NORM: tl.constexpr, CLOCKS: tl.constexpr,
):  # fmt: skip
    """Column h of a mix: K[i, h, o] = w_p 𝓑_h[o, i], G_h = 𝓑_hᵀ𝓑_h / P, and R_h with R_hᵀR_h = G_h (as in mix_kernels).

    The grid's third axis are mixes, `packed_step` apart in `packed` and `step` where they go. With `CLOCKS` also a row
    of frequencies and of time scales exp(log step) for every sequence, as `evolve` wants them.
    """
    h = tl.program_id(0)
    model = tl.program_id(1).to(tl.int64)
    packed += model * W
    mix = tl.program_id(2)
    at_base += mix * packed_step
    kernel += model * (R + 1) * HB * PB + mix * step
    root += model * (R + 1) * IB * HB + mix * step
    gram_out += model * (R + 1) * HB * IB + mix * step
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
    tl.store(kernel + (i[None, :] * HB + h) * PB + o[:, None], weighted, (i <= R)[None, :] & (o < PB)[:, None])
    if NORM:
        wide = tile.to(tl.float64)
        gram = tl.sum(wide[:, :, None] * wide[:, None, :], axis=0) / P
        tl.store(
            gram_out + (i[:, None] * HB + h) * IB + i[None, :],
            gram.to(tl.float32),
            (i <= R)[:, None] & (i < IB)[None, :],
        )
        tiny = tl.max(tl.sum(tl.where(i[:, None] == i[None, :], gram, 0.0), axis=1), axis=0) * 1e-14
        for j in tl.static_range(R + 1):
            pivots = tl.sum(tl.where(i[None, :] == j, gram, 0.0), axis=1)
            pivot = tl.sum(tl.where(i == j, pivots, 0.0), axis=0)
            inverse = tl.where(pivot > tiny, 1.0 / tl.sqrt(tl.maximum(pivot, 1e-300)), 0.0)
            pivots = tl.where(i >= j, pivots * inverse, 0.0)
            gram -= pivots[:, None] * pivots[None, :]
            tl.store(root + (j * IB + i) * HB + h, pivots.to(tl.float32))


@triton.jit
def unpack_kernel(
    packed, d_kernel, d_packed, d_norm, W, at_base, packed_step, H: tl.constexpr, P: tl.constexpr, R: tl.constexpr,
    HB: tl.constexpr, PB: tl.constexpr, IB: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """Gradients of base and up for column h, and its share of the norm weight's, from those of K and of G.

    `d_kernel` is (mix, model, i, h, PB + IB), `d_norm` (mix, model, h, p).
    """
    h = tl.program_id(0)
    model = tl.program_id(1).to(tl.int64)
    mix = tl.program_id(2)
    at_base += mix * packed_step
    packed += model * W
    d_packed += model * W
    model += mix * tl.num_programs(1)
    d_kernel += model * (R + 1) * HB * (PB + IB)
    o = tl.arange(0, PB)
    i = tl.arange(0, IB)
    at = (i[None, :] * HB + h) * (PB + IB)
    change = tl.load(d_kernel + at + o[:, None], (i <= R)[None, :] & (o < 2 * P)[:, None], 0.0)
    if NORM:
        tile = load_factors(packed, at_base, h, H, P, R, PB, IB)
        gram = tl.load(d_kernel + at + PB + i[:, None], (i <= R)[None, :] & (i <= R)[:, None], 0.0)
        p = tl.arange(0, PB // 2)
        pairs = tl.sum(tl.reshape(tl.sum(change * tile, axis=1), (PB // 2, 2)), axis=1)
        tl.store(d_norm + (model * H + h) * P + p, pairs, p < P)
        norm = tl.load(packed + at_base + 2 * P * H * (R + 1) + o // 2, o < 2 * P, 0.0)
        change = change * norm[:, None] + tl.dot(tile, gram, input_precision="ieee") * (2.0 / P)
    column = ((o // 2) * H + h) * 2 + o % 2
    inside = (o < 2 * P)[:, None]
    tl.store(d_packed + at_base + 2 * P * H + column[:, None] * R + i[None, :], change, inside & (i < R)[None, :])
    tl.store(d_packed + at_base + column[:, None] + i[None, :] * 0, change, inside & (i == R)[None, :])
