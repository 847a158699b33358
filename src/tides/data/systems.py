"""Embedded data: forecasting and classification on simulated cells, irregular and partly observed, no download."""

import numpy as np
from numpy.typing import NDArray

from tides.data.dataset import IrregularDataset
from tides.data.oscillators import CALCIUM, HODGKIN_HUXLEY, SYSTEMS, Array, System, integrate
from tides.data.schema import Schema
from tides.data.series import IrregularSeries
from tides.errors import DataError

__all__ = ["CALCIUM", "HODGKIN_HUXLEY", "SYSTEMS", "System", "classification", "forecasting", "simulate"]


def simulate(
    name: str,
    n: int,
    seed: int = 0,
    *,
    spread: float = 0.1,
    control: Array | None = None,
    span: float | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times (t,) and states (n, t, c) of n instances on a fine grid over `span`, by default the system's.

    Every parameter is drawn within ±`spread` (relative) of its textbook value; `control` (n,) fixes the one that
    decides the regime. Instances are first integrated for a random time, so that phases differ.
    """
    system = _system(name)
    length = system.span if span is None else span
    if n < 1:
        raise DataError(f"n={n}; wanted at least one instance")
    if not 0 <= spread < 1:
        raise DataError(f"spread={spread}; wanted a share of at least 0 and below 1")
    if not system.step <= length < np.inf:
        raise DataError(f"span={span}; wanted at least one step of {system.name}, {system.step} {system.unit}")
    if control is not None and np.shape(control) != (n,):
        raise DataError(f"control: found shape {np.shape(control)}; wanted ({n},), one number for each instance")
    generator = np.random.default_rng(seed)
    parameters = {
        key: value * (1.0 + spread * generator.uniform(-1.0, 1.0, n)) for key, value in system.parameters.items()
    }
    if control is not None:
        parameters[system.control] = np.asarray(control, np.float64)
    initial = np.array(system.initial)[:, None] * (
        1.0 + spread * generator.uniform(-1.0, 1.0, (len(system.initial), n))
    )
    times, states = integrate(system, parameters, initial, 2.0 * system.settle + length)
    steps = round(length / system.step) + 1
    first = generator.integers(round(system.settle / system.step), len(times) - steps + 1, n)
    window = first[:, None] + np.arange(steps)
    return times[:steps], np.take_along_axis(states, window[:, :, None], axis=1)


def forecasting(
    name: str = "hodgkin-huxley",
    n: int = 200,
    seed: int = 0,
    *,
    points: int = 100,
    missing: float = 0.5,
    noise: float = 0.02,
) -> IrregularDataset:
    """Forecast the second half of each window from the first, at `points` random times.

    Each entry of the first half is hidden with probability `missing`; observations get noise of `noise` standard
    deviations of their channel.
    """
    system = _system(name)
    _check_share(missing, points)
    grid, states = simulate(name, n, seed)
    generator = np.random.default_rng((seed, 1))
    deviation = states.std(axis=(0, 1))
    series = []
    for i in range(n):
        times = np.sort(generator.uniform(0.0, system.span, points))
        values = _sample(grid, states[i], times)
        past = times <= 0.5 * system.span
        # One time on each side keeps every instance a question, however few points are asked for.
        past[0], past[-1] = True, False
        seen = values[past] + noise * deviation * generator.standard_normal((int(past.sum()), values.shape[1]))
        series.append(
            IrregularSeries(
                values=seen,
                times=times[past],
                observed=partly_observed(generator, seen.shape, missing),
                query_times=times[~past],
                target=values[~past],
                id=i,
                start=0.0,
            )
        )
    return IrregularDataset(series, schema=Schema(system.channels, system.unit))


def classification(
    name: str = "calcium",
    n: int = 300,
    seed: int = 0,
    *,
    points: int = 60,
    missing: float = 0.5,
    noise: float = 0.05,
    regular: bool = False,
) -> IrregularDataset:
    """Series labelled with the regime of the cell. Labels are balanced; slow and fast firing differ in timing, not
    shape.

    Lengths vary between half of `points` and all of them, times are random, each entry is hidden with probability
    `missing`, and observations get noise of `noise` standard deviations of their channel. With `regular`, every series
    has `points` equally spaced times.
    """
    system = _system(name)
    _check_share(missing, points)
    generator = np.random.default_rng((seed, 2))
    labels = generator.permutation(np.arange(n) % len(system.regimes))
    low, high = (np.array([getattr(regime, end) for regime in system.regimes]) for end in ("low", "high"))
    control = generator.uniform(low[labels], high[labels])
    grid, states = simulate(name, n, seed, spread=0.02, control=control)
    deviation = states.std(axis=(0, 1))
    series = []
    for i in range(n):
        if regular:
            times = np.linspace(0.0, system.span, points)
        else:
            count = int(generator.integers(max(1, points // 2), points + 1))
            times = np.sort(generator.uniform(0.0, system.span, count))
        values = _sample(grid, states[i], times)
        values += noise * deviation * generator.standard_normal(values.shape)
        observed = partly_observed(generator, values.shape, missing)
        series.append(IrregularSeries(values, times, observed, label=int(labels[i]), id=i, start=0.0))
    names = tuple(regime.name for regime in system.regimes)
    return IrregularDataset(series, schema=Schema(system.channels, system.unit, class_names=names))


def _system(name: str) -> System:
    if name not in SYSTEMS:
        raise DataError(f"no embedded system is called {name!r}; there are {', '.join(SYSTEMS)}")
    return SYSTEMS[name]


def _check_share(missing: float, points: int) -> None:
    if not 0 <= missing < 1:
        raise DataError(f"missing={missing}; wanted a share of at least 0 and below 1")
    if points < 2:
        raise DataError(f"points={points}; wanted at least 2")


def _sample(grid: Array, states: Array, times: Array) -> Array:
    """States at arbitrary times, linear between the points of the fine grid."""
    return np.stack([np.interp(times, grid, channel) for channel in states.T], axis=1)


def partly_observed(generator: np.random.Generator, shape: tuple[int, ...], missing: float) -> NDArray[np.bool_]:
    """Each entry kept with probability 1 − missing; a step that lost all of them keeps one."""
    observed = generator.random(shape) >= missing
    empty = np.flatnonzero(~observed.any(axis=1))
    observed[empty, generator.integers(0, shape[1], len(empty))] = True
    return observed
