"""From features to an answer, compiled: what a head reads beside them, and its linear map."""

import math

from tides.functional.summary import OF_SERIES, STATISTICS, SUMS
from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.panels import linear
from tides.kernels.cpu.step_plan import HEAD, STATIC, SUMMARY
from tides.kernels.cpu.step_summary import score


@compiled
def pool(total, weight, row):  # type: ignore[no-untyped-def]
    """The weighted mean of the features so far; without any weight the newest ones, which stand there, speak alone."""
    if weight > 0:
        for h in range(row.size):
            row[h] = total[h] / weight


@compiled
def answer(spec, weights, row, width, static, sums, out):  # type: ignore[no-untyped-def]
    """The answer for pooled features, which stand in the first `width` numbers of `row`.

    Behind them come the static covariates, scaled, zero where nothing was recorded, and the scores of the summary's
    sums.
    """
    read = width
    if spec[STATIC] >= 0:
        n = static.size
        shift, scale = weights[spec[STATIC] : spec[STATIC] + n], weights[spec[STATIC] + n : spec[STATIC] + 2 * n]
        for j in range(n):
            known = (static[j] - shift[j]) / scale[j]
            row[read + j] = row.dtype.type(0) if math.isnan(known) else known
        read += n
    if spec[SUMMARY] >= 0:
        channels, at = (sums.size - OF_SERIES) // SUMS, spec[SUMMARY]
        size = STATISTICS * channels + OF_SERIES
        score(sums, channels, weights[at : at + size], weights[at + size : at + 2 * size], row[read:])
        read += size
    linear(weights, spec[HEAD], row, read, out, out.size)
