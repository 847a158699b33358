"""Data sets from tables: long (one row per measurement) and wide (one column per channel)."""

from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

from tides.data.attributes import LabelKind
from tides.data.dataset import IrregularDataset
from tides.data.ingest import Unlabelled, ingest
from tides.data.new_categories import NewCategories
from tides.data.pivot import Duplicates
from tides.data.roles import Roles, listed
from tides.data.schema import Schema
from tides.data.sources import Table, open_table, shown
from tides.errors import DataError


def from_long(
    table: Any,
    *,
    id: str | None,
    time: str,
    channel: str,
    value: str,
    channels: Sequence[str] | None = None,
    label: str | None = None,
    weight: str | None = None,
    static: Sequence[str] = (),
    group: str | None = None,
    unit: str | None = None,
    duplicates: Duplicates = "error",
    unlabelled: Unlabelled = "error",
    new_categories: NewCategories = "error",
    label_kind: LabelKind = "auto",
    ordinal: bool = False,
    schema: Schema | None = None,
    spill: str | Path | None = None,
) -> IrregularDataset:
    """A data set from a table with one row per measurement: which series, when, which channel, what value.

    `table` is a pandas or polars frame, an Arrow table, or the path of a Parquet, Feather or CSV file (read in chunks).
    Rows may come in any order; series are sorted by id, channels by name. With `id=None`, all rows are one series.

    `time` may hold numbers, dates or durations. Numbers are used as they are, and `unit` is their name. Dates and
    durations are converted to `unit` ("h", "d", …; seconds by default); dates count from the earliest one, or from the
    schema's origin.

    `label`, `weight`, `group` and the `static` columns must have one value per series. `label_kind` says whether labels
    are classes or numbers. Static text is one-hot encoded (with `ordinal=True`, numbered). An entry (id, time, channel)
    measured twice raises an error unless `duplicates` is "mean" or "last" (in row order). A series without a label
    raises one unless `unlabelled="drop"`, which leaves such series out with a warning.

    `channels` names the channels to read, in their order. Rows of others are left out, whatever their values, and a
    warning counts the series that lose all rows. `schema` (of a training set) fixes channels, classes, categories, unit
    and origin; with `new_categories="missing"` a category that it does not know counts as not recorded. With
    `spill=folder`, the rows never have to fit into memory: the data set lives in files there for as long as you use it.
    """
    opened = open_table(table)
    chosen = None if channels is None else listed(channels, "channels")
    roles = Roles(id, time, (value,), channel, label, listed(static, "static"), group, weight, chosen)
    return ingest(opened, roles, unit, duplicates, unlabelled, new_categories, label_kind, ordinal, schema, spill)


def from_wide(
    table: Any,
    *,
    id: str | None,
    time: str,
    channels: Sequence[str] | None = None,
    label: str | None = None,
    weight: str | None = None,
    static: Sequence[str] = (),
    group: str | None = None,
    unit: str | None = None,
    duplicates: Duplicates = "error",
    unlabelled: Unlabelled = "error",
    new_categories: NewCategories = "error",
    label_kind: LabelKind = "auto",
    ordinal: bool = False,
    schema: Schema | None = None,
    spill: str | Path | None = None,
) -> IrregularDataset:
    """A data set from a table with one row per time and one column per channel; NaN or null is missing.

    `channels` defaults to every column without another role; with a `schema` these must be its channels. Rows of one
    series at one time are merged; a cell that two of them fill is a duplicate. Everything else is as in `from_long`.
    """
    opened = open_table(table)
    features = listed(static, "static")
    if channels is None:
        channels = _measured(opened, {id, time, label, weight, group, *features}, schema)
    values = listed(channels, "channels")
    if not values:
        raise DataError(f"{opened.name}: no column is left for the channels; the table has {list(opened.columns)}")
    roles = Roles(id, time, values, None, label, features, group, weight)
    return ingest(opened, roles, unit, duplicates, unlabelled, new_categories, label_kind, ordinal, schema, spill)


def _measured(table: Table, taken: Container[str | None], schema: Schema | None) -> Sequence[str]:
    """Every column without another role; with a schema, its channels and no other column."""
    found = table.others(taken)
    if schema is None:
        return found
    known = set(schema.channels)
    new = next((name for name in found if name not in known), None)
    if new is not None:
        raise DataError(
            f"{table.name}: column {new!r} is not among the schema's channels: {shown(schema.channels)}. "
            "Drop the column, or say which columns are channels"
        )
    return schema.channels
