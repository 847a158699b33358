"""Trajectories that continue for longer than models are trained to forecast.

Time is measured in training horizons: training asks about times up to 1 after the observed window, test instances are
asked up to `reach` after it, equally densely. The window is as long as that of the forecasting tasks elsewhere.
"""

from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tides.data import IrregularBatch, cache, physiome, systems
from tides.data.physiome.problem import model_file
from tides.errors import ConfigError, DataError
from tides.experiments.physiome_folds import EMBEDDED, FoldParts, part_sizes

Array = NDArray[np.float64]
# A member of a benchmark that runs away further than this many deviations is left out there, and here.
_FARTHEST = 10.0


@dataclass(frozen=True)
class Sampling:
    """How trajectories become questions."""

    instances: int
    """Split 0.7 / 0.2 / 0.1."""
    window: int
    """Observed time, in training horizons."""
    points: int
    """Observed times, at random, fewer where the trajectory has fewer."""
    queries: int
    """Times asked per training horizon, likewise."""
    missing: float
    """Share of hidden entries among the observations."""
    noise: float
    """Of observations, in standard deviations of their channel; targets are exact."""
    reach: int
    """Test horizon, in training horizons."""


def check_names(chosen: tuple[str, ...]) -> None:
    """Refuse unknown systems."""
    known = [*(EMBEDDED + name for name in systems.SYSTEMS), *physiome.names()]
    for name in chosen:
        if name not in known:
            raise ConfigError(f"systems: found {name!r}, wanted some of {', '.join(known)}")


def channels(system: str) -> int:
    """How many channels a system has."""
    if system.startswith(EMBEDDED):
        return len(systems.SYSTEMS[system.removeprefix(EMBEDDED)].channels)
    return physiome.system(system).channels


def obstacle(system: str) -> str | None:
    """Why a system cannot be simulated on this machine, or None."""
    if system.startswith(EMBEDDED):
        return None
    if find_spec("libcellml") is None:
        return 'simulating CellML needs libcellml: pip install "tides-ssm[simulation]"'
    folder = cache.data_root(None, "cellml")
    if not folder.is_dir():
        return f"no CellML files: {folder} does not exist"
    try:
        model_file(folder, system)
    except DataError as error:
        return str(error)
    return None


@lru_cache(maxsize=16)
def load(system: str, seed: int, sampling: Sampling) -> FoldParts:
    """The instances of one seed, disjoint from those of any other seed. Kept for the next model."""
    times, states = _trajectories(system, seed, sampling)
    generator = np.random.default_rng((seed, 3))
    train = part_sizes(sampling.instances)[0]
    known = states[:train, times <= sampling.window + 1].reshape(-1, states.shape[2])
    deviation = known.std(axis=0)
    states = (states - known.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    parts = []
    for part, (a, b) in enumerate(pairwise(np.cumsum([0, *part_sizes(sampling.instances)]))):
        kept = np.abs(states[a:b]).max(axis=(1, 2)) <= _FARTHEST
        if not kept.any():
            raise DataError(f"{system}: no instance stays within {_FARTHEST:g} standard deviations")
        parts.append(_ask(times, states[a:b][kept], sampling, generator, sampling.reach if part == 2 else 1))
    return FoldParts(*parts)


def _trajectories(system: str, seed: int, sampling: Sampling) -> tuple[Array, Array]:
    """Times (t,) in training horizons and states (n, t, c)."""
    n, length = sampling.instances, sampling.window + sampling.reach
    if system.startswith(EMBEDDED):
        name = system.removeprefix(EMBEDDED)
        horizon = 0.5 * systems.SYSTEMS[name].span / sampling.window
        times, states = systems.simulate(name, n, seed, span=length * horizon)
        return times / horizon, states
    # The benchmark observes a quarter of its T; a simulation keeps half of its duration.
    horizon = 0.25 * physiome.system(system).duration / sampling.window
    path = model_file(cache.data_root(None, "cellml"), system)
    values, times = physiome.simulate(path, system, n, seed * n, duration=2.0 * length * horizon)
    return times / horizon, values


def _ask(times: Array, states: Array, sampling: Sampling, generator: np.random.Generator, reach: int) -> IrregularBatch:
    """Observations in the window and questions after it, at other times for every instance."""
    n = len(states)
    seen = _pick(generator, n, np.flatnonzero(times <= sampling.window), sampling.points)
    starts = [sampling.window + k for k in range(reach)]
    asked = [
        _pick(generator, n, np.flatnonzero((times > start) & (times <= start + 1)), sampling.queries)
        for start in starts
    ]
    later = np.concatenate(asked, axis=1)
    values = np.take_along_axis(states, seen[:, :, None], axis=1)
    values = values + sampling.noise * generator.standard_normal(values.shape)
    observed = np.stack([systems.partly_observed(generator, values.shape[1:], sampling.missing) for _ in range(n)])
    moments = times[seen]
    return IrregularBatch(
        values=_float(np.where(observed, values, 0.0)),
        times=torch.from_numpy(moments),
        gaps=_float(np.diff(moments, axis=1, prepend=0.0)),
        observed=torch.from_numpy(observed),
        valid=torch.ones(moments.shape, dtype=torch.bool),
        targets=_float(np.take_along_axis(states, later[:, :, None], axis=1)),
        target_observed=torch.ones(*later.shape, states.shape[2], dtype=torch.bool),
        query_times=torch.from_numpy(times[later]),
        query_valid=torch.ones(later.shape, dtype=torch.bool),
    )


def _pick(generator: np.random.Generator, n: int, places: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """For each of n instances `count` of these places of the grid (all, if there are fewer), in order: (n, count)."""
    order = generator.random((n, len(places))).argsort(axis=1)[:, :count]
    return places[np.sort(order, axis=1)]


def _float(array: Array) -> Tensor:
    return torch.from_numpy(array).float()
