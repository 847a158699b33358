"""One observation into the sums of `functional.summary`, and the scores that a head reads, for the compiled step."""

import math

from tides.functional.summary import LARGEST_SCORE, OF_SERIES, SHORTEST, SMALLEST_SQUARE, STATISTICS, SUMS
from tides.kernels.cpu.intervals import compiled

# Where the sums of the channels begin, in multiples of their number, and where those of the series stand behind them.
(COUNT, MEAN, SQUARE, TIME, WIDTH, CROSS, FIRST, LAST, LEAST, MOST) = range(SUMS)
(STEPS, SPAN, SINCE, LOGS) = range(OF_SERIES)


@compiled
def note(sums, row, observed, gap):  # type: ignore[no-untyped-def]
    """Take in the scaled values `row` (d, …) that were observed, `gap` scaled after the last step."""
    n = observed.size
    series = sums[SUMS * n : SUMS * n + OF_SERIES]
    if series[STEPS] > 0:
        elapsed = series[SINCE] + gap
        series[SPAN] += elapsed
        series[LOGS] += math.log(max(elapsed, SHORTEST))
    series[STEPS] += 1.0
    series[SINCE] = 0.0
    for d in range(n):
        if not observed[d]:
            continue
        x, before = float(row[d]), sums[COUNT * n + d]
        count = before + 1.0
        dx, dt = x - sums[MEAN * n + d], series[SPAN] - sums[TIME * n + d]
        weight = before / count
        sums[COUNT * n + d] = count
        sums[MEAN * n + d] += dx / count
        sums[SQUARE * n + d] += dx * dx * weight
        sums[TIME * n + d] += dt / count
        sums[WIDTH * n + d] += dt * dt * weight
        sums[CROSS * n + d] += dx * dt * weight
        sums[LAST * n + d] = x
        if before == 0.0:
            sums[FIRST * n + d] = sums[LEAST * n + d] = sums[MOST * n + d] = x
        sums[LEAST * n + d] = min(sums[LEAST * n + d], x)
        sums[MOST * n + d] = max(sums[MOST * n + d], x)


@compiled
def score(sums, n, shift, scale, out):  # type: ignore[no-untyped-def]
    """Scores (8 n + 4) of the statistics behind these sums."""
    real = out.dtype.type
    series = sums[SUMS * n : SUMS * n + OF_SERIES]
    for d in range(n):
        count = sums[COUNT * n + d]
        out[d] = _bounded(count, shift[d], scale[d], real)
        if count == 0.0:
            for k in range(1, STATISTICS):
                out[k * n + d] = real(0)
            continue
        spread = math.sqrt(sums[SQUARE * n + d] / count + SMALLEST_SQUARE)
        slope = sums[CROSS * n + d] / (sums[WIDTH * n + d] + 1.0)
        out[n + d] = _bounded(sums[MEAN * n + d], shift[n + d], scale[n + d], real)
        out[2 * n + d] = _bounded(spread, shift[2 * n + d], scale[2 * n + d], real)
        for k in range(4):
            at = (3 + k) * n + d
            out[at] = _bounded(sums[(FIRST + k) * n + d], shift[at], scale[at], real)
        out[7 * n + d] = _bounded(slope, shift[7 * n + d], scale[7 * n + d], real)
    gaps, at = max(series[STEPS] - 1.0, 1.0), STATISTICS * n
    out[at] = _bounded(series[STEPS], shift[at], scale[at], real)
    out[at + 1] = _bounded(series[SPAN], shift[at + 1], scale[at + 1], real)
    out[at + 2] = _bounded(series[SPAN] / gaps, shift[at + 2], scale[at + 2], real)
    out[at + 3] = _bounded(series[LOGS] / gaps, shift[at + 3], scale[at + 3], real)


@compiled
def _bounded(found, shift, scale, real):  # type: ignore[no-untyped-def]
    z = (found - float(shift)) / float(scale)
    return real(LARGEST_SCORE * math.tanh(z / LARGEST_SCORE))
