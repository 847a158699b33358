"""The roles of a table's columns, and checks that no column has two contradictory ones."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tides.data.sources import Table
from tides.errors import DataError


@dataclass(frozen=True)
class Roles:
    """The role of each column of a table."""

    id: str | None
    """None: all rows are one series."""
    time: str
    values: tuple[str, ...]
    channel: str | None
    label: str | None
    static: tuple[str, ...]
    group: str | None
    weight: str | None = None
    chosen: tuple[str, ...] | None = None
    """Long tables: the channels whose rows are read, and their order; None for all, in order of their names."""

    @property
    def per_series(self) -> tuple[str, ...]:
        names = (self.label, self.weight, self.group, *self.static)
        return tuple(dict.fromkeys(name for name in names if name is not None))

    @property
    def all(self) -> tuple[str, ...]:
        names = (self.id, self.time, self.channel, *self.values, *self.per_series)
        return tuple(dict.fromkeys(name for name in names if name is not None))


def listed(names: Sequence[str], role: str) -> tuple[str, ...]:
    """Column names as a tuple; refuses a single text, which would be read letter by letter."""
    if isinstance(names, str):
        raise DataError(f"{role}: found {names!r}, wanted a list of column names")
    repeated = next((name for name, times in Counter(names).items() if times > 1), None)
    if repeated is not None:
        raise DataError(f"{role}: found {repeated!r} twice, wanted each column once")
    return tuple(names)


def check_roles(table: Table, roles: Roles) -> None:
    """Check that every column exists and has one role: a label among the static columns would give the answer away.

    Only a group may have a second role: a hospital that splits keep together can be a feature as well.
    """
    part: dict[str, str] = {}

    def take(role: str, column: str | None) -> None:
        if column is None:
            return
        first = part.setdefault(table.require(column, role), role)
        if first != role:
            raise DataError(f"{table.name}: {first} and {role} are the same column {column!r}; wanted one for each")

    for role in ("id", "time", "channel", "label", "weight"):
        take(role, getattr(roles, role))
    for name in roles.static:
        take("static", name)
    if roles.group is not None:
        part.setdefault(table.require(roles.group, "group"), "group")
    for name in roles.values:
        take("channels" if roles.channel is None else "value", name)
