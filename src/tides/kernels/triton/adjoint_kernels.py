"""The scan's adjoint on the GPU, in the same three phases: μ runs through the steps in the opposite direction."""

import triton
import triton.language as tl

from tides.kernels.triton.device_math import exponentials, multiply, phi1, phi1_slope
from tides.kernels.triton.evolve_kernels import (
    carried,
    fold,
    interval,
    is_inside,
    load_clocks,
    load_complex,
    load_first,
    load_start,
    load_step,
    place_chunks,
    store_complex,
    store_summary,
)
from tides.kernels.triton.launched import launched


@triton.jit
def load_before(
    s, begin, index, here, inside, L, P: tl.constexpr, REVERSE: tl.constexpr, PACKED: tl.constexpr,
    WANTED: tl.constexpr,
):  # fmt: skip
    """The state that the interval which ends at `index` begins with, where it is wanted; zeros at beginnings."""
    if WANTED:
        continues = inside & (load_first(begin, index, L, REVERSE, PACKED) == 0)
        return load_complex(s, here + (P if REVERSE else -P), continues)
    else:
        nothing = tl.zeros(inside.shape, tl.float32)
        return nothing, nothing


@triton.jit
def load_adjoint_steps(
    gradient, s, decay, frequency, gaps, turn, drive, begin, row, index, mode, here, exists, L, P: tl.constexpr,
    STATIC_DECAY: tl.constexpr, STATIC_FREQUENCY: tl.constexpr, MODE_GAPS: tl.constexpr, METHOD: tl.constexpr,
    FOLLOWING: tl.constexpr, REVERSE: tl.constexpr, PACKED: tl.constexpr, SUMMARISE: tl.constexpr, U: tl.constexpr,
):  # fmt: skip
    """U steps against the direction of time: the states' gradients, the states before, and what made the interval."""
    steps = ()
    for j in tl.static_range(U):
        earlier = index + (j if REVERSE else -j)
        there = here + (j * P if REVERSE else -j * P)
        inside = is_inside(earlier, exists, L, not REVERSE)
        gr, gi = load_complex(gradient, there, inside)
        sr, si = load_before(s, begin, earlier, there, inside, L, P, REVERSE, PACKED, not SUMMARISE)
        lr, li, gap, vr, vi = load_step(
            decay, frequency, gaps, turn, drive, begin, row, earlier, mode, there, inside, L, P, STATIC_DECAY,
            STATIC_FREQUENCY, MODE_GAPS, METHOD, FOLLOWING, REVERSE, PACKED, DRIVEN=not SUMMARISE,
        )  # fmt: skip
        steps += ((gr, gi, sr, si, lr, li, gap, vr, vi),)  # type: ignore[assignment]
    return steps


