"""The weights of a wide block's mixes, W_up (p, h, 2, r) and B_0 (p, h, 2), as its products take them, and back.

Together they are 𝓑 (p, h, 2, i) with i = r + 1, of which B_0 is the last; o = 2p + c counts planes.
"""

import triton
import triton.language as tl

from tides.kernels.triton.product_kernels import halve, unit_of


@triton.jit
def load_factors(up, base, h, o, i, inside, H, R):
    """𝓑 at channel, plane and number of the code."""
    place = (o // 2 * H + h) * 2 + o % 2
    return tl.load(up + place * R + i, inside & (i < R), 0.0) + tl.load(base + place + i * 0, inside & (i == R), 0.0)


@triton.jit
def pack_kernel(
    up, base, norm, halves, unit, H, P2, R, AB: tl.constexpr, BW: tl.constexpr, BY_PLANE: tl.constexpr,
    SIGNED: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """[K₁; K₁; K₀] (3a, w) of K, 𝓑 times the norm's weight, and the units of its columns (w).

    K is (h, i·2p) or, with `BY_PLANE`, (2p, i·h); `SIGNED` has the minus sign of Re(C s) = C_re s_re − C_im s_im.
    """
    column = tl.program_id(0) * BW + tl.arange(0, BW)[None, :]
    a = tl.arange(0, AB)[:, None]
    if BY_PLANE:
        A = P2
        W = (R + 1) * H
        h = column % H
        i = column // H
        o = a
    else:
        A = H
        W = (R + 1) * P2
        h = a
        i = column // P2
        o = column % P2
    inside = (a < A) & (column < W)
    x = load_factors(up, base, h, o, i, inside, H, R)
    if NORM:
        x = x * tl.load(norm + o // 2, o < P2, 0.0)
    if SIGNED:
        x = tl.where(o % 2 == 1, -x, x)
    units, inverse = unit_of(tl.max(tl.abs(x), axis=0))
    high, low = halve(x * inverse[None, :])
    at = a * W + column
    tl.store(halves + at, high, inside)
    tl.store(halves + A * W + at, high, inside)
    tl.store(halves + 2 * A * W + at, low, inside)
    tl.store(unit + column, units[None, :], column < W)


@triton.jit
def columns_kernel(up, base, out, H, P2, R, BLOCK: tl.constexpr):
    """𝓑 by column (h, 2p, i), in the precision of `out`."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < H * P2 * (R + 1)
    i = at % (R + 1)
    o = at // (R + 1) % P2
    h = at // ((R + 1) * P2)
    tl.store(out + at, load_factors(up, base, h, o, i, inside, H, R).to(out.dtype.element_ty), inside)


@triton.jit
def unpack_kernel(
    d_kernel, largest, spread, up, base, norm, d_up, d_base, d_norm, H, P, R, BLOCK: tl.constexpr,
    SIGNED: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """Gradients of one mode's weights from that of K (2p, i, h), which is in units (`wide_sum_kernels`).

    `spread` (h, 2p, i) is p times what comes from the column norms.
    """
    p = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    weight = 1.0
    if NORM:
        weight = tl.load(norm + p)
    for start in range(0, 2 * H * (R + 1), BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < 2 * H * (R + 1)
        i = at % (R + 1)
        c = at // (R + 1) % 2
        h = at // (2 * (R + 1))
        o = 2 * p + c
        found = tl.load(d_kernel + (o * (R + 1) + i) * H + h, inside, 0.0)
        unit, _ = unit_of(tl.load(largest + 2 * P + h, inside, 0.0))
        found = found * unit
        unit, _ = unit_of(tl.load(largest + o, inside, 0.0))
        found = found * unit
        unit, _ = unit_of(tl.load(largest + 2 * P + H + i, inside, 0.0))
        found = found * (unit * 32768.0)
        if SIGNED:
            found = tl.where(c == 1, -found, found)
        if NORM:
            total += found * load_factors(up, base, h, o, i, inside, H, R)
            found = found * weight + tl.load(spread + (h * (2 * P) + o) * (R + 1) + i, inside, 0.0) / P
        place = (p * H + h) * 2 + c
        tl.store(d_up + place * R + i, found, inside & (i < R))
        tl.store(d_base + place, found, inside & (i == R))
    if NORM:
        tl.store(d_norm + p, tl.sum(total, axis=0))


@triton.jit
def clocks_kernel(clocks, frequency, scale, P, PB: tl.constexpr):
    """A sequence's row of frequencies, which `clocks` begins with, and of time scales, from their logarithms."""
    mode = tl.arange(0, PB)
    at = tl.program_id(0) * P + mode
    tl.store(frequency + at, tl.load(clocks + mode, mode < P, 0.0), mode < P)
    # An error of a time scale turns every step of a mode the same way: rounded once, from float64.
    step = tl.exp(tl.load(clocks + P + mode, mode < P, 0.0).to(tl.float64))
    tl.store(scale + at, step.to(tl.float32), mode < P)
