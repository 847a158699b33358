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


def channel_scores(values: Array) -> Array:
    """JGD of each channel of trajectories (instances, points, channels).

    With z the channel, z-scored over all instances and points, and Δz its first difference in time:
    mean_i std_t Δz · mean_t std_i Δz (population standard deviations). A constant channel scores 0.
    """
    if values.ndim != 3 or min(values.shape) < 1 or values.shape[1] < 2:
        raise ShapeError(f"values have shape {values.shape}; wanted (instances, at least 2 points, channels)")
    centred = values - values.mean(axis=(0, 1))
    std = np.sqrt(np.mean(centred**2, axis=(0, 1)))
    steps = np.diff(centred / np.where(std > 0, std, 1.0), axis=1)
    scores: Array = steps.std(axis=1).mean(axis=0) * steps.std(axis=0).mean(axis=0)
    return np.where(std > 0, scores, 0.0)


def dataset_score(channels: Array) -> float:
    """Mean of the ten highest channel scores."""
    return float(np.sort(channels)[::-1][:TOP_CHANNELS].mean())


def score(problem: Problem, spread: Spread, n: int = TRAJECTORIES) -> Score:
    """JGD of `n` trajectories on the first half of linspace(0, 2T, 200), all from the start."""
    doubled = replace(spread, duration=2 * spread.duration)
    trajectories = [integrate(problem, doubled, index, increment=n, window=False) for index in range(n)]
    channels = channel_scores(np.stack([trajectory.values for trajectory in trajectories]))
    return Score(spread, dataset_score(channels), tuple(channels.tolist()))
