"""Rows of a table to steps of series: sorting, merging rows of one time, and what to do with duplicates."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tides.data.ordering import stable_order
from tides.data.store import DenseCells, SparseCells
from tides.errors import DataError

Duplicates = Literal["error", "mean", "last"]
Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table (or of a part of it) in numbers.

    `key` orders the series, `time` is raw, `codes` are per-row categories of columns that belong to a series
    (label, group, static), `numbers` are the rows' places in the table (None: 0, 1, 2, …). A long table has
    `channel` and one column in `values`; a wide one has a column for every channel.
    """

    key: Ints
    time: NDArray[Any]
    values: list[Floats]
    codes: Mapping[str, Ints]
    channel: Ints | None = None
    numbers: Ints | None = None


@dataclass(frozen=True, eq=False)
class Block:
    """Series end to end, as in `FlatStore`, with raw times; `codes` has one entry per series."""

    keys: Ints
    bounds: NDArray[np.int64]
    time: NDArray[Any]
    cells: DenseCells | SparseCells
    codes: dict[str, Ints]


@dataclass(frozen=True)
class Names:
    """How errors name the parts of a table."""

    table: str
    id_column: str
    time_column: str
    series: Callable[[int], str]
    channel: Callable[[int], str]
    entry: Callable[[str, int], str]
    """What a code of a column stands for."""


def pivot(rows: Rows, n_channels: int, duplicates: Duplicates, names: Names, *, sparse: bool | None = None) -> Block:
    """Sort rows by (series, time), merge rows of one time into a step, and lay the observed entries out.

    A NaN is no observation; its row still makes a step. An entry observed twice is a duplicate.
    `sparse` None takes the layout that needs less memory.
    """
    order = stable_order(rows.key, rows.time)
    key, time = _take(rows.key, order), _take(rows.time, order)
    new_series = _changes(key)
    new_step = new_series | _changes(time)
    first_row = np.flatnonzero(new_series)
    step_first = np.flatnonzero(new_step)
    steps = len(step_first)
    bounds = np.append(np.searchsorted(step_first, first_row), steps).astype(np.int64)
    series_keys, step_times = key[first_row], time[step_first]
    del key, time, new_series, step_first  # large, and not needed where the entries are laid out
    sorted_rows = _Sorted(rows, order, first_row, new_step)
    codes = {name: _one_per_series(name, sorted_rows, names) for name in rows.codes}
    if rows.channel is None:
        cells: DenseCells | SparseCells = _wide_cells(sorted_rows, steps, duplicates, names)
    else:
        cells = _long_cells(sorted_rows, steps, n_channels, duplicates, names, sparse)
    return Block(series_keys, bounds, step_times, cells, codes)


@dataclass(frozen=True, eq=False)
class _Sorted:
    """Rows together with their order; `first_row` is the sorted position of each series' first row, and
    `new_step` says at which sorted positions a step begins."""

    rows: Rows
    order: Ints | None
    first_row: Ints
    new_step: NDArray[np.bool_]

    @property
    def position_type(self) -> type[np.integer[Any]]:
        """The smaller integer type, if the number of rows allows: half the memory."""
        return np.int32 if len(self.new_step) < 2**31 else np.int64

    def steps(self) -> Ints:
        """The step of each row, in sorted order."""
        step: Ints = np.empty(len(self.new_step), self.position_type)
        np.cumsum(self.new_step, out=step)
        step -= 1
        return step

    def number(self, position: int) -> int:
        """The table row at a sorted position."""
        at = self._place(position)
        return at if self.rows.numbers is None else int(self.rows.numbers[at])

    def key(self, position: int) -> int:
        return int(self.rows.key[self._place(position)])

    def _place(self, position: int) -> int:
        return position if self.order is None else int(self.order[position])


def _take(array: NDArray[Any], order: Ints | None) -> NDArray[Any]:
    return array if order is None else array[order]


def _composed(order: Ints | None, position: Ints | None) -> Ints | None:
    """The rows at these sorted positions; None means all rows as they are."""
    if order is None or position is None:
        return position if order is None else order
    composed: Ints = order[position]
    return composed


def _changes(array: NDArray[Any]) -> NDArray[np.bool_]:
    changed = np.ones(len(array), np.bool_)
    np.not_equal(array[1:], array[:-1], out=changed[1:])
    return changed


