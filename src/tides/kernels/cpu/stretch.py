"""What happens to one stretch of (step · mode) pairs: discretise, scan, differentiate. Planes are flat and real."""

import numpy as np

from tides.kernels.cpu.intervals import (
    BILINEAR,
    DIRAC,
    bilinear_forward,
    bilinear_slope,
    compiled,
    zoh_forward,
    zoh_slope,
)
from tides.kernels.cpu.lane_values import load_some, spread, store, store_some, total
from tides.kernels.cpu.vectors import VECTOR, widest_registers


@compiled
def _fill(gaps, low, count, per_mode, units, out):  # type: ignore[no-untyped-def]
    """out[k, p] = gap · units[p] in the precision of `units`, for gaps of steps from `low` on, or of their modes."""
    widest_registers()
    width, real = units.size, out.dtype.type
    if per_mode:
        for k in range(count):
            for p in range(width):
                out[k * width + p] = real(gaps[(low + k) * width + p]) * units[p]
    else:
        for c in range(0, width, VECTOR // units.itemsize):
            room = width - c
            unit = load_some(units, c, room)
            for k in range(count):
                store_some(unit * real(gaps[low + k]), out, k * width + c, room)


@compiled
def discretise(  # type: ignore[no-untyped-def]
    decay, frequency, gaps, scale, low, high, shift, per_mode, method, following, planes, half_angle, turns
):
    """Planes 0–5 (Re z, δ, λ̄, gain) of the intervals that end at steps [low, high), governed `shift` steps earlier."""
    widest_registers()
    width, count = scale.size, high - low
    n, source = count * width, (low - shift) * width
    static = frequency.size == width
    growth, delta = planes[0, :n], planes[1, :n]
    # Of the angles what no gap changes, in float64 like them.
    for p in range(width):
        turns[p] = 0.5 * np.float64(scale[p])
        if static:
            turns[p] *= np.float64(frequency[p])
    _fill(gaps, low, count, per_mode, scale, delta)
    _fill(gaps, low, count, per_mode, turns, half_angle)
    if not static:
        turning = frequency[source : source + n]
        for j in range(n):
            half_angle[j] *= np.float64(turning[j])
    if decay.size == width:
        growths, deltas = growth.reshape(-1, width), delta.reshape(-1, width)
        for k in range(count):
            for p in range(width):
                growths[k, p] = deltas[k, p] * decay[p]
    else:
        rate = decay[source : source + n]
        for j in range(n):
            growth[j] = rate[j] * delta[j]
    if method == BILINEAR:
        bilinear_forward(n, growth, half_angle, delta, planes[2], planes[3], planes[4], planes[5])
        return
    zoh_forward(n, growth, half_angle, delta, planes[2], planes[3], planes[4], planes[5])
    if method == DIRAC and following:
        planes[4, :n], planes[5, :n] = planes[2, :n], planes[3, :n]
    elif method == DIRAC:
        planes[4, :n], planes[5, :n] = growth.dtype.type(1), growth.dtype.type(0)


@compiled
def split(n, pairs, re, im):  # type: ignore[no-untyped-def]
    """Complex pairs into two planes."""
    widest_registers()
    for j in range(n):
        re[j], im[j] = pairs[2 * j], pairs[2 * j + 1]


@compiled
def join(n, re, im, pairs):  # type: ignore[no-untyped-def]
    for j in range(n):
        pairs[2 * j], pairs[2 * j + 1] = re[j], im[j]


@compiled
def multiply(n, a_re, a_im, x_re, x_im):  # type: ignore[no-untyped-def]
    """x ← a x."""
    widest_registers()
    widest_registers()
    for j in range(n):
        re, im = x_re[j], x_im[j]
        x_re[j] = a_re[j] * re - a_im[j] * im
        x_im[j] = a_re[j] * im + a_im[j] * re


@compiled
def add_rows(n, re, im, x_re, x_im):  # type: ignore[no-untyped-def]
    for j in range(n):
        x_re[j] += re[j]
        x_im[j] += im[j]


@compiled
def scan_up(n, width, a_re, a_im, x_re, x_im, late):  # type: ignore[no-untyped-def]
    """x_k += a x_{k−1} for k = 1, 2, …, where a is that of step k, or of step k − 1 if `late`."""
    back = width if late else 0
    for c in range(0, width, VECTOR // x_re.itemsize):
        room = width - c
        re, im = load_some(x_re, c, room), load_some(x_im, c, room)
        for at in range(width + c, n, width):
            u, v = load_some(a_re, at - back, room), load_some(a_im, at - back, room)
            re, im = load_some(x_re, at, room) + (u * re - v * im), load_some(x_im, at, room) + (u * im + v * re)
            store_some(re, x_re, at, room)
            store_some(im, x_im, at, room)


@compiled
def scan_down(n, width, a_re, a_im, x_re, x_im, late):  # type: ignore[no-untyped-def]
    """x_k += a x_{k+1} from the last step but one downwards; a of step k, or of step k + 1 if `late`."""
    ahead = width if late else 0
    for c in range(0, width, VECTOR // x_re.itemsize):
        room, at = width - c, n - width + c
        re, im = load_some(x_re, at, room), load_some(x_im, at, room)
        for _ in range(n // width - 1):
            at -= width
            u, v = load_some(a_re, at + ahead, room), load_some(a_im, at + ahead, room)
            re, im = load_some(x_re, at, room) + (u * re - v * im), load_some(x_im, at, room) + (u * im + v * re)
            store_some(re, x_re, at, room)
            store_some(im, x_im, at, room)


@compiled
def previous(s, s0, owner, low, count, begin, towards, width, before_re, before_im):  # type: ignore[no-untyped-def]
    """The state before each step of a stretch; at the beginning of the sequence the initial one."""
    first, last = low, low + count
    if low <= begin < low + count:
        # `begin` is the first step of the stretch going up, or the last one going down.
        at = (begin - low) * width
        if s0.shape[0] > 0:
            split(width, s0[owner], before_re[at:], before_im[at:])
        else:
            before_re[at : at + width] = s.dtype.type(0)
            before_im[at : at + width] = s.dtype.type(0)
        first, last = (first + 1, last) if towards > 0 else (first, last - 1)
    at = (first - low) * width
    split((last - first) * width, s[2 * (first - towards) * width :], before_re[at:], before_im[at:])


@compiled
def sensitivities(n, method, following, planes, half_angle, taylor):  # type: ignore[no-untyped-def]
    """planes 12, 13 ← ∂s/∂λ; planes 10, 11 ← x and 8, 9 ← y with ∂s/∂δ = λ x + y."""
    widest_registers()
    growth, delta, lam_re, lam_im = planes[0], planes[1], planes[2], planes[3]
    y_re, y_im, x_re, x_im, k_re, k_im = planes[8], planes[9], planes[10], planes[11], planes[12], planes[13]
    if method == DIRAC:
        if following:
            add_rows(n, y_re, y_im, x_re, x_im)
        multiply(n, lam_re, lam_im, x_re, x_im)
        for plane in (8, 9, 12, 13):
            planes[plane, :n] = growth.dtype.type(0)
    elif method == BILINEAR:
        w_re, w_im = planes[14], planes[15]
        bilinear_slope(n, growth, half_angle, delta, w_re, w_im, k_re, k_im)
        multiply(n, y_re, y_im, k_re, k_im)
        multiply(n, w_re, w_im, x_re, x_im)
        multiply(n, w_re, w_im, y_re, y_im)
    else:
        zoh_slope(n, growth, half_angle, delta, lam_re, lam_im, planes[4], planes[5], k_re, k_im, taylor)
        multiply(n, y_re, y_im, k_re, k_im)
        multiply(n, lam_re, lam_im, x_re, x_im)
        multiply(n, lam_re, lam_im, y_re, y_im)
    for j in range(n):
        k_re[j] += delta[j] * x_re[j]
        k_im[j] += delta[j] * x_im[j]


@compiled
def collect(  # type: ignore[no-untyped-def]
    n, width, rates, turning, clock, units, low, source, per_mode, planes,
    d_decay, d_frequency, d_gaps, sum_frequency, sum_scale, d_drive,
):  # fmt: skip
    """From the adjoint μ (planes 6, 7) and the sensitivities to gradients."""
    widest_registers()
    gain_re, gain_im, mu_re, mu_im = planes[4], planes[5], planes[6], planes[7]
    for j in range(n):
        u, v, re, im = gain_re[j], gain_im[j], mu_re[j], mu_im[j]
        d_drive[2 * j], d_drive[2 * j + 1] = u * re + v * im, u * im - v * re
    lanes, nothing = VECTOR // mu_re.itemsize, spread(mu_re.dtype.type(0))
    part = planes[14]
    for c in range(0, width, lanes):
        room = width - c
        unit, turned, scaled = load_some(units, c, room), nothing, nothing
        for k in range(n // width):
            at = k * width + c
            re, im = load_some(mu_re, at, room), load_some(mu_im, at, room)
            u, v = load_some(planes[12], at, room), load_some(planes[13], at, room)
            store_some(u * re + v * im, d_decay, source + at, room)
            turn = u * im - v * re
            turned = turned + turn
            if d_frequency.size > 0:
                store_some(turn, d_frequency, source + at, room)
            # Re conj(λ x + y) μ = Re λ · Re(conj(x) μ) + Im λ · Im(conj(x) μ) + Re(conj(y) μ).
            rate = load_some(rates, c if rates.size == width else source + at, room)
            frequency = load_some(turning, c if turning.size == width else source + at, room)
            u, v = load_some(planes[10], at, room), load_some(planes[11], at, room)
            slope = rate * (u * re + v * im) + frequency * (u * im - v * re)
            slope = slope + (load_some(planes[8], at, room) * re + load_some(planes[9], at, room) * im)
            if per_mode:
                scaled = scaled + slope * load_some(clock, low * width + at, room)
                store_some(slope * unit, d_gaps, low * width + at, room)
            else:
                scaled = scaled + slope * clock[low + k]
                before = d_gaps[low + k] if c > 0 else d_gaps.dtype.type(0)
                d_gaps[low + k] = before + total(slope * unit)
        # Sums over a stretch are in the data's own precision, sums of them in float64.
        store(turned, part, 0)
        store(scaled, part, lanes)
        for p in range(min(lanes, room)):
            sum_frequency[c + p] += part[p]
            sum_scale[c + p] += part[lanes + p]
