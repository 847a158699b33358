"""Observations through a whole model, compiled: no operator is dispatched, nothing is allocated.

Few arrays are passed, because passing one costs as much as a layer's norm.
"""

import math

import numpy as np

from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.panels import linear
from tides.kernels.cpu.scratch import borrowed
from tides.kernels.cpu.step_ahead import call_for
from tides.kernels.cpu.step_answer import answer, pool
from tides.kernels.cpu.step_block import run_block
from tides.kernels.cpu.step_parts import evolve, known_steps, residual_blocks
from tides.kernels.cpu.step_plan import (
    BAD_GAP,
    BAD_ROW,
    BAD_VALUE,
    ENCODER,
    ENCODER_DEPTH,
    FINE,
    FOLLOWING,
    GAP_CHANNEL,
    INPUTS,
    LAST_POOL,
    MASKED,
    METHOD,
    NO_POOL,
    POOL,
    SCALING,
    STEP,
    STEP_HEAD,
    SUMMARY,
    TIME_POOL,
    TIME_SCALE,
)
from tides.kernels.cpu.step_summary import note


@compiled
def _read(spec, weights, x, observed, gap, row):  # type: ignore[no-untyped-def]
    """The encoder's input (values, mask, gap channels), scaled; says whether it is fine."""
    n = observed.size
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
def find_problem(spec, weights, x, observed, gaps, rows, streams, row):  # type: ignore[no-untyped-def]
    """What is wrong with observations, if anything; `row` is scratch of the encoder's inputs."""
    for k in range(x.shape[0]):
        problem = _read(spec, weights, x[k], observed[k], gaps[k], row)
        if problem != FINE:
            return problem
        if not 0 <= rows[k] < streams:
            return BAD_ROW
    return FINE


@compiled
def run_step(plan, settings, weights, forms, x, observed, gaps, rows, states, held, sums, out, wide, precise):  # type: ignore[no-untyped-def]
    """Observation k, x (n, d + s) with gaps (n), of the stream `rows[k]` → out (n, …); its state changes in place.

    Behind the d channels that `observed` (n, d) is about stand the stream's static covariates. Observations are taken
    in one after another, so that a stream may occur several times. Nothing has changed when the answer is not `FINE`.
    """
    plan, settings, weights, forms, x, observed, gaps = borrowed((plan, settings, weights, forms, x, observed, gaps))
    rows, states, held, sums, out, wide, precise = borrowed((rows, states, held, sums, out, wide, precise))
    spec, width, blocks, modes = plan[-1], held.shape[1], plan.shape[0] - 1, states.shape[3]
    row, hidden, pooled, half = wide[10, : spec[INPUTS]], wide[11, :width], wide[4], precise[2]
    unit = wide.dtype.type(settings[TIME_SCALE])
    problem = find_problem(spec, weights, x, observed, gaps, rows, states.shape[0], row)
    if problem != FINE:
        return problem
    for k in range(x.shape[0]):
        b, gap = rows[k], gaps[k] / unit
        if k + 1 < x.shape[0]:
            # Streams come in any order, which the processor cannot foresee.
            following = rows[k + 1]
            call_for(states[following])
            call_for(sums[following])
        flat = states[b].reshape(6, blocks * modes)
        _read(spec, weights, x[k], observed[k], gap, row)
        if spec[SUMMARY] >= 0:
            # The encoder overwrites the row; the gap in full precision, as everything that is summed.
            note(sums[b, width + 1 :], row, observed[k], np.float64(gaps[k]) / settings[TIME_SCALE])
        at = residual_blocks(weights, spec[ENCODER], spec[ENCODER_DEPTH], row, row.size, wide[:3])
        linear(weights, at, row, row.size, hidden, width)
        held[b] = hidden
        if not plan[0, STEP_HEAD]:
            for i in range(blocks):
                known_steps(weights, plan[i, STEP], gap, wide[13, i * modes : (i + 1) * modes], half[i * modes :])
            if spec[FOLLOWING]:
                # The pairs of the last observation acted until now, in every block: nothing of this one is needed.
                evolve(spec[METHOD], True, 0, blocks * modes, wide[12:18], half, flat)
        for i in range(blocks):
            run_block(
                plan[i], spec, settings, weights, forms, hidden, gap, i * modes, (i + 1) * modes, flat, False, wide,
                half, precise,
            )  # fmt: skip
        if spec[POOL] == NO_POOL:
            out[k] = hidden
            continue
        pooled[:width] = hidden
        if spec[POOL] != LAST_POOL:
            share = np.float64(gaps[k]) if spec[POOL] == TIME_POOL else 1.0
            sums[b, width] += share
            for h in range(width):
                sums[b, h] += share * hidden[h]
            pool(sums[b], sums[b, width], pooled[:width])
        answer(spec, weights, pooled, width, x[k, observed.shape[1] :], sums[b, width + 1 :], out[k])
    return FINE
