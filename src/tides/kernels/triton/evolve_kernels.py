"""Discretise and scan on the GPU in three phases: chunk summaries, carries over chunks, states.

A thread walks through one mode of one chunk, step by step: what it costs is the discretisation alone, and neighbouring
threads read neighbouring modes. Steps are visited from `index` 0 on, or from l − 1 when time runs backwards.
`METHOD` 3 scans given (a, b) instead of discretising. Beginnings of sequences are folded: a = 0 there, and b holds the
initial state's share. All offsets are 64-bit; sums over time are written per chunk and added up afterwards in a fixed
order.
"""

import triton
import triton.language as tl

from tides.kernels.triton.device_math import exponentials, multiply, phi1
from tides.kernels.triton.launched import launched

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
def carried(ar, ai, sr, si, DECAYS: tl.constexpr):
    """a s; if all |a| ≤ 1, nothing overflows."""
    if DECAYS:
        return multiply(ar, ai, sr, si)
    else:
        return times(ar, ai, sr, si)


@triton.jit
def load_complex(pointer, offset, mask, OTHER: tl.constexpr = 0):
    """Both planes in one load; OTHER has the bits of the real part where there is nothing."""
    word = tl.load(pointer.to(tl.pointer_type(tl.int64), bitcast=True) + offset, mask, OTHER)
    return word.to(tl.int32).to(tl.float32, bitcast=True), (word >> 32).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def store_complex(pointer, offset, re, im, mask):
    low = re.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    word = (im.to(tl.int32, bitcast=True).to(tl.int64) << 32) | low
    tl.store(pointer.to(tl.pointer_type(tl.int64), bitcast=True) + offset, word, mask)


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
def load_first(begin, index, L, REVERSE: tl.constexpr, PACKED: tl.constexpr):
    """Whether a sequence begins at `index`."""
    if PACKED:
        return tl.load(begin + index, (index >= 0) & (index < L), 0) != 0
    else:
        return index == (L - 1 if REVERSE else 0)


@triton.jit
def load_start(s0, owner, row, index, mode, mask, L, P: tl.constexpr, PACKED: tl.constexpr):
    """The state that a sequence begins with, and where it lies."""
    if PACKED:
        start = tl.load(owner + index, (index >= 0) & (index < L), 0).to(tl.int64) * P + mode
    else:
        start = row * P + mode + index * 0
    re, im = load_complex(s0, start, mask)
    return re, im, start


@triton.jit
def load_clocks(frequency, scale, row, mode, P: tl.constexpr, STATIC_FREQUENCY: tl.constexpr, METHOD: tl.constexpr):
    """Frequencies and time scales that hold for a whole sequence; zeros where there are none."""
    turn = tl.zeros(mode.shape, tl.float32)
    step = tl.zeros(mode.shape, tl.float32)
    if METHOD != 3:
        step = tl.load(scale + row * P + mode, mode < P, 0.0)
    if STATIC_FREQUENCY:
        turn = tl.load(frequency + row * P + mode, mode < P, 0.0)
    return turn, step


@triton.jit
def load_step(
    decay, frequency, gaps, turn, drive, begin, row, index, mode, here, inside, L, P: tl.constexpr,
    STATIC_DECAY: tl.constexpr, STATIC_FREQUENCY: tl.constexpr, MODE_GAPS: tl.constexpr, METHOD: tl.constexpr,
    FOLLOWING: tl.constexpr, REVERSE: tl.constexpr, PACKED: tl.constexpr, DRIVEN: tl.constexpr = True,
):  # fmt: skip
    """What makes the interval that ends at `index`, which lies at `here`: λ or a, its gap, and the drive if `DRIVEN`.

    Where `inside` is not, nothing is loaded: no time passes there, which leaves a state as it is.
    """
    gap = tl.zeros(mode.shape, tl.float32)
    vr = gap
    vi = gap
    there = here
    governed = inside
    if METHOD == 3:
        lr, li = load_complex(decay, here, inside, OTHER=0x3F800000)
    else:
        if FOLLOWING:
            there = here + P if REVERSE else here - P
            governed = inside & (load_first(begin, index, L, REVERSE, PACKED) == 0)
        lr = tl.load(decay + (row * P + mode if STATIC_DECAY else there), governed, 0.0)
        li = turn if STATIC_FREQUENCY else tl.load(frequency + there, governed, 0.0)
        gap = tl.load(gaps + (here if MODE_GAPS else row * L + index), inside, 0.0)
    if DRIVEN:
        vr, vi = load_complex(drive, there, governed)
    return lr, li, gap, vr, vi


