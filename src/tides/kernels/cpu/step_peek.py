"""Answers at moments between observations, compiled; no state changes."""

import math

import numpy as np

from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.panels import linear
from tides.kernels.cpu.scratch import borrowed
from tides.kernels.cpu.step_answer import answer, pool
from tides.kernels.cpu.step_block import run_block
from tides.kernels.cpu.step_parts import known_steps, let_pass
from tides.kernels.cpu.step_plan import (
    BAD_GAP,
    BAD_ROW,
    FINE,
    HEAD,
    LAST_POOL,
    MEAN_POOL,
    METHOD,
    NO_POOL,
    POOL,
    STEP,
    STEP_HEAD,
    TIME_POOL,
    TIME_SCALE,
)


@compiled
def _features(plan, settings, weights, forms, gap, state, hidden, wide, precise):  # type: ignore[no-untyped-def]
    """What the model makes of the input that is held, in `hidden`, once `gap` has passed after this state."""
    spec, blocks, modes = plan[-1], plan.shape[0] - 1, state.shape[2]
    flat, half = wide[18:24], precise[2]
    flat[:, : blocks * modes] = state.reshape(6, blocks * modes)
    if not plan[0, STEP_HEAD]:
        for i in range(blocks):
            known_steps(weights, plan[i, STEP], gap, wide[13, i * modes : (i + 1) * modes], half[i * modes :])
        let_pass(spec[METHOD], 0, blocks * modes, wide[12:18], half, flat)
    for i in range(blocks):
        run_block(
            plan[i], spec, settings, weights, forms, hidden, gap, i * modes, (i + 1) * modes, flat, True, wide, half,
            precise,
        )  # fmt: skip


@compiled
def run_peek(plan, settings, weights, forms, elapsed, static, rows, states, held, sums, out, wide, precise):  # type: ignore[no-untyped-def]
    """The answer k of the stream `rows[k]` at `elapsed[k]` after its last observation → out (n, …)."""
    plan, settings, weights, forms, elapsed = borrowed((plan, settings, weights, forms, elapsed))
    static, rows, states, held, sums = borrowed((static, rows, states, held, sums))
    out, wide, precise = borrowed((out, wide, precise))
    spec, width = plan[-1], held.shape[1]
    hidden, pooled, total = wide[11, :width], wide[10], precise[4, :width]
    nothing, unit = wide.dtype.type(0), wide.dtype.type(settings[TIME_SCALE])
    for k in range(elapsed.size):
        if not 0 <= elapsed[k] < math.inf:
            return BAD_GAP
        if not 0 <= rows[k] < states.shape[0]:
            return BAD_ROW
    for k in range(elapsed.size):
        b, share = rows[k], 1.0
        weight = sums[b, width]
        total[:] = sums[b, :width]
        if spec[POOL] == MEAN_POOL:
            # The newest observation counts with its features of that moment instead of those of its own.
            hidden[:] = held[b]
            _features(plan, settings, weights, forms, nothing, states[b], hidden, wide, precise)
            for h in range(width):
                total[h] -= hidden[h]
        elif spec[POOL] == TIME_POOL:
            share = np.float64(elapsed[k])
            weight += share
        hidden[:] = held[b]
        _features(plan, settings, weights, forms, elapsed[k] / unit, states[b], hidden, wide, precise)
        if spec[POOL] == NO_POOL:
            if spec[HEAD] >= 0:
                linear(weights, spec[HEAD], hidden, width, out[k], out.shape[1])
            else:
                out[k] = hidden
            continue
        pooled[:width] = hidden
        if spec[POOL] != LAST_POOL:
            for h in range(width):
                total[h] += share * hidden[h]
            pool(total, weight, pooled[:width])
        answer(spec, weights, pooled, width, static[k], sums[b, width + 1 :], out[k])
    return FINE