def _one_per_series(column: str, rows: _Sorted, names: Names) -> Ints:
    """The one value of a column that belongs to a series, -1 where no row has it; two different ones raise."""
    codes = _take(rows.rows.codes[column], rows.order)
    if len(codes) == 0:
        return codes
    highest = np.maximum.reduceat(codes, rows.first_row)
    lowest = np.minimum.reduceat(np.where(codes < 0, np.iinfo(codes.dtype).max, codes), rows.first_row)
    conflict = (highest >= 0) & (highest != lowest)
    if conflict.any():
        at = int(np.argmax(conflict))
        begin = int(rows.first_row[at])
        end = int(rows.first_row[at + 1]) if at + 1 < len(rows.first_row) else len(codes)
        inside = codes[begin:end]
        one = int(np.argmax(inside >= 0))
        other = int(np.argmax((inside >= 0) & (inside != inside[one])))
        raise DataError(
            f"{names.table}: column {column!r} must have one value per {names.id_column!r}, but "
            f"{names.series(rows.key(begin))} has {names.entry(column, int(inside[one]))} and "
            f"{names.entry(column, int(inside[other]))} in rows {rows.number(begin + one)} and "
            f"{rows.number(begin + other)}"
        )
    return highest


def _duplicate_error(rows: _Sorted, one: int, other: int, channel: int, names: Names) -> DataError:
    first, second = sorted((rows.number(one), rows.number(other)))
    return DataError(
        f"{names.table}: {names.series(rows.key(one))} has channel {names.channel(channel)} twice at the same "
        f"{names.time_column!r}, in rows {first} and {second}; merge them with duplicates 'mean' or 'last'"
    )


def _long_cells(
    rows: _Sorted, steps: int, channels: int, duplicates: Duplicates, names: Names, sparse: bool | None
) -> DenseCells | SparseCells:
    assert rows.rows.channel is not None
    cell = rows.steps() * np.int64(channels)
    cell += _take(rows.rows.channel, rows.order)
    # Sorted positions of the entries; values are fetched once, at the end, when their final order is known.
    position: Ints | None = None
    missing = np.isnan(rows.rows.values[0])
    if missing.any():
        position = np.flatnonzero(~_take(missing, rows.order)).astype(rows.position_type)
        cell = cell[position]
    if bool((cell[1:] < cell[:-1]).any()):
        by_cell = np.argsort(cell, kind="stable").astype(rows.position_type)
        position = by_cell if position is None else position[by_cell]
        del by_cell
        cell.sort()
    value = _take(rows.rows.values[0], _composed(rows.order, position))
    first = _changes(cell)
    if not first.all():
        if duplicates == "error":
            at = int(np.argmin(first))
            one, other = (at - 1, at) if position is None else (int(position[at - 1]), int(position[at]))
            raise _duplicate_error(rows, one, other, int(cell[at] % channels), names)
        value, cell = _merge(value, first, duplicates), cell[first]
    del position
    entry_bytes = value.itemsize + 4
    if sparse is None:
        sparse = steps * channels * value.itemsize > 1.5 * (len(value) * entry_bytes + steps * 8)
    if not sparse:
        values = np.full(steps * channels, np.nan, value.dtype)
        values[cell] = value
        return DenseCells(values.reshape(steps, channels))
    channel = np.empty(len(cell), np.int32)
    np.remainder(cell, np.int64(channels), out=channel, casting="unsafe")  # no copy in 64 bits on the way
    cell //= channels  # from here on the step of each entry
    counts = np.bincount(cell, minlength=steps)
    del cell
    bounds: Ints = np.zeros(steps + 1, np.int32 if len(value) < 2**31 else np.int64)
    np.cumsum(counts, out=bounds[1:])
    return SparseCells(bounds, channel, value, channels)


def _wide_cells(rows: _Sorted, steps: int, duplicates: Duplicates, names: Names) -> DenseCells:
    columns, step = rows.rows.values, rows.steps()
    dtype = np.result_type(*columns) if columns else np.float64
    values = np.full((steps, len(columns)), np.nan, dtype)
    distinct = steps == len(step)
    for channel, column in enumerate(columns):
        sorted_column = _take(column, rows.order)
        if distinct:
            values[:, channel] = sorted_column
            continue
        kept = np.flatnonzero(~np.isnan(sorted_column))
        first = _changes(step[kept])
        if duplicates == "error" and not first.all():
            at = int(np.argmin(first))
            raise _duplicate_error(rows, int(kept[at - 1]), int(kept[at]), channel, names)
        values[step[kept[first]], channel] = _merge(sorted_column[kept], first, duplicates)
    return DenseCells(values)


def _merge(value: Floats, first: NDArray[np.bool_], duplicates: Duplicates) -> Floats:
    """One value for each run of equal cells; `first` marks where the runs begin."""
    if len(value) == 0:
        return value
    if duplicates == "last":
        last: Floats = value[np.append(first[1:], True)]
        return last
    begins = np.flatnonzero(first)
    counts = np.diff(np.append(begins, len(value)))
    # Dividing before adding keeps the mean of huge values finite.
    mean: Floats = np.add.reduceat(value / np.repeat(counts, counts), begins).astype(value.dtype)
    return mean
