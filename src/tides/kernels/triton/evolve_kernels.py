"""Discretise and scan on the GPU in three phases: chunk summaries, carries over chunks, states.

A thread walks through one mode of one chunk, step by step: what it costs is the discretisation alone, and neighbouring
threads read neighbouring modes. Steps are visited in scan order t; `index` = t, or l − 1 − t when time runs backwards.
`METHOD` 3 scans given (a, b) instead of discretising. Beginnings of sequences are folded: a = 0 there, and b holds the
initial state's share. All offsets are 64-bit; sums over time are written per chunk and added up afterwards in a fixed
order.
"""

import triton
import triton.language as tl

from tides.kernels.triton.device_math import exponentials, multiply, phi1

ZOH, BILINEAR, DIRAC, GIVEN = 0, 1, 2, 3


@triton.jit
def compose(ar, ai, br, bi, cr, ci, dr, di):
    """(a, b) then (c, d): s ↦ c (a s + b) + d. Zero wins over overflow: nothing grows from nothing, and a beginning
    (c = 0) forgets whatever came before it."""
    pr, pi = times(cr, ci, ar, ai)
    qr, qi = times(cr, ci, br, bi)
    return pr, pi, qr + dr, qi + di


@triton.jit
def times(cr, ci, br, bi):
    """c · b, where zero times infinity is zero."""
    pr, pi = multiply(cr, ci, br, bi)
    nothing = ((br == 0.0) & (bi == 0.0)) | ((cr == 0.0) & (ci == 0.0))
    return tl.where(nothing, 0.0, pr), tl.where(nothing, 0.0, pi)


@triton.jit
def load_complex(pointer, offset, mask):
    return tl.load(pointer + 2 * offset, mask, 0.0), tl.load(pointer + 2 * offset + 1, mask, 0.0)


@triton.jit
def interval(zr, zi, delta, METHOD: tl.constexpr, FOLLOWING: tl.constexpr):
    """(λ̄, gain) of one interval, z = λδ."""
    if METHOD == 1:
        dr = 1.0 - 0.5 * zr
        di = -0.5 * zi
        inverse = 1.0 / (dr * dr + di * di)
        nr = 1.0 + 0.5 * zr
        ni = 0.5 * zi
        return (nr * dr + ni * di) * inverse, (ni * dr - nr * di) * inverse, delta * dr * inverse, -delta * di * inverse
    else:
        er, ei, ar, ai = exponentials(zr, zi)
        if METHOD == 0:
            pr, pi = phi1(zr, zi, er, ei)
            return ar, ai, delta * pr, delta * pi
        else:
            if FOLLOWING:
                return ar, ai, ar, ai
            else:
                return ar, ai, ar * 0.0 + 1.0, ai * 0.0


@triton.jit
def governing(index, L, FOLLOWING: tl.constexpr, REVERSE: tl.constexpr):
    """The step whose (λ, v) governs the interval that ends at `index`; beginnings wrap around, harmlessly."""
    if FOLLOWING:
        if REVERSE:
            return tl.where(index + 1 < L, index + 1, 0)
        else:
            return tl.where(index > 0, index - 1, L - 1)
    else:
        return index


@triton.jit
def load_clocks(frequency, scale, row, mode, P, STATIC_FREQUENCY: tl.constexpr, METHOD: tl.constexpr):
    """Frequencies and time scales (1, p) that hold for a whole sequence; zeros where there are none."""
    turn = tl.zeros(mode.shape, tl.float32)
    step = tl.zeros(mode.shape, tl.float32)
    if METHOD != 3:
        step = tl.load(scale + row * P + mode, mode < P, 0.0)
    if STATIC_FREQUENCY:
        turn = tl.load(frequency + row * P + mode, mode < P, 0.0)
    return turn, step


@triton.jit
def load_interval(
    decay, frequency, gaps, turn, step, drive, begin, s0, owner, row, index, mode, inside,
    L, P, STATIC_DECAY: tl.constexpr, STATIC_FREQUENCY: tl.constexpr, MODE_GAPS: tl.constexpr, METHOD: tl.constexpr,
    FOLLOWING: tl.constexpr, REVERSE: tl.constexpr, PACKED: tl.constexpr, HAS_S0: tl.constexpr,
):  # fmt: skip
    """(a, b) of s ← a s + b at `index` (c, 1), modes (1, p), with beginnings folded in."""
    here = (row * L + index) * P + mode
    if METHOD == 3:
        ar, ai = load_complex(decay, here, inside)
        br, bi = load_complex(drive, here, inside)
    else:
        source = governing(index, L, FOLLOWING, REVERSE)
        there = (row * L + source) * P + mode
        lr = tl.load(decay + (row * P + mode if STATIC_DECAY else there), inside, 0.0)
        li = turn if STATIC_FREQUENCY else tl.load(frequency + there, inside, 0.0)
        delta = tl.load(gaps + (here if MODE_GAPS else row * L + index), inside, 0.0) * step
        vr, vi = load_complex(drive, there, inside)
        ar, ai, gr, gi = interval(lr * delta, li * delta, delta, METHOD, FOLLOWING)
        br, bi = multiply(gr, gi, vr, vi)
    if PACKED:
        first = tl.load(begin + index, (index >= 0) & (index < L), 0) != 0
    else:
        first = index == (L - 1 if REVERSE else 0)
    ir = ar * 0.0
    ii = ar * 0.0
    if HAS_S0:
        if PACKED:
            start = tl.load(owner + index, (index >= 0) & (index < L), 0).to(tl.int64) * P + mode
        else:
            start = row * P + mode + index * 0
        ir, ii = load_complex(s0, start, inside & first)
    if FOLLOWING:
        br = tl.where(first, ir, br)
        bi = tl.where(first, ii, bi)
    else:
        cr, ci = multiply(ar, ai, ir, ii)
        br = tl.where(first, br + cr, br)
        bi = tl.where(first, bi + ci, bi)
    ar = tl.where(first, 0.0, ar)
    ai = tl.where(first, 0.0, ai)
    # Beyond the end: the identity.
    return tl.where(inside, ar, 1.0), tl.where(inside, ai, 0.0), tl.where(inside, br, 0.0), tl.where(inside, bi, 0.0)