@triton.jit
def is_inside(index, exists, L, REVERSE: tl.constexpr):
    """Whether there is such a step of a chunk that exists."""
    return exists & (index >= 0 if REVERSE else index < L)


@triton.jit
def load_steps(
    decay, frequency, gaps, turn, drive, begin, row, index, mode, here, exists, L, P: tl.constexpr,
    STATIC_DECAY: tl.constexpr, STATIC_FREQUENCY: tl.constexpr, MODE_GAPS: tl.constexpr, METHOD: tl.constexpr,
    FOLLOWING: tl.constexpr, REVERSE: tl.constexpr, PACKED: tl.constexpr, U: tl.constexpr,
    DRIVEN: tl.constexpr = True,
):  # fmt: skip
    """The same for U steps, one after the other in the direction of time."""
    steps = ()
    for j in tl.static_range(U):
        later = index + (-j if REVERSE else j)
        there = here + (-j * P if REVERSE else j * P)
        inside = is_inside(later, exists, L, REVERSE)
        step = load_step(
            decay, frequency, gaps, turn, drive, begin, row, later, mode, there, inside, L, P, STATIC_DECAY,
            STATIC_FREQUENCY, MODE_GAPS, METHOD, FOLLOWING, REVERSE, PACKED, DRIVEN,
        )  # fmt: skip
        steps += (step,)  # type: ignore[assignment]
    return steps


@triton.jit
def fold(
    lr, li, gap, vr, vi, step, begin, s0, owner, row, index, mode, inside, L, P: tl.constexpr, METHOD: tl.constexpr,
    FOLLOWING: tl.constexpr, REVERSE: tl.constexpr, PACKED: tl.constexpr, HAS_S0: tl.constexpr,
):  # fmt: skip
    """(a, b) of s ← a s + b at `index`, with beginnings inside and states before.

    Without either, the state before the first step is zero, and needs no a.
    """
    if METHOD == 3:
        ar = lr
        ai = li
        br = vr
        bi = vi
    else:
        delta = gap * step
        ar, ai, gr, gi = interval(lr * delta, li * delta, delta, METHOD, FOLLOWING)
        br, bi = multiply(gr, gi, vr, vi)
    if HAS_S0 or PACKED:
        first = load_first(begin, index, L, REVERSE, PACKED)
        if HAS_S0:
            ir, ii, _ = load_start(s0, owner, row, index, mode, inside & first, L, P, PACKED)
            if not FOLLOWING:
                ir, ii = multiply(ar, ai, ir, ii)
            br = tl.where(first, br + ir, br)
            bi = tl.where(first, bi + ii, bi)
        ar = tl.where(first, 0.0, ar)
        ai = tl.where(first, 0.0, ai)
    return ar, ai, br, bi


@triton.jit
def last_row(x, T: tl.constexpr):
    rows = tl.arange(0, T)[:, None]
    return tl.sum(tl.where(rows == T - 1, x, 0.0), axis=0)