@launched
def adjoint_kernel(
    decay, frequency, gaps, scale, drive, begin, s0, owner, carry, summary, gradient, s, d_decay, d_frequency, d_gaps,
    d_scale, d_drive, d_s0, L, chunks, T,
    P: tl.constexpr, STATIC_DECAY: tl.constexpr, STATIC_FREQUENCY: tl.constexpr, MODE_GAPS: tl.constexpr,
    METHOD: tl.constexpr, FOLLOWING: tl.constexpr, REVERSE: tl.constexpr, PACKED: tl.constexpr, HAS_S0: tl.constexpr,
    DECAYS: tl.constexpr, SUMMARISE: tl.constexpr, HAS_CARRY: tl.constexpr, ADD: tl.constexpr, GAPS: tl.constexpr,
    C: tl.constexpr, BP: tl.constexpr, U: tl.constexpr,
):  # fmt: skip
    """μ_k = g_k + conj(a_{k+1}) μ_{k+1} over C chunks, in the opposite direction, and every gradient from μ.

    That of the gaps with `GAPS` alone.
    """
    row, chunk, mode = place_chunks(chunks, C, BP)
    exists = (chunk < chunks) & (mode < P)
    at = (row * chunks + chunk) * P + mode
    turn, step = load_clocks(frequency, scale, row, mode, P, STATIC_FREQUENCY, METHOD)
    index = chunk * (T * U) if REVERSE else L - 1 - chunk * (T * U)
    here = (row * L + index) * P + mode
    # What leads from the step before a chunk's first one, which nothing precedes at the sequence's end.
    behind = index + (-1 if REVERSE else 1)
    preceded = exists & (chunk > 0)
    lr, li, gap, vr, vi = load_step(
        decay, frequency, gaps, turn, drive, begin, row, behind, mode, here + (-P if REVERSE else P), preceded, L, P,
        STATIC_DECAY, STATIC_FREQUENCY, MODE_GAPS, METHOD, FOLLOWING, REVERSE, PACKED, DRIVEN=False,
    )  # fmt: skip
    ar, ai, _, _ = fold(
        lr, li, gap, vr, vi, step, begin, s0, owner, row, behind, mode, preceded, L, P, METHOD, FOLLOWING, REVERSE,
        PACKED, HAS_S0,
    )  # fmt: skip
    ar = tl.where(chunk > 0, ar, 0.0)
    ai = tl.where(chunk > 0, ai, 0.0)
    pr = tl.zeros((C * BP,), tl.float32) + 1.0
    pi = tl.zeros((C * BP,), tl.float32)
    mr = tl.zeros((C * BP,), tl.float32)
    mi = tl.zeros((C * BP,), tl.float32)
    of_decay = tl.zeros((C * BP,), tl.float32)
    of_frequency = tl.zeros((C * BP,), tl.float32)
    of_scale = tl.zeros((C * BP,), tl.float32)
    if HAS_CARRY:
        mr, mi = load_complex(carry, at, exists)
    steps = load_adjoint_steps(
        gradient, s, decay, frequency, gaps, turn, drive, begin, row, index, mode, here, exists, L, P, STATIC_DECAY,
        STATIC_FREQUENCY, MODE_GAPS, METHOD, FOLLOWING, REVERSE, PACKED, SUMMARISE, U,
    )  # fmt: skip
    for _group in range(T):
        # The next steps', on their way from memory while these are computed.
        ahead = load_adjoint_steps(
            gradient, s, decay, frequency, gaps, turn, drive, begin, row, index + (U if REVERSE else -U), mode,
            here + (U * P if REVERSE else -U * P), exists, L, P, STATIC_DECAY, STATIC_FREQUENCY, MODE_GAPS, METHOD,
            FOLLOWING, REVERSE, PACKED, SUMMARISE, U,
        )  # fmt: skip
        for j in tl.static_range(U):
            gr, gi, sr, si, lr, li, gap, vr, vi = steps[j]
            inside = is_inside(index, exists, L, not REVERSE)
            mr, mi = carried(ar, -ai, mr, mi, DECAYS)
            mr += gr
            mi += gi
            if SUMMARISE:
                pr, pi = carried(ar, -ai, pr, pi, DECAYS)
                ar, ai, _, _ = fold(
                    lr, li, gap, vr, vi, step, begin, s0, owner, row, index, mode, inside, L, P, METHOD, FOLLOWING,
                    REVERSE, PACKED, HAS_S0,
                )  # fmt: skip
            else:
                ar, ai, dl_r, dl_i, dd = gradients(
                    lr, li, gap, vr, vi, sr, si, step, begin, s0, owner, tl.where(inside, mr, 0.0),
                    tl.where(inside, mi, 0.0), d_decay, d_frequency, d_gaps, d_drive, d_s0, row, index, mode, here,
                    inside, L, P, STATIC_DECAY, STATIC_FREQUENCY, MODE_GAPS, METHOD, FOLLOWING, REVERSE, PACKED,
                    HAS_S0, ADD, GAPS, C, BP,
                )  # fmt: skip
                of_decay += dl_r
                of_frequency += dl_i
                of_scale += dd
            index += 1 if REVERSE else -1
            here += P if REVERSE else -P
        steps = ahead
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
    lr, li, gap, vr, vi, pr, pi, step, begin, s0, owner, mr, mi,
    d_decay, d_frequency, d_gaps, d_drive, d_s0, row, index, mode, here, inside, L, P: tl.constexpr,
    STATIC_DECAY: tl.constexpr, STATIC_FREQUENCY: tl.constexpr, MODE_GAPS: tl.constexpr, METHOD: tl.constexpr,
    FOLLOWING: tl.constexpr, REVERSE: tl.constexpr, PACKED: tl.constexpr, HAS_S0: tl.constexpr, ADD: tl.constexpr,
    GAPS: tl.constexpr, C: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """Gradients of everything that made the interval which ends at `index` (formulas: chunked/evolve.py).

    Returned: a of this interval, which the next step needs, and its shares of decay's, frequency's and scale's
    gradient, for those that are summed over a chunk. With `ADD` the gradients of decay and drive are added to what is
    there: every place governs one interval, and beginnings write to that which is left, the last one.
    """
    first = load_first(begin, index, L, REVERSE, PACKED)
    if HAS_S0:
        ir, ii, start = load_start(s0, owner, row, index, mode, inside & first, L, P, PACKED)
        pr = tl.where(first, ir, pr)
        pi = tl.where(first, ii, pi)
    if METHOD == 3:
        dl_r, dl_i = multiply(mr, mi, pr, -pi)
        store_complex(d_decay, here, dl_r, dl_i, inside)
        store_complex(d_drive, here, mr, mi, inside)
        ar = lr
        ai = li
        share = mr * 0.0
    else:
        there = here
        if FOLLOWING:
            if REVERSE:
                there = tl.where(index + 1 < L, here + P, row * L * P + mode)
            else:
                there = tl.where(index > 0, here - P, (row * L + L - 1) * P + mode)
        delta = gap * step
        zr = lr * delta
        zi = li * delta
        ar, ai, gr, gi = interval(zr, zi, delta, METHOD, FOLLOWING)
        if HAS_S0:
            if FOLLOWING:
                ds_r = mr
                ds_i = mi
            else:
                ds_r, ds_i = multiply(ar, -ai, mr, mi)
            store_complex(d_s0, start, ds_r, ds_i, inside & first)
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
            before_r, before_i = load_complex(d_drive, there, inside)
            dv_r += before_r
            dv_i += before_i
        store_complex(d_drive, there, dv_r, dv_i, inside)
        if not STATIC_DECAY:
            tl.store(d_decay + there, dl_r, inside)
        if not STATIC_FREQUENCY:
            tl.store(d_frequency + there, dl_i, inside)
        if GAPS:
            if MODE_GAPS:
                tl.store(d_gaps + here, dd * step, inside)
            else:
                blocks = tl.num_programs(1)
                total = tl.sum(tl.reshape(tl.where(inside, dd * step, 0.0), (C, BP)), axis=1)[:, None]
                total = tl.reshape(tl.broadcast_to(total, (C, BP)), (C * BP,))
                # The thread of every chunk's first mode writes.
                leads = (mode % BP == 0) & (index >= 0) & (index < L)
                tl.store(d_gaps + (row * L + index) * blocks + tl.program_id(1), total, leads)
        share = dd * gap
    if HAS_S0 or PACKED:
        # A beginning forgets what came before it.
        ar = tl.where(first, 0.0, ar)
        ai = tl.where(first, 0.0, ai)
    return ar, ai, dl_r, dl_i, share
