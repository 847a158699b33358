"""One trajectory: perturb, integrate with LSODA, cut a window, try again with another seed where that fails."""

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tides.data.physiome.problem import Problem
from tides.data.physiome.rhs import Rhs, compile_source
from tides.errors import ConfigError, DataError

Array = NDArray[np.float64]

GRID = 200
POINTS = 100
TRIES = 10
_TOLERANCE = 1e-6
_MAX_STEP = 1.0
_MAX_STEPS = 500
_LIMIT = 1e15


class SimulationFailed(DataError):
    """No seed gave a usable trajectory."""


@dataclass(frozen=True)
class Spread:
    """How far a simulation goes and how widely states and constants are perturbed."""

    duration: float
    """T: states are kept on half of linspace(0, T, 200)."""
    d_states: float
    """Initial states from uniform(x(1 − d), x(1 + d))."""
    d_constants: float
    """Constants from the same law, derived constants independently of those they derive from."""

    def __post_init__(self) -> None:
        if not (np.isfinite(self.duration) and self.duration > 0):
            raise ConfigError(f"duration={self.duration!r}; wanted a positive number")
        for name, width in (("d_states", self.d_states), ("d_constants", self.d_constants)):
            if not (np.isfinite(width) and width >= 0):
                raise ConfigError(f"{name}={width!r}; wanted a number of at least 0")


@dataclass(frozen=True)
class Trajectory:
    """States on the kept grid points, and where they come from."""

    values: Array
    """(points, channels)"""
    seed: int
    """Seed of the try that worked."""
    start: int
    """Index of the first kept grid point."""


def integrate(
    problem: Problem, spread: Spread, index: int, *, increment: int = 2000, window: bool = True
) -> Trajectory:
    """Trajectory `index` of a system under the published protocol.

    Try k uses numpy's legacy generator with seed index + k·increment and draws, in this order, the states, the
    constants and (with `window`) the start of the window. A try fails on a non-finite right-hand side, on a
    failure of the solver, and on NaN or |value| > 1e15 among the kept points.
    """
    rhs = compile_source(problem.source)
    grid = np.linspace(0.0, spread.duration, GRID)
    reason = ""
    for attempt in range(TRIES):
        seed = index + attempt * increment
        generator = np.random.RandomState(seed)
        y0 = _perturb(generator, problem.start, spread.d_states)
        constants = _perturb(generator, problem.values, spread.d_constants)
        first = int(generator.randint(0, GRID - POINTS)) if window else 0
        try:
            solution = _solve(rhs, y0, constants, grid if window else grid[:POINTS])
        except ArithmeticError as error:
            reason = str(error)
            continue
        kept = solution[first : first + POINTS]
        if np.all(np.abs(kept) <= _LIMIT):
            return Trajectory(kept, seed, first)
        reason = f"a value beyond ±{_LIMIT:g} or NaN"
    raise SimulationFailed(f"{problem.name}: trajectory {index} failed with {TRIES} seeds; the last one: {reason}")


def _perturb(generator: np.random.RandomState, nominal: tuple[float, ...], width: float) -> Array:
    centre = np.asarray(nominal, dtype=np.float64)
    return generator.uniform(centre * (1 - width), centre * (1 + width))


def _solve(rhs: Rhs, y0: Array, constants: Array, grid: Array) -> Array:
    from scipy.integrate import ODEintWarning, odeint

    with warnings.catch_warnings():
        warnings.simplefilter("error", ODEintWarning)
        try:
            solution: Array = odeint(
                rhs,
                y0,
                grid,
                args=(constants, np.empty_like(y0)),
                tfirst=True,
                rtol=_TOLERANCE,
                atol=_TOLERANCE,
                hmax=_MAX_STEP,
                mxstep=_MAX_STEPS,
            )
        except ODEintWarning as warning:
            raise ArithmeticError(f"LSODA: {warning}") from None
    return solution