@triton.jit
def place_chunks(chunks, C: tl.constexpr, BP: tl.constexpr):
    """The sequence of this program, and of its threads the chunk and the mode, BP modes for every chunk."""
    groups = tl.cdiv(chunks, C)
    lane = tl.arange(0, C * BP)
    row = (tl.program_id(0) // groups).to(tl.int64)
    return row, tl.program_id(0) % groups * C + lane // BP, (tl.program_id(1) * BP + lane % BP).to(tl.int64)


@triton.jit
def store_summary(summary, at, ar, ai, br, bi, exists):
    store_complex(summary, 2 * at, ar, ai, exists)
    store_complex(summary, 2 * at + 1, br, bi, exists)


@launched
def forward_kernel(
    decay, frequency, gaps, scale, drive, begin, s0, owner, carry, summary, out, L, chunks, T,
    P: tl.constexpr, STATIC_DECAY: tl.constexpr, STATIC_FREQUENCY: tl.constexpr, MODE_GAPS: tl.constexpr,
    METHOD: tl.constexpr, FOLLOWING: tl.constexpr, REVERSE: tl.constexpr, PACKED: tl.constexpr, HAS_S0: tl.constexpr,
    DECAYS: tl.constexpr, SUMMARISE: tl.constexpr, HAS_CARRY: tl.constexpr, C: tl.constexpr, BP: tl.constexpr,
    U: tl.constexpr,
):  # fmt: skip
    """C chunks of one sequence: their (a, b) summaries, or their states on top of the carries that reach them.

    A chunk has T groups of U steps.
    """
    row, chunk, mode = place_chunks(chunks, C, BP)
    exists = (chunk < chunks) & (mode < P)
    at = (row * chunks + chunk) * P + mode
    turn, step = load_clocks(frequency, scale, row, mode, P, STATIC_FREQUENCY, METHOD)
    pr = tl.zeros((C * BP,), tl.float32) + 1.0
    pi = tl.zeros((C * BP,), tl.float32)
    sr = tl.zeros((C * BP,), tl.float32)
    si = tl.zeros((C * BP,), tl.float32)
    if HAS_CARRY:
        sr, si = load_complex(carry, at, exists)
    index = L - 1 - chunk * (T * U) if REVERSE else chunk * (T * U)
    here = (row * L + index) * P + mode
    steps = load_steps(
        decay, frequency, gaps, turn, drive, begin, row, index, mode, here, exists, L, P, STATIC_DECAY,
        STATIC_FREQUENCY, MODE_GAPS, METHOD, FOLLOWING, REVERSE, PACKED, U,
    )  # fmt: skip
    for _group in range(T):
        # The next steps', on their way from memory while these are computed.
        ahead = load_steps(
            decay, frequency, gaps, turn, drive, begin, row, index + (-U if REVERSE else U), mode,
            here + (-U * P if REVERSE else U * P), exists, L, P, STATIC_DECAY, STATIC_FREQUENCY, MODE_GAPS, METHOD,
            FOLLOWING, REVERSE, PACKED, U,
        )  # fmt: skip
        for j in tl.static_range(U):
            lr, li, gap, vr, vi = steps[j]
            inside = is_inside(index, exists, L, REVERSE)
            ar, ai, br, bi = fold(
                lr, li, gap, vr, vi, step, begin, s0, owner, row, index, mode, inside, L, P, METHOD, FOLLOWING,
                REVERSE, PACKED, HAS_S0,
            )  # fmt: skip
            sr, si = carried(ar, ai, sr, si, DECAYS)
            sr += br
            si += bi
            if SUMMARISE:
                pr, pi = carried(ar, ai, pr, pi, DECAYS)
            else:
                store_complex(out, here, sr, si, inside)
            index += -1 if REVERSE else 1
            here += -P if REVERSE else P
        steps = ahead
    if SUMMARISE:
        store_summary(summary, at, pr, pi, sr, si, exists)


@launched
def carry_kernel(summary, carry, P, chunks, BC: tl.constexpr, BP: tl.constexpr):
    """The state that reaches each chunk, by a scan over the chunks' summaries."""
    row = tl.program_id(0).to(tl.int64)
    mode = (tl.program_id(1) * BP + tl.arange(0, BP)).to(tl.int64)
    sr = tl.zeros((BP,), tl.float32)
    si = tl.zeros((BP,), tl.float32)
    store_complex(carry, row * chunks * P + mode, sr, si, mode < P)
    for start in range(0, chunks, BC):
        chunk = start + tl.arange(0, BC)[:, None].to(tl.int64)
        inside = (chunk < chunks) & (mode[None, :] < P)
        at = (row * chunks + chunk) * P + mode[None, :]
        ar, ai = load_complex(summary, 2 * at, inside, OTHER=0x3F800000)
        br, bi = load_complex(summary, 2 * at + 1, inside)
        ar, ai, br, bi = tl.associative_scan((ar, ai, br, bi), 0, compose)
        pr, pi = times(ar, ai, sr[None, :], si[None, :])
        br += pr
        bi += pi
        store_complex(carry, at + P, br, bi, inside & (chunk + 1 < chunks))
        sr = last_row(br, BC)
        si = last_row(bi, BC)
