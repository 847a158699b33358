"""A system ready to be perturbed and integrated: code, nominal values and their order."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tides.data.physiome import facts
from tides.data.physiome.equations import Equations, Quantity, convert
from tides.data.physiome.rhs import write_source
from tides.errors import DataError


@dataclass(frozen=True)
class Problem:
    """States and constants stand in the order in which random numbers are drawn for them."""

    name: str
    source: str
    """Python source of the right-hand side over that order; compiled on first use."""
    states: tuple[str, ...]
    """Legends such as `V in component membrane (millivolt)`."""
    constants: tuple[str, ...]
    start: tuple[float, ...]
    """Nominal initial states."""
    values: tuple[float, ...]
    """Nominal constants."""
    time_unit: str
    notes: tuple[str, ...] = ()
    """Repairs that were made to the CellML files."""


def load_problem(path: str | Path, entry: str | None = None) -> Problem:
    """Read a CellML model.

    With `entry`, a short name of the benchmark, states and constants follow the published order and values and
    `path` may be a folder that holds the model. Without it the order is libCellML's: states, then constants as
    it lists them, then constants that are computed from others.
    """
    if entry is None:
        equations = convert(path)
        return _in_own_order(equations)
    return _in_published_order(convert(model_file(path, entry)), entry)


def model_file(path: str | Path, entry: str) -> Path:
    """The file of a benchmark system: `path` itself, or the model inside the folder `path`."""
    place = Path(path)
    if not place.is_dir():
        return place
    short, model = entry, facts.system(entry).model
    candidates = [f"{short}.cellml", f"{model}.cellml", f"{short}/{model}.cellml"]
    for candidate in candidates:
        if (place / candidate).is_file():
            return place / candidate
    raise DataError(f"{place}: holds no model of {short}; looked for {', '.join(candidates)}")


def _in_own_order(equations: Equations) -> Problem:
    return Problem(
        name=equations.name,
        source=write_source(equations, range(len(equations.states)), range(len(equations.constants))),
        states=tuple(state.legend for state in equations.states),
        constants=tuple(constant.legend for constant in equations.constants),
        start=tuple(state.value for state in equations.states),
        values=tuple(constant.value for constant in equations.constants),
        time_unit=equations.time.unit,
        notes=equations.notes,
    )


def _in_published_order(equations: Equations, entry: str) -> Problem:
    channels, constants = facts.channels(entry), facts.constants(entry)
    named = [constant for constant in constants if constant.name]
    state_position = _match(entry, "state", equations.states, channels)
    constant_position = _match(entry, "constant", equations.constants, named)
    return Problem(
        name=entry,
        source=write_source(equations, state_position, constant_position, _constant_rates(equations, entry)),
        states=tuple(f"{c.name} in component {c.component} ({c.unit})" for c in channels),
        constants=tuple(f"{c.name} in component {c.component} ({c.unit})" for c in constants),
        start=tuple(channel.start for channel in channels),
        values=tuple(constant.value for constant in constants),
        time_unit=equations.time.unit,
        notes=equations.notes,
    )


def _match(
    entry: str,
    kind: str,
    found: Sequence[Quantity],
    published: Sequence[facts.Channel] | Sequence[facts.Constant],
) -> list[int]:
    """Position in the published order of each quantity that was found in the model.

    A file that is imported twice gives every name twice; the copies are matched in the order they appear.
    """
    positions: dict[tuple[str, str], list[int]] = defaultdict(list)
    for item in published:
        positions[item.name, item.component].append(item.index)
    result = []
    for quantity in found:
        candidates = [a for alias in quantity.aliases for a in (alias, _without_copy_number(alias)) if positions.get(a)]
        if not candidates:
            raise DataError(f"{entry}: {kind} {quantity.legend!r} is not among the published ones; wrong CellML file?")
        result.append(positions[candidates[0]].pop(0))
    left = [f"{name} in component {component}" for (name, component), rest in positions.items() if rest]
    if left:
        raise DataError(f"{entry}: the CellML file has no {kind} {left[0]!r}; wrong file?")
    return result


def _without_copy_number(alias: tuple[str, str]) -> tuple[str, str]:
    name, component = alias
    return name, re.sub(r"_\d+$", "", component)


def _constant_rates(equations: Equations, entry: str) -> dict[int, int]:
    """Published constants without a name: rates that are plain numbers, in the order of the equations."""
    unnamed = [constant for constant in facts.constants(entry) if not constant.name]
    plain = [target for target, expression in equations.body if target[0] == "r" and _is_plain_number(expression)]
    if len(unnamed) > len(plain):
        raise DataError(f"{entry}: {len(unnamed)} rates should be plain numbers, the CellML file has {len(plain)}")
    return {int(target[1:]): constant.index for target, constant in zip(plain, unnamed, strict=False)}


def _is_plain_number(expression: str) -> bool:
    try:
        float(expression)
    except ValueError:
        return False
    return True
