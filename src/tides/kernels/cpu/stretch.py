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
from tides.kernels.cpu.vectors import widest_registers


@compiled
def discretise(  # type: ignore[no-untyped-def]
    decay, frequency, gaps, scale, low, high, shift, per_mode, method, following, planes, half_angle
):
    """Planes 0–5 (Re z, δ, λ̄, gain) of the intervals that end at steps [low, high), governed `shift` steps earlier."""
    widest_registers()
    width, count = scale.size, high - low
    n = count * width
    growth, delta = planes[0, :n], planes[1, :n]
    deltas, growths, angles = delta.reshape(-1, width), growth.reshape(-1, width), half_angle[:n].reshape(-1, width)
    for k in range(count):
        if per_mode:
            for p in range(width):
                gap = gaps[(low + k) * width + p]
                deltas[k, p] = gap * scale[p]
                angles[k, p] = np.float64(gap) * np.float64(scale[p]) * 0.5
        else:
            gap = gaps[low + k]
            exact = np.float64(gap) * 0.5
            for p in range(width):
                deltas[k, p] = gap * scale[p]
            for p in range(width):
                angles[k, p] = exact * np.float64(scale[p])
    source = (low - shift) * width
    if frequency.size == width:
        for k in range(count):
            for p in range(width):
                angles[k, p] *= np.float64(frequency[p])
    else:
        turning = frequency[source : source + n]
        for j in range(n):
            half_angle[j] *= np.float64(turning[j])
    if decay.size == width:
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
    # Unsigned: numba checks signed indices for negative ones.
    step = np.uint64(width)
    back = step if late else np.uint64(0)
    for j in range(step, np.uint64(n)):
        re, im = x_re[j - step], x_im[j - step]
        u, v = a_re[j - back], a_im[j - back]
        x_re[j] += u * re - v * im
        x_im[j] += u * im + v * re


@compiled
def scan_down(n, width, a_re, a_im, x_re, x_im, late):  # type: ignore[no-untyped-def]
    """x_k += a x_{k+1} from the last step but one downwards; a of step k, or of step k + 1 if `late`."""
    step = np.uint64(width)
    ahead = step if late else np.uint64(0)
    top = np.uint64(n) - step
    for i in range(top):
        j = top - i - np.uint64(1)
        re, im = x_re[j + step], x_im[j + step]
        u, v = a_re[j + ahead], a_im[j + ahead]
        x_re[j] += u * re - v * im
        x_im[j] += u * im + v * re


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
    y_re, y_im, x_re, x_im, k_re, k_im = planes[8], planes[9], planes[10], planes[11], planes[12], planes[13]
    for j in range(n):
        u, v, re, im = gain_re[j], gain_im[j], mu_re[j], mu_im[j]
        d_drive[2 * j], d_drive[2 * j + 1] = u * re + v * im, u * im - v * re
    d_rate, d_turn, d_delta = d_decay[source : source + n], planes[14, :n], planes[15, :n]
    for j in range(n):
        u, v, re, im = k_re[j], k_im[j], mu_re[j], mu_im[j]
        d_rate[j], d_turn[j] = u * re + v * im, u * im - v * re
    # Re conj(λ x + y) μ = Re λ · Re(conj(x) μ) + Im λ · Im(conj(x) μ) + Re(conj(y) μ).
    for j in range(n):
        u, v, re, im = x_re[j], x_im[j], mu_re[j], mu_im[j]
        x_re[j], x_im[j] = u * re + v * im, u * im - v * re
    for j in range(n):
        d_delta[j] = y_re[j] * mu_re[j] + y_im[j] * mu_im[j]
    _add_product(n, width, rates, source, x_re, d_delta)
    _add_product(n, width, turning, source, x_im, d_delta)
    if d_frequency.size > 0:
        d_frequency[source : source + n] = d_turn
    turned, slopes = d_turn.reshape(-1, width), d_delta.reshape(-1, width)
    for k in range(n // width):
        for p in range(width):
            sum_frequency[p] += turned[k, p]
        if per_mode:
            for p in range(width):
                d_gaps[(low + k) * width + p] = slopes[k, p] * units[p]
                sum_scale[p] += slopes[k, p] * clock[(low + k) * width + p]
        else:
            gap, total = np.float64(clock[low + k]), 0.0
            for p in range(width):
                sum_scale[p] += slopes[k, p] * gap
            for p in range(width):
                total += slopes[k, p] * units[p]
            d_gaps[low + k] = total


@compiled
def _add_product(n, width, factor, source, x, out):  # type: ignore[no-untyped-def]
    """out += factor · x, where `factor` is one row for all steps or has its own for each."""
    if factor.size == width:
        xs, outs = x[:n].reshape(-1, width), out[:n].reshape(-1, width)
        for k in range(n // width):
            for p in range(width):
                outs[k, p] += factor[p] * xs[k, p]
    else:
        part = factor[source : source + n]
        for j in range(n):
            out[j] += part[j] * x[j]
