"""Joint gradient deviation: how hard a simulated system is to forecast."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tides.data.physiome.integrate import Spread, integrate
from tides.data.physiome.problem import Problem
from tides.errors import ShapeError

TRAJECTORIES = 100
TOP_CHANNELS = 10

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """JGD of a system under one spread."""

    spread: Spread
    jgd: float
    """Mean over the ten channels of highest score, or over all if there are fewer."""
    channels: tuple[float, ...]
    largest: float
    """Largest |z| of the trajectories; the published search passes over spreads where it exceeds 10."""


def channel_scores(values: Array) -> Array:
    """JGD of each channel of trajectories (instances, points, channels).

    With z the channel, z-scored over all instances and points, and Δz its first difference in time:
    mean_i std_t Δz · mean_t std_i Δz (population standard deviations). A constant channel scores 0.
    """
    if values.ndim != 3 or min(values.shape) < 1 or values.shape[1] < 2:
        raise ShapeError(f"values have shape {values.shape}; wanted (instances, at least 2 points, channels)")
    steps = np.diff(_z_score(values), axis=1)
    scores: Array = steps.std(axis=1).mean(axis=0) * steps.std(axis=0).mean(axis=0)
    return scores


def dataset_score(channels: Array) -> float:
    """Mean of the ten highest channel scores."""
    return float(np.sort(channels)[::-1][:TOP_CHANNELS].mean())


def score(problem: Problem, spread: Spread, n: int = TRAJECTORIES) -> Score:
    """JGD of `n` trajectories on the first half of linspace(0, 2T, 200), all from the start."""
    doubled = replace(spread, duration=2 * spread.duration)
    trajectories = [integrate(problem, doubled, index, increment=n, window=False) for index in range(n)]
    values = np.stack([trajectory.values for trajectory in trajectories])
    channels = channel_scores(values)
    largest = float(np.abs(_z_score(values)).max())
    return Score(spread, dataset_score(channels), tuple(channels.tolist()), largest)


def _z_score(values: Array) -> Array:
    centred = values - values.mean(axis=(0, 1))
    std = np.sqrt(np.mean(centred**2, axis=(0, 1)))
    # What is left of a constant channel is rounding error, and must not be blown up to a unit spread.
    constant = np.ptp(values, axis=(0, 1)) == 0
    z: Array = np.where(constant, 0.0, centred / np.where(constant, 1.0, std))
    return z
