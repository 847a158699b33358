"""One observation through a whole model, compiled: no operator is dispatched, nothing is allocated.

Weights lie in one flat array, section behind section; `plan` has a row of sizes and offsets per block, and a last one
for the whole model. The column norms' quadratic forms lie in a second array, in float64. States are planes
(6, block, mode): s, λ and drive. Few arrays are passed, because passing one costs as much as a layer's norm.
"""

import math

import numpy as np

from tides.functional.summary import OF_SERIES, STATISTICS
from tides.kernels.cpu.elementary import normal
from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.panels import linear
from tides.kernels.cpu.scratch import borrowed
from tides.kernels.cpu.step_parts import (
    add_tail,
    apply_mix,
    evolve,
    inverse_rms,
    known_steps,
    make_code,
    mode_head,
    normalise,
    reparameterise,
    residual_blocks,
    selected_steps,
)
from tides.kernels.cpu.step_summary import note, score

# Columns of `plan`.
(NORM, DECAY, DECAY_DEPTH, DECAY_SELECTIVE, DECAY_NORMED, FREQUENCY, FREQUENCY_DEPTH, FREQUENCY_SELECTIVE,
 FREQUENCY_NORMED, STEP, STEP_HEAD, DRIVE, DRIVE_KIND, DRIVE_RANK, DRIVE_FORMS, READOUT, READOUT_KIND, READOUT_RANK,
 READOUT_FORMS, SKIP, TAIL, TAIL_WIDTH, PLAN_SIZE) = range(23)  # fmt: skip
# Columns of its last row.
(METHOD, FOLLOWING, REPARAM, NORM_KIND, ENCODER, ENCODER_DEPTH, HEAD, POOL, SCALING, INPUTS, MASKED, GAP_CHANNEL,
 SUMMARY) = range(13)  # fmt: skip
NO_POOL, MEAN_POOL, LAST_POOL, TIME_POOL = 0, 1, 2, 3
# Numbers of `settings`.
(EPS, NORM_EPS, CLIP, OUTPUT_FACTOR, TIME_SCALE) = range(5)
# What `run_step` says of its input.
FINE, BAD_VALUE, BAD_GAP = 0, 1, 2


@compiled
def _block(k, plan, spec, settings, weights, forms, x, gap, states, wide, half, precise):  # type: ignore[no-untyped-def]
    """Block k: norm → SSM → GELU → GLU, added to x (h) in place. `wide` is scratch of rows ≥ every size."""
    n, modes = x.size, states.shape[2]
    begin, end = k * modes, (k + 1) * modes
    flat, planes = states.reshape(6, states.shape[1] * modes), wide[12:18]
    decay, frequency = flat[2, begin:end], flat[3, begin:end]
    real = x.dtype.type
    u, y, inverse, pairs = wide[3, :n], wide[4, :n], wide[5, :n], wide[6, : 2 * modes]
    code, mixed, coefficients, work = wide[7], wide[8], wide[9], wide[:3]
    normalise(spec[NORM_KIND], weights, plan[NORM], settings[NORM_EPS], x, u)
    if plan[STEP_HEAD]:
        selected_steps(weights, plan[STEP], u, gap, planes[1, begin:end], half[begin:end])
        if spec[FOLLOWING]:
            evolve(spec[METHOD], True, begin, end, planes, half, flat)
    mode_head(
        weights, plan[DECAY], plan[DECAY_DEPTH], plan[DECAY_SELECTIVE], plan[DECAY_NORMED], settings[EPS], u, decay,
        work,
    )  # fmt: skip
    reparameterise(decay, spec[REPARAM], real(settings[CLIP]))
    mode_head(
        weights, plan[FREQUENCY], plan[FREQUENCY_DEPTH], plan[FREQUENCY_SELECTIVE], plan[FREQUENCY_NORMED],
        settings[EPS], u, frequency, work,
    )  # fmt: skip
    size, at = make_code(weights, plan[DRIVE], plan[DRIVE_KIND], plan[DRIVE_RANK], u, code)
    mixed[:n] = u
    if plan[DRIVE_FORMS] >= 0:
        inverse_rms(forms, plan[DRIVE_FORMS], code, size, precise, inverse)
        for h in range(n):
            mixed[h] *= inverse[h]
    apply_mix(weights, at, code, size, mixed, n, pairs, 2 * modes, coefficients)
    for p in range(modes):
        flat[4, begin + p], flat[5, begin + p] = pairs[2 * p], pairs[2 * p + 1]
    if not spec[FOLLOWING]:
        evolve(spec[METHOD], False, begin, end, planes, half, flat)
        flat[4:, begin:end] = real(0)
    size, at = make_code(weights, plan[READOUT], plan[READOUT_KIND], plan[READOUT_RANK], u, code)
    for p in range(modes):
        mixed[2 * p], mixed[2 * p + 1] = flat[0, begin + p], flat[1, begin + p]
    apply_mix(weights, at, code, size, mixed, 2 * modes, y, n, coefficients)
    if plan[READOUT_FORMS] >= 0:
        inverse_rms(forms, plan[READOUT_FORMS], code, size, precise, inverse)
        for h in range(n):
            y[h] *= inverse[h]
    factor = real(settings[OUTPUT_FACTOR])
    skip = weights[plan[SKIP] : plan[SKIP] + n]
    for h in range(n):
        y[h] = factor * y[h] + skip[h] * u[h]
    for h in range(n):
        y[h] *= normal(y[h])[0]
    add_tail(weights, plan[TAIL], plan[TAIL_WIDTH], y, x, work)


