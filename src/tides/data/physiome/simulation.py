"""Trajectories from a CellML file, as the published benchmark made them."""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tides.data.counts import require_whole
from tides.data.physiome import facts
from tides.data.physiome.integrate import GRID, POINTS, Spread, Trajectory, integrate
from tides.data.physiome.problem import Problem, load_problem
from tides.data.physiome.workers import run_tasks
from tides.errors import ConfigError

Array = NDArray[np.float64]
CHUNK = 50


class Simulation(NamedTuple):
    """What `simulate` returns."""

    values: Array
    """(n, 100, channels), in the units of the model."""
    times: Array
    """(100,), starting at 0, in the model's unit of time; the same for every trajectory."""


@dataclass(frozen=True)
class Job:
    """A run of consecutive trajectories of one system."""

    problem: Problem
    spread: Spread
    first: int
    count: int


def simulate(
    path: str | Path,
    entry: str | None = None,
    n: int = 100,
    seed0: int = 0,
    *,
    duration: float | None = None,
    d_states: float | None = None,
    d_constants: float | None = None,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Simulation:
    """Simulate trajectories seed0 … seed0 + n − 1 of a CellML model under random perturbations.

    With `entry`, a short name such as "HOD01", states and constants are in the published order, and T, d_states and
    d_constants default to the published ones: trajectory i is then the published trajectory i. Without it, the order is
    libCellML's and the three numbers must be given.

    Each trajectory is solved on linspace(0, T, 200) by LSODA; 100 consecutive points from a random start are kept and
    their times reset to the first 100 grid values. `progress` is called with the number of new trajectories.
    """
    for name, value, least in (("n", n, 1), ("seed0", seed0, 0), ("workers", workers, 1)):
        require_whole(name, value, least)
    spread = choose_spread(entry, duration, d_states, d_constants)
    problem = load_problem(path, entry)
    stop = seed0 + n
    jobs = [Job(problem, spread, first, min(CHUNK, stop - first)) for first in range(seed0, stop, CHUNK)]
    values = np.empty((n, POINTS, len(problem.start)))
    for job, trajectories in run_tasks(run_job, jobs, workers):
        for offset, trajectory in enumerate(trajectories, start=job.first - seed0):
            values[offset] = trajectory.values
        if progress is not None:
            progress(job.count)
    return Simulation(values, kept_times(spread))


def choose_spread(
    entry: str | None, duration: float | None, d_states: float | None, d_constants: float | None
) -> Spread:
    """The given numbers, completed by the published ones of `entry`."""
    given = {"duration": duration, "d_states": d_states, "d_constants": d_constants}
    if entry is not None:
        system = facts.system(entry)
        published = {name: getattr(system, name) for name in given}
        given = {name: published[name] if value is None else value for name, value in given.items()}
    missing = [name for name, value in given.items() if value is None]
    if missing:
        raise ConfigError(f"{', '.join(missing)}: wanted numbers, because no published entry was named")
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, Real):
            raise ConfigError(f"{name}={value!r}; wanted a number")
    return Spread(**{name: float(value) for name, value in given.items() if value is not None})


def kept_times(spread: Spread) -> Array:
    """Times of the kept points, reset to start at 0."""
    return np.linspace(0.0, spread.duration, GRID)[:POINTS]


def run_job(job: Job) -> list[Trajectory]:
    """The trajectories of one job, in order."""
    return [integrate(job.problem, job.spread, index) for index in range(job.first, job.first + job.count)]