@triton.jit
def last_row(x, T: tl.constexpr):
    rows = tl.arange(0, T)[:, None]
    return tl.sum(tl.where(rows == T - 1, x, 0.0), axis=0)


@triton.jit
def place_chunks(chunks, C: tl.constexpr, BP: tl.constexpr):
    """The sequence, the chunks (c, 1) and the modes (1, p) of this program."""
    groups = tl.cdiv(chunks, C)
    row = (tl.program_id(0) // groups).to(tl.int64)
    chunk = (tl.program_id(0) % groups * C + tl.arange(0, C)[:, None]).to(tl.int64)
    return row, chunk, (tl.program_id(1) * BP + tl.arange(0, BP))[None, :].to(tl.int64)


@triton.jit
def store_summary(summary, at, ar, ai, br, bi, exists):
    tl.store(summary + 4 * at, ar, exists)
    tl.store(summary + 4 * at + 1, ai, exists)
    tl.store(summary + 4 * at + 2, br, exists)
    tl.store(summary + 4 * at + 3, bi, exists)


@triton.jit
def forward_kernel(
    decay, frequency, gaps, scale, drive, begin, s0, owner, carry, summary, out,
    L, P, chunks, STATIC_DECAY: tl.constexpr, STATIC_FREQUENCY: tl.constexpr, MODE_GAPS: tl.constexpr,
    METHOD: tl.constexpr, FOLLOWING: tl.constexpr, REVERSE: tl.constexpr, PACKED: tl.constexpr, HAS_S0: tl.constexpr,
    SUMMARISE: tl.constexpr, HAS_CARRY: tl.constexpr, T: tl.constexpr, C: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """C chunks of one sequence: their (a, b) summaries, or their states on top of the carries that reach them."""
    row, chunk, mode = place_chunks(chunks, C, BP)
    exists = (chunk < chunks) & (mode < P)
    at = (row * chunks + chunk) * P + mode
    turn, step = load_clocks(frequency, scale, row, mode, P, STATIC_FREQUENCY, METHOD)
    pr = tl.zeros((C, BP), tl.float32) + 1.0
    pi = tl.zeros((C, BP), tl.float32)
    sr = tl.zeros((C, BP), tl.float32)
    si = tl.zeros((C, BP), tl.float32)
    if HAS_CARRY:
        sr, si = load_complex(carry, at, exists)
    for k in range(T):
        t = chunk * T + k
        index = L - 1 - t if REVERSE else t
        inside = exists & (t < L)
        ar, ai, br, bi = load_interval(
            decay, frequency, gaps, turn, step, drive, begin, s0, owner, row, index, mode, inside, L, P,
            STATIC_DECAY, STATIC_FREQUENCY, MODE_GAPS, METHOD, FOLLOWING, REVERSE, PACKED, HAS_S0,
        )  # fmt: skip
        sr, si = times(ar, ai, sr, si)
        sr += br
        si += bi
        if SUMMARISE:
            pr, pi = times(ar, ai, pr, pi)
        else:
            here = (row * L + index) * P + mode
            tl.store(out + 2 * here, sr, inside)
            tl.store(out + 2 * here + 1, si, inside)
    if SUMMARISE:
        store_summary(summary, at, pr, pi, sr, si, exists)


@triton.jit
def carry_kernel(summary, carry, P, chunks, N: tl.constexpr, BP: tl.constexpr):
    """The state that reaches each chunk, by a scan over the chunks' summaries."""
    row = tl.program_id(0).to(tl.int64)
    mode = (tl.program_id(1) * BP + tl.arange(0, BP)).to(tl.int64)
    sr = tl.zeros((BP,), tl.float32)
    si = tl.zeros((BP,), tl.float32)
    tl.store(carry + 2 * (row * chunks * P + mode), sr, mode < P)
    tl.store(carry + 2 * (row * chunks * P + mode) + 1, si, mode < P)
    for start in range(0, chunks, N):
        chunk = start + tl.arange(0, N)[:, None].to(tl.int64)
        inside = (chunk < chunks) & (mode[None, :] < P)
        at = summary + 4 * ((row * chunks + chunk) * P + mode[None, :])
        ar = tl.load(at, inside, 1.0)
        ai = tl.load(at + 1, inside, 0.0)
        br = tl.load(at + 2, inside, 0.0)
        bi = tl.load(at + 3, inside, 0.0)
        ar, ai, br, bi = tl.associative_scan((ar, ai, br, bi), 0, compose)
        pr, pi = times(ar, ai, sr[None, :], si[None, :])
        br += pr
        bi += pi
        target = carry + 2 * ((row * chunks + chunk + 1) * P + mode[None, :])
        tl.store(target, br, inside & (chunk + 1 < chunks))
        tl.store(target + 1, bi, inside & (chunk + 1 < chunks))
        sr = last_row(br, N)
        si = last_row(bi, N)
