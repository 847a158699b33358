"""The recurrence over sequences, forwards and backwards, compiled.

A sequence is a range of steps of one row; sequences are independent, so threads share them. A stretch of steps at a
time is discretised into planes (step · mode) that stay in cache, then scanned. Arrays have one flat row per series,
(rows, steps · modes [· 2 for complex]); a row or step axis of length one is broadcast.
"""

import numpy as np

from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.scratch import borrowed, hold
from tides.kernels.cpu.stretch import (
    add_rows,
    collect,
    discretise,
    join,
    multiply,
    previous,
    scan_down,
    scan_up,
    sensitivities,
    split,
)
from tides.kernels.cpu.vectors import widest_registers

# (step, mode) pairs per stretch: its planes stay in the second-level cache, those of one loop in the first.
_STRETCH = 512
# Loops over whole vectors reach beyond the last pair.
_SLACK = 16


@compiled
def _space(planes, length, width, like):  # type: ignore[no-untyped-def]
    """Planes, the state between two stretches, and in float64 half angles and those of one unit of time."""
    real = like.dtype
    return np.empty((planes, length), real), np.empty((2, width), real), np.empty(length), np.empty(width)


@compiled
def run_forward(  # type: ignore[no-untyped-def]
    decay, frequency, gaps, scale, drive, s0, sequences, per_mode, method, following, reverse, out
):
    """States of every sequence (row, start, stop, owner of s0), written into `out`."""
    widest_registers()
    decay, frequency, gaps, scale, drive = borrowed((decay, frequency, gaps, scale, drive))
    s0, sequences, out = borrowed((s0, sequences, out))
    width = scale.shape[1]
    steps = max(1, _STRETCH // width)
    space = _space(8, steps * width + _SLACK, width, out)
    planes, state, half_angle, turns = borrowed(space)
    shift = (-1 if reverse else 1) if following else 0
    lam_re, lam_im, x_re, x_im = planes[2], planes[3], planes[6], planes[7]
    for index in range(sequences.shape[0]):
        row, start, stop, owner = sequences[index, 0], sequences[index, 1], sequences[index, 2], sequences[index, 3]
        rates, turning = decay[min(row, decay.shape[0] - 1)], frequency[min(row, frequency.shape[0] - 1)]
        clock, units = gaps[min(row, gaps.shape[0] - 1)], scale[min(row, scale.shape[0] - 1)]
        state[:] = out.dtype.type(0)
        if s0.shape[0] > 0:
            split(width, s0[owner], state[0], state[1])
        if following:
            # The first step has no interval: it is the initial state itself.
            begin = stop - 1 if reverse else start
            join(width, state[0], state[1], out[row, 2 * begin * width :])
            start, stop = (start, stop - 1) if reverse else (start + 1, stop)
        for done in range(0, stop - start, steps):
            count = min(steps, stop - start - done)
            low, n = stop - done - count if reverse else start + done, count * width
            discretise(
                rates, turning, clock, units, low, low + count, shift, per_mode, method, following, planes, half_angle,
                turns,
            )  # fmt: skip
            split(n, drive[row, 2 * (low - shift) * width :], x_re, x_im)
            multiply(n, planes[4], planes[5], x_re, x_im)
            # The step where the stretch begins continues from the state, every other from its neighbour.
            begin, last = (n - width, 0) if reverse else (0, n - width)
            multiply(width, lam_re[begin:], lam_im[begin:], state[0], state[1])
            add_rows(width, state[0], state[1], x_re[begin:], x_im[begin:])
            if reverse:
                scan_down(n, width, lam_re, lam_im, x_re, x_im, False)
            else:
                scan_up(n, width, lam_re, lam_im, x_re, x_im, False)
            state[0], state[1] = x_re[last : last + width], x_im[last : last + width]
            join(n, x_re, x_im, out[row, 2 * low * width :])
    hold(space)


@compiled
def run_backward(  # type: ignore[no-untyped-def]
    gradient, s, decay, frequency, gaps, scale, drive, s0, sequences, per_mode, method, following, reverse, taylor,
    d_decay, d_frequency, d_gaps, sum_frequency, sum_scale, d_drive, d_s0,
):  # fmt: skip
    """Gradients of every sequence; sums over its steps (scale, a static frequency) go to its row of `sum_…`.

    With μ the adjoint, μ_k = g_k + conj(λ̄_{k+1}) μ_{k+1}; `carry` is conj(λ̄) μ of the stretch after this one.
    """
    widest_registers()
    gradient, s, decay, frequency, gaps, scale, drive = borrowed((gradient, s, decay, frequency, gaps, scale, drive))
    s0, sequences, taylor, sum_frequency, sum_scale = borrowed((s0, sequences, taylor, sum_frequency, sum_scale))
    d_decay, d_frequency, d_gaps, d_drive, d_s0 = borrowed((d_decay, d_frequency, d_gaps, d_drive, d_s0))
    width = scale.shape[1]
    steps = max(1, _STRETCH // width)
    space = _space(16, steps * width + _SLACK, width, gradient)
    planes, carry, half_angle, turns = borrowed(space)
    zero = gradient.dtype.type(0)
    towards = -1 if reverse else 1
    shift = towards if following else 0
    lam_re, lam_im, mu_re, mu_im = planes[2], planes[3], planes[6], planes[7]
    for index in range(sequences.shape[0]):
        row, start, stop, owner = sequences[index, 0], sequences[index, 1], sequences[index, 2], sequences[index, 3]
        rates, turning = decay[min(row, decay.shape[0] - 1)], frequency[min(row, frequency.shape[0] - 1)]
        clock, units = gaps[min(row, gaps.shape[0] - 1)], scale[min(row, scale.shape[0] - 1)]
        begin, end = (stop - 1, start) if reverse else (start, stop - 1)
        carry[:] = zero
        sum_frequency[index] = 0.0
        sum_scale[index] = 0.0
        if following:
            # The last step governs no interval of this sequence, and no interval ends at the first.
            d_decay[row, end * width : (end + 1) * width] = zero
            d_drive[row, 2 * end * width : 2 * (end + 1) * width] = zero
            if d_frequency.shape[1] > 0:
                d_frequency[row, end * width : (end + 1) * width] = zero
            per_step = width if per_mode else 1
            d_gaps[row, begin * per_step : (begin + 1) * per_step] = zero
            start, stop = (start, stop - 1) if reverse else (start + 1, stop)
        for done in range(0, stop - start, steps):
            count = min(steps, stop - start - done)
            low, n = start + done if reverse else stop - done - count, count * width
            source = (low - shift) * width
            discretise(
                rates, turning, clock, units, low, low + count, shift, per_mode, method, following, planes, half_angle,
                turns,
            )  # fmt: skip
            split(n, gradient[row, 2 * low * width :], mu_re, mu_im)
            late, early = (0, n - width) if reverse else (n - width, 0)
            add_rows(width, carry[0], carry[1], mu_re[late:], mu_im[late:])
            for j in range(n):
                lam_im[j] = -lam_im[j]
            if reverse:
                scan_up(n, width, lam_re, lam_im, mu_re, mu_im, True)
            else:
                scan_down(n, width, lam_re, lam_im, mu_re, mu_im, True)
            carry[0], carry[1] = mu_re[early : early + width], mu_im[early : early + width]
            multiply(width, lam_re[early:], lam_im[early:], carry[0], carry[1])
            for j in range(n):
                lam_im[j] = -lam_im[j]
            split(n, drive[row, 2 * source :], planes[8], planes[9])
            previous(s[row], s0, owner, low, count, begin, towards, width, planes[10], planes[11])
            sensitivities(n, method, following, planes, half_angle, taylor)
            collect(
                n, width, rates, turning, clock, units, low, source, per_mode, planes,
                d_decay[row], d_frequency[row], d_gaps[row], sum_frequency[index], sum_scale[index],
                d_drive[row, 2 * source :],
            )  # fmt: skip
        if d_s0.shape[0] > 0:
            if following:
                split(width, gradient[row, 2 * begin * width :], mu_re, mu_im)
                add_rows(width, mu_re, mu_im, carry[0], carry[1])
            join(width, carry[0], carry[1], d_s0[owner])
    hold(space)
