"""Small data for the estimators' tests."""

from typing import Any

import numpy as np

from tides.data import IrregularDataset, IrregularSeries

FAST: dict[str, Any] = {"hidden_size": 8, "state_size": 4, "depth": 1, "epochs": 6, "random_state": 0}


def levels(n: int = 40, seed: int = 0, *, missing: float = 0.3) -> IrregularDataset:
    """Two channels of noise around a level that depends on the class: easy, ragged, with holes."""
    rng = np.random.default_rng(seed)
    series = []
    for i in range(n):
        length = int(rng.integers(4, 12))
        values = rng.normal(size=(length, 2)) + 3.0 * (i % 2)
        values[rng.random(values.shape) < missing] = np.nan
        series.append(IrregularSeries(values, np.sort(rng.uniform(0, 10, length)), label=i % 2, id=i))
    return IrregularDataset(series, channels=("a", "b"), unit="h", class_names=("low", "high"))


def relaxing(n: int = 40, seed: int = 0, *, points: int = 20, span: float = 10.0) -> IrregularDataset:
    """A stationary Gaussian process with correlation exp(−Δ/2), mean 20 and standard deviation 5, plus noise 0.5."""
    rng = np.random.default_rng(seed)
    series = []
    for i in range(n):
        times = np.sort(rng.uniform(0, span, points))
        level = np.empty(points)
        level[0] = rng.normal()
        for k in range(1, points):
            kept = np.exp(-(times[k] - times[k - 1]) / 2)
            level[k] = kept * level[k - 1] + np.sqrt(1 - kept**2) * rng.normal()
        values = 20 + 5 * level + 0.5 * rng.normal(size=points)
        series.append(IrregularSeries(values[:, None], times, id=i))
    return IrregularDataset(series, channels=("x",), unit="h")
