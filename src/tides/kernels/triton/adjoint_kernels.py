"""The scan's adjoint on the GPU, in the same three phases: μ runs through the steps in the opposite direction."""

import triton
import triton.language as tl

from tides.kernels.triton.device_math import exponentials, multiply, phi1, phi1_slope
from tides.kernels.triton.evolve_kernels import (
    governing,
    interval,
    load_clocks,
    load_complex,
    load_interval,
    place_chunks,
    store_summary,
    times,
)


@triton.jit
def adjoint_kernel(
    decay, frequency, gaps, scale, drive, begin, s0, owner, carry, summary, gradient, s,
    d_decay, d_frequency, d_gaps, d_scale, d_drive, d_s0,
    L, P, chunks, STATIC_DECAY: tl.constexpr, STATIC_FREQUENCY: tl.constexpr, MODE_GAPS: tl.constexpr,
    METHOD: tl.constexpr, FOLLOWING: tl.constexpr, REVERSE: tl.constexpr, PACKED: tl.constexpr, HAS_S0: tl.constexpr,
    SUMMARISE: tl.constexpr, HAS_CARRY: tl.constexpr, ADD: tl.constexpr, T: tl.constexpr, C: tl.constexpr,
    BP: tl.constexpr,
):  # fmt: skip
    """μ_k = g_k + conj(a_{k+1}) μ_{k+1} over C chunks, in the opposite direction, and every gradient from μ."""
    row, chunk, mode = place_chunks(chunks, C, BP)
    exists = (chunk < chunks) & (mode < P)
    at = (row * chunks + chunk) * P + mode
    turn, step = load_clocks(frequency, scale, row, mode, P, STATIC_FREQUENCY, METHOD)
    # What leads from the step before a chunk's first one, which nothing precedes at the sequence's end.
    t = chunk * T
    has_next = exists & (t > 0)
    following = t - 1 if REVERSE else L - t
    ar, ai, _, _ = load_interval(
        decay, frequency, gaps, turn, step, drive, begin, s0, owner, row, tl.where(t > 0, following, 0), mode, has_next,
        L, P, STATIC_DECAY, STATIC_FREQUENCY, MODE_GAPS, METHOD, FOLLOWING, REVERSE, PACKED, HAS_S0,
    )  # fmt: skip
    ar = tl.where(has_next, ar, 0.0)
    ai = tl.where(has_next, ai, 0.0)
    pr = tl.zeros((C, BP), tl.float32) + 1.0
    pi = tl.zeros((C, BP), tl.float32)
    mr = tl.zeros((C, BP), tl.float32)
    mi = tl.zeros((C, BP), tl.float32)
    of_decay = tl.zeros((C, BP), tl.float32)
    of_frequency = tl.zeros((C, BP), tl.float32)
    of_scale = tl.zeros((C, BP), tl.float32)
    if HAS_CARRY:
        mr, mi = load_complex(carry, at, exists)
    for k in range(T):
        t = chunk * T + k
        index = t if REVERSE else L - 1 - t
        inside = exists & (t < L)
        gr, gi = load_complex(gradient, (row * L + index) * P + mode, inside)
        mr, mi = times(ar, -ai, mr, mi)
        mr += gr
        mi += gi
        if SUMMARISE:
            pr, pi = times(ar, -ai, pr, pi)
            ar, ai, _, _ = load_interval(
                decay, frequency, gaps, turn, step, drive, begin, s0, owner, row, index, mode, inside, L, P,
                STATIC_DECAY, STATIC_FREQUENCY, MODE_GAPS, METHOD, FOLLOWING, REVERSE, PACKED, HAS_S0,
            )  # fmt: skip
        else:
            ar, ai, dl_r, dl_i, dd = gradients(
                decay, frequency, gaps, turn, step, drive, begin, s0, owner, s, tl.where(inside, mr, 0.0),
                tl.where(inside, mi, 0.0), d_decay, d_frequency, d_gaps, d_drive, d_s0, row, index, mode, inside, L, P,
                STATIC_DECAY, STATIC_FREQUENCY, MODE_GAPS, METHOD, FOLLOWING, REVERSE, PACKED, HAS_S0, ADD,
            )  # fmt: skip
            of_decay += dl_r
            of_frequency += dl_i
            of_scale += dd
    if SUMMARISE:
        store_summary(summary, at, pr, pi, mr, mi, exists)
    elif METHOD != 3:
        if STATIC_DECAY:
            tl.store(d_decay + at, of_decay, exists)
        if STATIC_FREQUENCY:
            tl.store(d_frequency + at, of_frequency, exists)
        tl.store(d_scale + at, of_scale, exists)


@triton.jit
def gradients(
    decay, frequency, gaps, turn, step, drive, begin, s0, owner, s, mr, mi,
    d_decay, d_frequency, d_gaps, d_drive, d_s0, row, index, mode, inside, L, P,
    STATIC_DECAY: tl.constexpr, STATIC_FREQUENCY: tl.constexpr, MODE_GAPS: tl.constexpr, METHOD: tl.constexpr,
    FOLLOWING: tl.constexpr, REVERSE: tl.constexpr, PACKED: tl.constexpr, HAS_S0: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """Gradients of everything that made the interval which ends at `index` (formulas: chunked/evolve.py).

    Returned: a of this interval, which the next step needs, and its shares of decay's, frequency's and scale's
    gradient, for those that are summed over a chunk. With `ADD` the gradients of decay and drive are added to what is
    there: every place is governing once.
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
        dl_r, dl_i = multiply(mr, mi, pr, -pi)
        tl.store(d_decay + 2 * here, dl_r, inside)
        tl.store(d_decay + 2 * here + 1, dl_i, inside)
        tl.store(d_drive + 2 * here, mr, inside)
        tl.store(d_drive + 2 * here + 1, mi, inside)
        ar, ai = load_complex(decay, here, inside)
        share = mr * 0.0
    else:
        source = governing(index, L, FOLLOWING, REVERSE)
        there = (row * L + source) * P + mode
        lr = tl.load(decay + (row * P + mode if STATIC_DECAY else there), inside, 0.0)
        li = turn if STATIC_FREQUENCY else tl.load(frequency + there, inside, 0.0)
        gap = tl.load(gaps + (here if MODE_GAPS else row * L + index), inside, 0.0)
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
        if not STATIC_DECAY:
            tl.store(d_decay + there, dl_r, inside)
        if not STATIC_FREQUENCY:
            tl.store(d_frequency + there, dl_i, inside)
        if MODE_GAPS:
            tl.store(d_gaps + here, dd * step, inside)
        else:
            blocks = tl.num_programs(1)
            total = tl.sum(tl.where(inside, dd * step, 0.0), axis=1)[:, None]
            tl.store(d_gaps + (row * L + index) * blocks + tl.program_id(1), total, (index >= 0) & (index < L))
        share = dd * gap
    # A beginning forgets what came before it; beyond the end: the identity.
    ar = tl.where(inside, tl.where(first, 0.0, ar), 1.0)
    ai = tl.where(inside, tl.where(first, 0.0, ai), 0.0)
    zero = mr * 0.0
    return ar, ai, tl.where(inside, dl_r, zero), tl.where(inside, dl_i, zero), tl.where(inside, share, zero)
