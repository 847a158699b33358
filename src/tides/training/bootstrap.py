"""Intervals by resampling whole series, so that the many entries of one series are not counted as independent."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tides.errors import ConfigError
from tides.training.metrics import Array

# Weights of this many series are held at once.
_PIECE = 1 << 21


class Estimate(NamedTuple):
    """A metric with its percentile interval; `low` and `high` are NaN where no resample defines it."""

    value: float
    low: float
    high: float


def bootstrap(
    metric: Callable[[Array], Array], series: int, *, resamples: int = 1000, coverage: float = 0.95, seed: int = 0
) -> Estimate:
    """The metric of `series` series, and the central `coverage` of its values over resamples with replacement."""
    if resamples < 1 or not 0 < coverage < 1:
        raise ConfigError(f"resamples={resamples}, coverage={coverage}; wanted at least 1, and between 0 and 1")
    value = float(metric(np.ones((1, series)))[0])
    generator = np.random.default_rng(seed)
    equal = np.full(series, 1 / series)
    rows = max(1, _PIECE // series)
    pieces = [
        metric(generator.multinomial(series, equal, size=min(rows, resamples - begin)).astype(np.float64))
        for begin in range(0, resamples, rows)
    ]
    values = np.concatenate(pieces)
    values = values[~np.isnan(values)]
    if len(values) == 0:
        return Estimate(value, float("nan"), float("nan"))
    low, high = np.quantile(values, [(1 - coverage) / 2, (1 + coverage) / 2])
    return Estimate(value, float(low), float(high))
