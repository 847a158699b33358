"""Some channels of a long table: rows of other channels are left out, whatever their values."""

import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tides.data.attributes import class_name
from tides.data.columns import plain
from tides.data.pivot import Rows
from tides.data.roles import Roles
from tides.data.schema import Schema
from tides.data.sources import Columns, shown
from tides.errors import DataError

Keys = NDArray[np.integer[Any]]


class Chosen:
    """The channels to read, in their order, and the series that lose rows because of it."""

    def __init__(self, names: tuple[str, ...], where: str) -> None:
        self.names, self.where = names, where
        self._passed: list[Keys] = []

    def rows(self, channel: NDArray[np.int32], values: Sequence[Any], key: Keys) -> NDArray[np.bool_]:
        """Which rows of a chunk are read; `values` are the names behind the codes of its channels."""
        kept: NDArray[np.bool_] = np.array([class_name(value) in self.names for value in values])[channel]
        self._passed.append(np.unique(key[~kept]))
        return kept

    def order(self, names: Sequence[str], schema: Schema | None) -> NDArray[np.int64]:
        """The place of each of the table's channels, -1 for those that are not read. Only new data may lack some of the
        chosen.
        """
        if schema is not None and self.names != schema.channels:
            raise DataError(f"{self.where}: channels {list(self.names)} differ from the schema's")
        absent = [name for name in self.names if name not in names]
        if absent and schema is None:
            near = f"; did you mean {close[0]!r}?" if (close := get_close_matches(absent[0], names, n=1)) else ""
            raise DataError(f"{self.where}: channel {absent[0]!r} occurs in no row{near}")
        place = {name: i for i, name in enumerate(self.names)}
        return np.array([place.get(name, -1) for name in names], np.int64)

    def warn(self, rank: NDArray[np.int64] | None, ids: Sequence[Any] | None, read: Keys) -> None:
        """Count and name the series that are not among those that were `read`; keys are ranks, or ids themselves."""
        passed = np.unique(np.concatenate(self._passed))
        lost = np.setdiff1d(passed if rank is None else rank[passed], read).tolist()
        if lost:
            without = lost if ids is None else [ids[key] for key in lost]
            total = len(lost) + len(read)
            warnings.warn(
                f"{self.where}: {len(lost)} of {total} series have no row of the channels that are read: "
                f"{shown(without)}; left out",
                stacklevel=5,
            )


def picked(rows: Rows, kept: NDArray[np.bool_], first: int) -> Rows:
    """The rows to read, with their places in the table; columns that belong to a series were filtered by `only`."""
    values = [one[kept] for one in rows.values]
    channel = None if rows.channel is None else rows.channel[kept]
    return Rows(rows.key[kept], rows.time[kept], values, rows.codes, channel, first + np.flatnonzero(kept))


def only(columns: Columns, kept: NDArray[np.bool_], roles: Roles) -> Columns:
    """The columns of a chunk without the contents of other rows.

    Values become nulls there, so that rows keep their numbers. Columns that belong to a series lose these rows, so that
    their labels and categories do not count.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    mask = pa.array(kept)
    found = {name: columns[name].filter(mask) for name in roles.per_series}
    for name in roles.values:
        column = plain(columns[name])
        found[name] = pc.if_else(mask, column, pa.scalar(None, column.type))
    return found
