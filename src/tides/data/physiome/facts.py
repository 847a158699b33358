"""Facts about the fifty Physiome-ODE systems: names, perturbation widths, channel and constant order.

The tables (`systems.csv`, `channels.csv`, `constants.csv`) list channels and constants in the order in which
the published generator perturbs them; this order decides which random number each of them receives.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from tides.errors import DataError


@dataclass(frozen=True)
class System:
    """One ordinary differential equation of the benchmark."""

    short: str
    """Short name, such as HOD01."""
    domain: str
    """Field of physiology in the Physiome Model Repository."""
    model: str
    """Name of the CellML model."""
    duration: float
    """T, the length of the simulated interval, in `time_unit`."""
    d_states: float
    """Initial states are drawn from uniform(x(1 − d_states), x(1 + d_states))."""
    d_constants: float
    """Constants are drawn in the same way with this width."""
    channels: int
    """Number of states."""
    constants: int
    """Number of constants."""
    jgd: float
    """Published joint gradient deviation: the mean over the target channels."""
    target_channels: tuple[int, ...]
    """Channels that are forecast: the ten of highest score, or all of them if there are at most ten."""
    time_name: str
    """Name of the variable of integration in the CellML model."""
    time_component: str
    """Component of that variable."""
    time_unit: str
    """Unit of that variable."""


@dataclass(frozen=True)
class Channel:
    """One state of a system."""

    index: int
    name: str
    component: str
    unit: str
    start: float
    """Nominal initial value."""
    jgd: float
    """Score of this channel alone."""
    target: bool
    """Whether the benchmark asks for forecasts of it."""


@dataclass(frozen=True)
class Constant:
    """One constant of a system; two of the published constants carry no name."""

    index: int
    name: str
    component: str
    unit: str
    value: float


def names() -> tuple[str, ...]:
    """Short names of all systems, highest JGD first."""
    return tuple(_systems())


def system(short: str) -> System:
    """The system with this short name."""
    try:
        return _systems()[short]
    except KeyError:
        known = ", ".join(names())
        raise DataError(f"no Physiome-ODE system is called {short!r}; known: {known}") from None


def channels(short: str) -> tuple[Channel, ...]:
    """States of a system in the published order."""
    return _channels()[system(short).short]


def constants(short: str) -> tuple[Constant, ...]:
    """Constants of a system in the published order."""
    return _constants()[system(short).short]


def _rows(table: str) -> list[dict[str, str]]:
    text = files("tides.data.physiome").joinpath(table).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@cache
def _systems() -> Mapping[str, System]:
    systems = {
        row["short"]: System(
            short=row["short"],
            domain=row["domain"],
            model=row["model"],
            duration=float(row["duration"]),
            d_states=float(row["d_states"]),
            d_constants=float(row["d_constants"]),
            channels=int(row["channels"]),
            constants=int(row["constants"]),
            jgd=float(row["jgd"]),
            target_channels=tuple(int(c) for c in row["target_channels"].split()),
            time_name=row["time_name"],
            time_component=row["time_component"],
            time_unit=row["time_unit"],
        )
        for row in _rows("systems.csv")
    }
    return MappingProxyType(systems)


@cache
def _channels() -> Mapping[str, tuple[Channel, ...]]:
    grouped: dict[str, list[Channel]] = {short: [] for short in names()}
    for row in _rows("channels.csv"):
        channel = Channel(
            index=int(row["index"]),
            name=row["name"],
            component=row["component"],
            unit=row["unit"],
            start=float(row["start"]),
            jgd=float(row["jgd"]),
            target=row["target"] == "1",
        )
        grouped[row["short"]].append(channel)
    return MappingProxyType({short: tuple(rows) for short, rows in grouped.items()})


@cache
def _constants() -> Mapping[str, tuple[Constant, ...]]:
    grouped: dict[str, list[Constant]] = {short: [] for short in names()}
    for row in _rows("constants.csv"):
        constant = Constant(
            index=int(row["index"]),
            name=row["name"],
            component=row["component"],
            unit=row["unit"],
            value=float(row["value"]),
        )
        grouped[row["short"]].append(constant)
    return MappingProxyType({short: tuple(rows) for short, rows in grouped.items()})
