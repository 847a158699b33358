"""Simulated trajectories against a reference folder, and their JGD against the published one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tides.data.physiome import facts
from tides.data.physiome.campaign import Model
from tides.data.physiome.jgd import score
from tides.data.physiome.problem import load_problem
from tides.data.physiome.trajectories import Trajectories, find_trajectories, read_trajectories
from tides.data.physiome.workers import run_tasks
from tides.errors import DataError

TOLERANCE = 1e-2
"""Largest difference, in standard deviations of the channel, at which two trajectories count as the same."""
SOLVER_SENSITIVE = frozenset({"KAR01", "KAR02", "MAC01", "BAG01", "DUP03"})
"""Systems with states below the absolute tolerance, where rounding decides the steps of the solver."""
# The compact file saturates at the range of int16.
_SATURATION = 32.767


@dataclass(frozen=True)
class Agreement:
    """How far a simulation repeats a reference."""

    name: str
    fraction: float
    """Instances whose every value lies within `TOLERANCE`."""
    jgd: float
    published_jgd: float

    @property
    def good(self) -> bool:
        """99 % of the instances agree (in systems that are not solver-sensitive) and the JGD is met to 0.5 %."""
        same = self.fraction >= 0.99 or self.name in SOLVER_SENSITIVE
        return same and abs(self.jgd / self.published_jgd - 1) <= 5e-3


def agreeing_fraction(simulated: Trajectories, reference: Trajectories) -> float:
    """Fraction of the instances of `simulated` that lie within `TOLERANCE` of the same ones of `reference`."""
    n = len(simulated.values)
    if n > len(reference.values) or simulated.values.shape[1:] != reference.values.shape[1:]:
        raise DataError(
            f"{simulated.name}: simulated {simulated.values.shape}, reference {reference.values.shape}; "
            "wanted the same points and channels and at least as many instances in the reference"
        )
    z = (simulated.raw() - reference.mean) / reference.std
    difference = np.abs(np.clip(z, -_SATURATION, _SATURATION) - reference.values[:n])
    return float(np.mean(difference.max(axis=(1, 2)) <= TOLERANCE))


def compare(
    models: Sequence[Model],
    simulated: Path,
    reference: Path,
    *,
    workers: int = 1,
    progress: Callable[[str], None] | None = None,
) -> list[Agreement]:
    """Agreement of every published system that was simulated into the folder `simulated`."""
    rows = {}
    for model, jgd in run_tasks(_published_jgd, models, workers):
        found = find_trajectories(model.name, reference)
        if found is None:
            raise DataError(f"{reference}: holds no trajectories of {model.name}")
        fraction = agreeing_fraction(read_trajectories(simulated / f"{model.name}.npz"), read_trajectories(found))
        rows[model.name] = Agreement(model.name, fraction, jgd, facts.system(model.name).jgd)
        if progress is not None:
            progress(model.name)
    return [rows[model.name] for model in models]


def _published_jgd(model: Model) -> float:
    return score(load_problem(model.path, model.entry), model.spread).jgd