@compiled
def _read(spec, settings, weights, x, observed, gap, row):  # type: ignore[no-untyped-def]
    """The encoder's input (values, mask, gap channels), scaled; says whether it is fine."""
    n = x.size
    shift, scale = weights[spec[SCALING] : spec[SCALING] + n], weights[spec[SCALING] + n : spec[SCALING] + 2 * n]
    row[:] = row.dtype.type(0)
    for d in range(n):
        if observed[d]:
            row[d] = (x[d] - shift[d]) / scale[d]
            if not math.isfinite(row[d]):
                return BAD_VALUE
        if spec[MASKED]:
            row[n + d] = 1 if observed[d] else 0
    if spec[GAP_CHANNEL]:
        row[row.size - 1] = gap
    return FINE if 0 <= gap < math.inf else BAD_GAP


@compiled
def run_step(plan, settings, weights, forms, x, observed, gaps, states, held, sums, out, wide, precise):  # type: ignore[no-untyped-def]
    """One observation of every stream: x (b, d), gaps (b) → out (b, …), with states, held and sums updated.

    Nothing has changed when the answer is not `FINE`.
    """
    plan, settings, weights, forms, x, observed, gaps = borrowed((plan, settings, weights, forms, x, observed, gaps))
    states, held, sums, out, wide, precise = borrowed((states, held, sums, out, wide, precise))
    spec, width, blocks, modes = plan[-1], held.shape[1], plan.shape[0] - 1, states.shape[3]
    row, hidden, channels, read = wide[10, : spec[INPUTS]], wide[11, :width], x.shape[1], width
    shift = scale = weights[:0]
    if spec[SUMMARY] >= 0:
        size = STATISTICS * channels + OF_SERIES
        shift = weights[spec[SUMMARY] : spec[SUMMARY] + size]
        scale = weights[spec[SUMMARY] + size : spec[SUMMARY] + 2 * size]
        read = width + size
    pooled = wide[4, :read]
    half = precise[2]
    unit = wide.dtype.type(settings[TIME_SCALE])
    for b in range(x.shape[0]):
        problem = _read(spec, settings, weights, x[b], observed[b], gaps[b], row)
        if problem != FINE:
            return problem
    for b in range(x.shape[0]):
        gap = gaps[b] / unit
        _read(spec, settings, weights, x[b], observed[b], gap, row)
        if spec[SUMMARY] >= 0:
            # The encoder overwrites the row; the gap in full precision, as everything that is summed.
            note(sums[b, width + 1 :], row, observed[b], np.float64(gaps[b]) / settings[TIME_SCALE])
        at = residual_blocks(weights, spec[ENCODER], spec[ENCODER_DEPTH], row, row.size, wide[:3])
        linear(weights, at, row, row.size, hidden, width)
        held[b] = hidden
        if not plan[0, STEP_HEAD]:
            for k in range(blocks):
                at, begin, end = plan[k, STEP], k * modes, (k + 1) * modes
                known_steps(weights, at, gap, wide[13, begin:end], half[begin:end])
            if spec[FOLLOWING]:
                # The pairs of the last observation acted until now, in every block: nothing of this one is needed.
                evolve(spec[METHOD], True, 0, blocks * modes, wide[12:18], half, states[b].reshape(6, blocks * modes))
        for k in range(blocks):
            _block(k, plan[k], spec, settings, weights, forms, hidden, gap, states[b], wide, half, precise)
        if spec[POOL] == NO_POOL:
            out[b] = hidden
            continue
        pooled[:width] = hidden
        if spec[POOL] != LAST_POOL:
            share = np.float64(gaps[b]) if spec[POOL] == TIME_POOL else 1.0
            sums[b, width] += share
            for h in range(width):
                sums[b, h] += share * hidden[h]
                if sums[b, width] > 0:
                    pooled[h] = sums[b, h] / sums[b, width]
        if spec[SUMMARY] >= 0:
            score(sums[b, width + 1 :], channels, shift, scale, pooled[width:])
        linear(weights, spec[HEAD], pooled, read, out[b], out.shape[1])
    return FINE
