"""Data sets from tables: long (one row per measurement) and wide (one column per channel)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tides.data.attributes import LabelKind
from tides.data.dataset import IrregularDataset
from tides.data.ingest import Roles, ingest
from tides.data.pivot import Duplicates
from tides.data.schema import Schema
from tides.data.sources import open_table
from tides.errors import DataError


def from_long(
    table: Any,
    *,
    id: str,
    time: str,
    channel: str,
    value: str,
    label: str | None = None,
    static: Sequence[str] = (),
    group: str | None = None,
    unit: str | None = None,
    duplicates: Duplicates = "error",
    label_kind: LabelKind = "auto",
    ordinal: bool = False,
    schema: Schema | None = None,
    spill: str | Path | None = None,
) -> IrregularDataset:
    """A data set from a table with one row per measurement: which series, when, which channel, what value.

    `table` is a pandas or polars frame, an Arrow table, or the path of a Parquet, Feather or CSV file (read in
    chunks). Rows may come in any order; series are sorted by id, channels by name. `time` may hold numbers, dates
    or durations: numbers are taken as they are and `unit` is their name; dates and durations are expressed in
    `unit` ("h", "d", …; seconds by default), dates counting from the earliest one, or from the schema's origin.
    `label`, `group` and the `static` columns must have one value per series; `label_kind` says whether labels
    are classes or numbers; static text is one-hot encoded (`ordinal=True`: numbered). An entry (id, time,
    channel) measured twice raises unless `duplicates` is "mean" or "last" (in row order).
    `schema` (of a training set) fixes channels, classes, categories, unit and origin. With `spill=folder`, the
    rows never have to fit in memory: the data set lives in files there, for as long as you use it.
    """
    opened = open_table(table)
    opened.require(channel, "channel")
    opened.require(value, "value")
    roles = Roles(id, time, (value,), channel, label, tuple(static), group)
    return ingest(opened, roles, unit, duplicates, label_kind, ordinal, schema, spill)


def from_wide(
    table: Any,
    *,
    id: str,
    time: str,
    channels: Sequence[str] | None = None,
    label: str | None = None,
    static: Sequence[str] = (),
    group: str | None = None,
    unit: str | None = None,
    duplicates: Duplicates = "error",
    label_kind: LabelKind = "auto",
    ordinal: bool = False,
    schema: Schema | None = None,
    spill: str | Path | None = None,
) -> IrregularDataset:
    """A data set from a table with one row per time and one column per channel; NaN or null is missing.

    `channels` defaults to every column without another role. Rows of one series at one time are merged; a cell
    that two of them fill is a duplicate. Everything else is as in `from_long`.
    """
    opened = open_table(table)
    taken = {id, time, label, group, *static}
    if channels is None:
        channels = schema.channels if schema is not None else opened.others(taken)
    if not channels:
        raise DataError(f"{opened.name}: no column is left for the channels; the table has {list(opened.columns)}")
    for name in channels:
        opened.require(name, "channels")
        if name in taken:
            raise DataError(f"{opened.name}: column {name!r} is a channel and has another role too")
    roles = Roles(id, time, tuple(channels), None, label, tuple(static), group)
    return ingest(opened, roles, unit, duplicates, label_kind, ordinal, schema, spill)
