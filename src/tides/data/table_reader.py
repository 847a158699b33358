"""Reads the columns of a table as numbers, chunk by chunk."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tides.data.chosen import Chosen, only, picked
from tides.data.clock import ClockReader
from tides.data.columns import Coder, numbers
from tides.data.pivot import Rows
from tides.data.roles import Roles
from tides.data.sources import Table, shown
from tides.errors import DataError

_ALL_ARE_CHANNELS = ": columns without another role are channels; `channels` can name the channels instead"


class TableReader:
    """Reads the columns of a table as numbers; once they are read, it knows what the numbers stand for."""

    def __init__(self, table: Table, roles: Roles) -> None:
        self.table, self.roles = table, roles
        self.ids = Coder(self.where(roles.id or ""), text=table.text, required=True)
        self.whole_ids = roles.id is None
        self.clock = ClockReader(self.where(roles.time))
        self.channels = Coder(self.where(roles.channel or ""), text=table.text, required=True)
        self.codes = {name: Coder(self.where(name), text=table.text) for name in roles.per_series}
        self.earliest: Any = None
        self.chosen = None if roles.chosen is None else Chosen(roles.chosen, self.channels.where)

    def where(self, column: str) -> str:
        return f"{self.table.name}: column {column!r}"

    def chunks(self) -> Iterator[Rows]:
        row = 0
        hint = "" if self.roles.channel else _ALL_ARE_CHANNELS
        for columns in self.table.chunks(self.roles.all, self.roles.values):
            size = len(columns[self.roles.time])
            if size == 0:
                continue
            # Ids first: an empty row is then reported as one without an id.
            key = np.zeros(size, np.int64) if self.roles.id is None else self._keys(columns[self.roles.id], row)
            time = self.clock.read(columns[self.roles.time], row)
            channel = None if self.roles.channel is None else self.channels.encode(columns[self.roles.channel], row)
            kept = None
            if channel is not None and self.chosen is not None:
                kept = self.chosen.rows(channel, self.channels.values, key)
                columns = only(columns, kept, self.roles)
            values = [numbers(columns[name], self.where(name), row, hint=hint) for name in self.roles.values]
            codes = {name: coder.encode(columns[name], row) for name, coder in self.codes.items()}
            rows = Rows(key, time, values, codes, channel)
            if kept is not None:
                rows = picked(rows, kept, row)
            row += size
            if len(rows.time):
                lowest = rows.time.min()
                self.earliest = lowest if self.earliest is None else min(self.earliest, lowest)
                yield rows
        if self.earliest is None:
            what = "" if row == 0 or self.chosen is None else f" of the channels {shown(self.chosen.names)}"
            raise DataError(f"{self.table.name}: the table has no rows{what}")

    def first_row(self, column: str, code: int) -> int:
        """The first row of the table in which a column has the value with this code; reads the column again."""
        row = 0
        for columns in self.table.chunks((column,), ()):
            found = np.flatnonzero(self.codes[column].encode(columns[column], row) == code)
            if len(found):
                return row + int(found[0])
            row += len(columns[column])
        raise AssertionError(f"{self.where(column)}: no row has code {code}")

    def _keys(self, column: Any, row: int) -> NDArray[np.integer[Any]]:
        """Whole-number ids are their own keys; all others are numbered."""
        import pyarrow as pa

        if pa.types.is_signed_integer(column.type) and column.null_count == 0:
            if self.ids.values:
                raise DataError(f"{self.ids.where}: ids change from text to numbers at row {row}")
            self.whole_ids = True
            keys: NDArray[np.integer[Any]] = column.to_numpy(zero_copy_only=False)
            return keys
        codes = self.ids.encode(column, row)
        if self.whole_ids:
            raise DataError(f"{self.ids.where}: ids change from numbers to text at row {row}")
        return codes
