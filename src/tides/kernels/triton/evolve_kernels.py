"""Discretise and scan on the GPU in three phases: chunk summaries, carries over chunks, states.

Steps are visited in scan order t; `index` = t, or l − 1 − t when time runs backwards. `METHOD` 3 scans given (a, b)
instead of discretising. Beginnings of sequences are folded: a = 0 there, and b holds the initial state's share. All
offsets are 64-bit; sums over time are written per chunk and added up afterwards in a fixed order.
"""

import triton
import triton.language as tl

from tides.kernels.triton.device_math import exponentials, multiply, phi1, phi1_slope

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
def load_interval(
    decay, frequency, gaps, scale, drive, begin, s0, owner, row, index, mode, inside,
    L, P, STATIC_DECAY: tl.constexpr, STATIC_FREQUENCY: tl.constexpr, MODE_GAPS: tl.constexpr, METHOD: tl.constexpr,
    FOLLOWING: tl.constexpr, REVERSE: tl.constexpr, PACKED: tl.constexpr, HAS_S0: tl.constexpr,
):  # fmt: skip
    """(a, b) of s ← a s + b at `index` (t, 1), modes (1, p), with beginnings folded in."""
    here = (row * L + index) * P + mode
    if METHOD == 3:
        ar, ai = load_complex(decay, here, inside)
        br, bi = load_complex(drive, here, inside)
    else:
        source = governing(index, L, FOLLOWING, REVERSE)
        there = (row * L + source) * P + mode
        lr = tl.load(decay + (row * P + mode if STATIC_DECAY else there), inside, 0.0)
        li = tl.load(frequency + (row * P + mode if STATIC_FREQUENCY else there), inside, 0.0)
        gap = tl.load(gaps + (here if MODE_GAPS else row * L + index), inside, 0.0)
        delta = gap * tl.load(scale + row * P + mode, inside, 0.0)
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
def forward_kernel(
    decay, frequency, gaps, scale, drive, begin, s0, owner, carry, summary, out,
    L, P, chunks, STATIC_DECAY: tl.constexpr, STATIC_FREQUENCY: tl.constexpr, MODE_GAPS: tl.constexpr,
    METHOD: tl.constexpr, FOLLOWING: tl.constexpr, REVERSE: tl.constexpr, PACKED: tl.constexpr, HAS_S0: tl.constexpr,
    SUMMARISE: tl.constexpr, HAS_CARRY: tl.constexpr, T: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """One chunk of one sequence: its (a, b) summary, or its states on top of the carry that reaches it."""
    row = (tl.program_id(0) // chunks).to(tl.int64)
    chunk = (tl.program_id(0) % chunks).to(tl.int64)
    mode = (tl.program_id(1) * BP + tl.arange(0, BP))[None, :].to(tl.int64)
    t = chunk * T + tl.arange(0, T)[:, None].to(tl.int64)
    index = L - 1 - t if REVERSE else t
    inside = (t < L) & (mode < P)
    ar, ai, br, bi = load_interval(
        decay, frequency, gaps, scale, drive, begin, s0, owner, row, index, mode, inside, L, P,
        STATIC_DECAY, STATIC_FREQUENCY, MODE_GAPS, METHOD, FOLLOWING, REVERSE, PACKED, HAS_S0,
    )  # fmt: skip
    ar, ai, br, bi = tl.associative_scan((ar, ai, br, bi), 0, compose)
    flat = tl.program_id(1) * BP + tl.arange(0, BP)
    if SUMMARISE:
        at = summary + 4 * ((row * chunks + chunk) * P + flat)
        tl.store(at, last_row(ar, T), flat < P)
        tl.store(at + 1, last_row(ai, T), flat < P)
        tl.store(at + 2, last_row(br, T), flat < P)
        tl.store(at + 3, last_row(bi, T), flat < P)
    else:
        if HAS_CARRY:
            cr, ci = load_complex(carry, (row * chunks + chunk) * P + mode, mode < P)
            sr, si = times(ar, ai, cr, ci)
            br += sr
            bi += si
        here = (row * L + index) * P + mode
        tl.store(out + 2 * here, br, inside)
        tl.store(out + 2 * here + 1, bi, inside)


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


@triton.jit
def adjoint_kernel(
    decay, frequency, gaps, scale, drive, begin, s0, owner, carry, summary, gradient, s,
    d_decay, d_frequency, d_gaps, d_scale, d_drive, d_s0,
    L, P, chunks, STATIC_DECAY: tl.constexpr, STATIC_FREQUENCY: tl.constexpr, MODE_GAPS: tl.constexpr,
    METHOD: tl.constexpr, FOLLOWING: tl.constexpr, REVERSE: tl.constexpr, PACKED: tl.constexpr, HAS_S0: tl.constexpr,
    SUMMARISE: tl.constexpr, HAS_CARRY: tl.constexpr, ADD: tl.constexpr, T: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """μ_k = g_k + conj(a_{k+1}) μ_{k+1} over one chunk, in the opposite direction, and every gradient from μ."""
    row = (tl.program_id(0) // chunks).to(tl.int64)
    chunk = (tl.program_id(0) % chunks).to(tl.int64)
    mode = (tl.program_id(1) * BP + tl.arange(0, BP))[None, :].to(tl.int64)
    t = chunk * T + tl.arange(0, T)[:, None].to(tl.int64)
    index = t if REVERSE else L - 1 - t
    inside = (t < L) & (mode < P)
    following = index - 1 if REVERSE else index + 1
    has_next = inside & (t > 0)
    ar, ai, br, bi = load_interval(
        decay, frequency, gaps, scale, drive, begin, s0, owner, row, tl.where(has_next, following, index), mode, inside,
        L, P, STATIC_DECAY, STATIC_FREQUENCY, MODE_GAPS, METHOD, FOLLOWING, REVERSE, PACKED, HAS_S0,
    )  # fmt: skip
    here = (row * L + index) * P + mode
    gr, gi = load_complex(gradient, here, inside)
    ar = tl.where(has_next, ar, tl.where(inside, 0.0, 1.0))
    ai = tl.where(has_next, -ai, 0.0)
    ar, ai, mr, mi = tl.associative_scan((ar, ai, gr, gi), 0, compose)
    flat = tl.program_id(1) * BP + tl.arange(0, BP)
    if SUMMARISE:
        at = summary + 4 * ((row * chunks + chunk) * P + flat)
        tl.store(at, last_row(ar, T), flat < P)
        tl.store(at + 1, last_row(ai, T), flat < P)
        tl.store(at + 2, last_row(mr, T), flat < P)
        tl.store(at + 3, last_row(mi, T), flat < P)
    else:
        if HAS_CARRY:
            cr, ci = load_complex(carry, (row * chunks + chunk) * P + mode, mode < P)
            pr, pi = times(ar, ai, cr, ci)
            mr += pr
            mi += pi
        mr = tl.where(inside, mr, 0.0)
        mi = tl.where(inside, mi, 0.0)
        gradients(
            decay, frequency, gaps, scale, drive, begin, s0, owner, s, mr, mi,
            d_decay, d_frequency, d_gaps, d_scale, d_drive, d_s0,
            row, index, mode, inside, chunk, chunks, L, P,
            STATIC_DECAY, STATIC_FREQUENCY, MODE_GAPS, METHOD, FOLLOWING, REVERSE, PACKED, HAS_S0, ADD, T, BP,
        )  # fmt: skip


@triton.jit
def gradients(
    decay, frequency, gaps, scale, drive, begin, s0, owner, s, mr, mi,
    d_decay, d_frequency, d_gaps, d_scale, d_drive, d_s0,
    row, index, mode, inside, chunk, chunks, L, P,
    STATIC_DECAY: tl.constexpr, STATIC_FREQUENCY: tl.constexpr, MODE_GAPS: tl.constexpr, METHOD: tl.constexpr,
    FOLLOWING: tl.constexpr, REVERSE: tl.constexpr, PACKED: tl.constexpr, HAS_S0: tl.constexpr, ADD: tl.constexpr,
    T: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """Gradients of everything that made the interval which ends at `index` (formulas: chunked/evolve.py).

    With `ADD` those of decay and drive are added to what is there: every place is governing once.
    """
    here = (row * L + index) * P + mode
    if PACKED:
        first = tl.load(begin + index, (index >= 0) & (index < L), 0) != 0
    else:
        first = index == (L - 1 if REVERSE else 0)
    before_index = index + 1 if REVERSE else index - 1
    pr, pi = load_complex(s, (row * L + before_index) * P + mode, inside & (first == 0))
    if HAS_S0:
        if PACKED:
            start = tl.load(owner + index, (index >= 0) & (index < L), 0).to(tl.int64) * P + mode
        else:
            start = row * P + mode + index * 0
        ir, ii = load_complex(s0, start, inside & first)
        pr = tl.where(first, ir, pr)
        pi = tl.where(first, ii, pi)
    if METHOD == 3:
        dr, di = multiply(mr, mi, pr, -pi)
        tl.store(d_decay + 2 * here, dr, inside)
        tl.store(d_decay + 2 * here + 1, di, inside)
        tl.store(d_drive + 2 * here, mr, inside)
        tl.store(d_drive + 2 * here + 1, mi, inside)
    else:
        source = governing(index, L, FOLLOWING, REVERSE)
        there = (row * L + source) * P + mode
        lr = tl.load(decay + (row * P + mode if STATIC_DECAY else there), inside, 0.0)
        li = tl.load(frequency + (row * P + mode if STATIC_FREQUENCY else there), inside, 0.0)
        gap = tl.load(gaps + (here if MODE_GAPS else row * L + index), inside, 0.0)
        step = tl.load(scale + row * P + mode, inside, 0.0)
        delta = gap * step
        vr, vi = load_complex(drive, there, inside)
        zr = lr * delta
        zi = li * delta
        ar, ai, gr, gi = interval(zr, zi, delta, METHOD, FOLLOWING)
        if HAS_S0:
            if FOLLOWING:
                ds_r = mr
                ds_i = mi
            else:
                ds_r, ds_i = multiply(ar, -ai, mr, mi)
            tl.store(d_s0 + 2 * start, ds_r, inside & first)
            tl.store(d_s0 + 2 * start + 1, ds_i, inside & first)
        if FOLLOWING:
            # The state at a beginning is given, not made by an interval.
            mr = tl.where(first, 0.0, mr)
            mi = tl.where(first, 0.0, mi)
        if METHOD == 0:
            er, ei, _, _ = exponentials(zr, zi)
            fr, fi = phi1(zr, zi, er, ei)
            qr, qi = phi1_slope(zr, zi, ar, ai, fr, fi)
            xr, xi = multiply(ar, ai, pr, pi)
            wr, wi = multiply(qr, qi, vr, vi)
            by_lam_r = delta * xr + delta * delta * wr
            by_lam_i = delta * xi + delta * delta * wi
            # ∂s/∂δ = λ̄ (λ s' + v): the shorter λ s + v cancels when the interval is long.
            by_delta_r, by_delta_i = multiply(lr, li, pr, pi)
            by_delta_r, by_delta_i = multiply(ar, ai, by_delta_r + vr, by_delta_i + vi)
        elif METHOD == 1:
            cr = 1.0 - 0.5 * zr
            ci = -0.5 * zi
            square_r, square_i = multiply(cr, ci, cr, ci)
            inverse = 1.0 / (square_r * square_r + square_i * square_i)
            yr = square_r * inverse
            yi = -square_i * inverse
            by_lam_r, by_lam_i = multiply(
                delta * pr + 0.5 * delta * delta * vr, delta * pi + 0.5 * delta * delta * vi, yr, yi
            )
            xr, xi = multiply(lr, li, pr, pi)
            by_delta_r, by_delta_i = multiply(xr + vr, xi + vi, yr, yi)
        else:
            if FOLLOWING:
                xr, xi = multiply(ar, ai, pr + vr, pi + vi)
            else:
                xr, xi = multiply(ar, ai, pr, pi)
            by_lam_r = delta * xr
            by_lam_i = delta * xi
            by_delta_r, by_delta_i = multiply(lr, li, xr, xi)
        dl_r, dl_i = multiply(by_lam_r, -by_lam_i, mr, mi)
        dd = by_delta_r * mr + by_delta_i * mi
        dv_r, dv_i = multiply(gr, -gi, mr, mi)
        if ADD:
            dl_r += tl.load(d_decay + there, inside, 0.0)
            dv_r += tl.load(d_drive + 2 * there, inside, 0.0)
            dv_i += tl.load(d_drive + 2 * there + 1, inside, 0.0)
        tl.store(d_drive + 2 * there, dv_r, inside)
        tl.store(d_drive + 2 * there + 1, dv_i, inside)
        flat = tl.program_id(1) * BP + tl.arange(0, BP)
        partial = (row * chunks + chunk) * P + flat
        if STATIC_DECAY:
            tl.store(d_decay + partial, tl.sum(tl.where(inside, dl_r, 0.0), axis=0), flat < P)
        else:
            tl.store(d_decay + there, dl_r, inside)
        if STATIC_FREQUENCY:
            tl.store(d_frequency + partial, tl.sum(tl.where(inside, dl_i, 0.0), axis=0), flat < P)
        else:
            tl.store(d_frequency + there, dl_i, inside)
        tl.store(d_scale + partial, tl.sum(tl.where(inside, dd * gap, 0.0), axis=0), flat < P)
        if MODE_GAPS:
            tl.store(d_gaps + here, dd * step, inside)
        else:
            blocks = tl.num_programs(1)
            total = tl.sum(tl.where(inside, dd * step, 0.0), axis=1)[:, None]
            tl.store(d_gaps + (row * L + index) * blocks + tl.program_id(1), total, (index >= 0) & (index < L))
