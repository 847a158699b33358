"""Prediction intervals whose coverage is checked on series that the network has not seen.

A score is z = |y − mean| / spread, where the spread is the network's own standard deviation (or one number per channel
if it predicts none). `gaussian`: mean ± Φ⁻¹((1 + coverage)/2) · stretch · spread, with stretch² = mean of z² over the
calibration series. `conformal` (split): mean ± q · spread, with q the quantile of the calibration scores at level
coverage · (1 + 1/n) for n calibration series; it makes no assumption about the shape of the errors.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tides.errors import ConfigError, DataError

Array = NDArray[np.float64]
# Scores kept for each channel: more would not move a quantile that anybody asks for.
_MOST_SCORES = 2000


@dataclass(frozen=True, eq=False)
class Calibrated:
    """What was learnt from the calibration series."""

    stretch: Array
    scores: list[Array]
    """Sorted, one array for each channel."""
    series: int
    """How many calibration series there were; 0 leaves the network's spread as it is."""

    @classmethod
    def fit(cls, mean: Array, spread: Array, truth: Array, scored: NDArray[np.bool_], series: int) -> "Calibrated":
        """From answers (m, c) at m query times of this many series."""
        z = np.abs(truth - mean) / spread
        columns = [z[scored[:, c], c] for c in range(z.shape[1])]
        stretch = [float(np.sqrt(np.mean(column**2))) if len(column) else 1.0 for column in columns]
        return cls(np.array(stretch), [_thinned(np.sort(column)) for column in columns], series)

    @classmethod
    def none(cls, channels: int) -> "Calibrated":
        return cls(np.ones(channels), [np.empty(0) for _ in range(channels)], 0)

    def width(self, coverage: float, method: str, channels: Sequence[str]) -> Array:
        """Half the interval of each of the channels in units of the spread."""
        _check(coverage)
        if method == "gaussian":
            return NormalDist().inv_cdf((1 + coverage) / 2) * self.stretch
        if method != "conformal":
            raise ConfigError(f"method: found {method!r}, wanted 'conformal' or 'gaussian'")
        obstacle = self.obstacle(coverage, channels)
        if obstacle is not None:
            raise DataError(obstacle)
        level = coverage * (1 + 1 / self.series)
        return np.array([np.quantile(scores, level, method="higher") for scores in self.scores])

    def obstacle(self, coverage: float, channels: Sequence[str]) -> str | None:
        """Why there are no conformal intervals of this coverage; None where there are."""
        _check(coverage)
        if self.series == 0:
            return "conformal intervals need calibration series: at least 20 series in fit, and calibration > 0"
        if coverage * (1 + 1 / self.series) > 1:
            # Rounded down, so that it can be asked for.
            most = math.floor(1000 * self.series / (self.series + 1)) / 1000
            return f"coverage: {self.series} calibration series support at most {most:.3f}, found {coverage}"
        unseen = [name for name, scores in zip(channels, self.scores, strict=True) if len(scores) == 0]
        if unseen:
            return f"conformal intervals need values in the calibration series; channel {unseen[0]!r} has none in them"
        return None

    def to_dict(self) -> dict[str, Any]:
        return {
            "stretch": self.stretch.tolist(),
            "conformal": [scores.tolist() for scores in self.scores],
            "calibration_series": self.series,
        }

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "Calibrated":
        scores = [np.array(column, np.float64) for column in plain["conformal"]]
        return cls(np.array(plain["stretch"]), scores, int(plain["calibration_series"]))


def _check(coverage: Any) -> None:
    if not isinstance(coverage, Real) or not 0 < float(coverage) < 1:
        raise ConfigError(f"coverage: found {coverage!r}, wanted a number between 0 and 1")


def _thinned(scores: Array) -> Array:
    """At most this many of the sorted scores, evenly spread over their ranks, including the largest."""
    if len(scores) <= _MOST_SCORES:
        return scores
    kept: Array = scores[np.linspace(0, len(scores) - 1, _MOST_SCORES).round().astype(int)]
    return kept
