"""Whatever `fit` and `predict` are given, as one data set: tables, arrays, lists, dictionaries, data sets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tides.data.arrays import STEPS, Layout, from_arrays
from tides.data.attributes import LabelKind
from tides.data.clock import count_offset, encode_dates
from tides.data.columns import is_text, plain
from tides.data.dataset import IrregularDataset
from tides.data.schema import Schema, StaticColumn
from tides.data.series import IrregularSeries
from tides.data.sources import open_table
from tides.data.tables import from_long, from_wide
from tides.data.uea import UNIT as SAMPLES
from tides.errors import ConfigError, DataError
from tides.estimators.questions import in_utc

Labels = Literal["required", "ignored"]
Times = NDArray[Any] | list[NDArray[Any]]
"""One vector for all series, or one for each."""


@dataclass(frozen=True)
class Columns:
    """The constructor's arguments about tables: the role of each column."""

    id: str | None
    time: str | None
    label: str | None
    weight: str | None
    channel: str | None
    value: str | None
    channels: Sequence[str] | None
    static: Sequence[str]
    group: str | None
    unit: str | None
    duplicates: Any
    unlabelled: Any
    layout: Layout | None
    new_categories: Any = "error"
    cut: float | str | None = None
    """Given where long series are cut into pieces; a table without ids is then one of them."""

    @property
    def given(self) -> bool:
        """Whether any column has a role."""
        names = ("id", "time", "label", "weight", "channel", "value", "channels", "static", "group")
        return any(getattr(self, name) not in (None, ()) for name in names)

    @classmethod
    def of(cls, estimator: Any) -> "Columns":
        names = {field.name for field in fields(cls)} - {"static"}
        static = estimator.static
        if isinstance(static, str):
            raise ConfigError(f"static: found {static!r}, wanted a list of column names")
        return cls(**{name: getattr(estimator, name, None) for name in names}, static=tuple(static or ()))


def is_table(X: Any) -> bool:
    """A frame, an Arrow table or the path of a file."""
    if isinstance(X, (str, Path)):
        return True
    library = type(X).__module__.partition(".")[0]
    # The type is asked, because attributes of a lazy frame would be looked up as columns.
    return library in ("pandas", "polars", "pyarrow") and hasattr(type(X), "columns")


def has_text(X: Any, column: str) -> bool:
    """Whether a table says that a column is text; a CSV file says nothing about its columns."""
    table = open_table(X)
    return not table.text and is_text(plain(next(table.chunks((column,), ()))[column]).type)


def is_series(X: Any) -> bool:
    """Series whose times are numbers already: a data set, or a list of them."""
    if isinstance(X, IrregularDataset):
        return True
    return isinstance(X, (list, tuple)) and len(X) > 0 and all(isinstance(one, IrregularSeries) for one in X)


def is_matrix(X: Any) -> bool:
    """Two axes of plain numbers: one series of one channel in each row."""
    if isinstance(X, IrregularDataset) or is_dictionary(X):
        return False
    if isinstance(X, (list, tuple)):
        lengths = {len(row) if _is_vector(row) else None for row in X}
        return len(lengths) == 1 and None not in lengths
    # Sparse matrices, frames and whatever else is not a plain array: scikit-learn's checks know what to say.
    return getattr(X, "ndim", 2) != 3


def _is_vector(row: Any) -> bool:
    try:
        return np.ndim(row) == 1 and not isinstance(row, IrregularSeries)
    except ValueError:
        # Lists of unequal lengths; the reader of arrays raises the error with their position.
        return False


def is_dictionary(X: Any) -> bool:
    """A PyPOTS dictionary; some sparse matrices are mappings too."""
    return isinstance(X, Mapping) and not hasattr(X, "shape")


def read_series(
    X: Any,
    times: Any,
    columns: Columns,
    *,
    labels: Labels,
    label_kind: LabelKind,
    schema: Schema | None,
    weights: bool = False,
) -> IrregularDataset:
    """`X` as a data set, with `weights` also the column of weights of a table. With `schema` (of the training data) it
    must have the same channels and static columns."""
    if is_series(X):
        given = isinstance(X, IrregularDataset)
        data = X if given else IrregularDataset(X, schema=schema) if schema else IrregularDataset(X, unit=columns.unit)
    elif is_table(X):
        return _from_table(X, times, columns, labels, label_kind, schema, weights)
    else:
        return _from_arrays(X, times, columns, schema)
    if times is not None:
        raise DataError("times: the series have times of their own")
    if schema is not None:
        _check_same(data, schema)
    return data


def _from_arrays(X: Any, times: Any, columns: Columns, schema: Schema | None) -> IrregularDataset:
    times = None if times is None else _plain_times(times)
    unit, origin = (columns.unit, None) if schema is None else (schema.unit, schema.origin)
    if schema is not None and schema.origin is not None and not _has_dates(times):
        found = "none" if times is None else "numbers"
        raise DataError(f"times: found {found}, but the model was trained on dates; give dates")
    offset = 0 if schema is None else schema.offset
    if times is not None and len(times):
        if schema is None and not _has_dates(times):
            offset = count_offset(_rows(times))
        times, unit, origin = _numbers(times, unit, origin, offset)
        if schema is not None and schema.unit is None and origin is not None:
            raise DataError("times: found dates, but the model was trained on numbers without a unit; give numbers")
    layout = columns.layout
    if schema is not None and layout is None:  # as in training, where it was wondered at if need be
        layout = "time-first" if is_dictionary(X) else "channels-first"
    data = from_arrays({"X": X["X"]} if is_dictionary(X) and "X" in X else X, times, layout=layout, unit=unit)
    if schema is None:
        return IrregularDataset(list(data), schema=replace(data.schema, origin=origin, offset=offset))
    if len(data.channels) != len(schema.channels):
        raise DataError(
            f"X: found {len(data.channels)} channels; the model was trained on {len(schema.channels)} "
            f"({_some(schema.channels)})"
        )
    if schema.static:
        raise DataError(
            f"X: arrays have no static columns; the model wants {_some([column.name for column in schema.static])}"
        )
    # The constructor's unit may be that of numbered steps.
    if times is None and schema.unit not in (STEPS, SAMPLES) and columns.unit is None:
        raise DataError(
            "times: found none, but the model was trained with times; give them when asking and scoring too"
        )
    return IrregularDataset(list(data), schema=schema)


def _numbers(times: Times, unit: str | None, origin: str | None, offset: int) -> tuple[Any, str | None, str | None]:
    """Dates as numbers in the unit, counted from the earliest one or the training data's; numbers as they are, or
    counted from `offset`."""
    if not _has_dates(times):
        return (_each(times, lambda row: row - offset) if offset else times), unit, origin
    unit = unit or "s"
    since = origin or str(min(row.min() for row in _rows(times) if len(row)))
    return _each(times, lambda row: encode_dates(row, unit, since)), unit, since


def _plain_times(times: Any) -> Times:
    """Times as numpy has them: one vector for all series, or a list with one for each."""
    times = np.asarray(times) if getattr(times, "ndim", 1) == 2 else times
    shared = np.ndim(next(iter(times), 0)) == 0
    return _plain_dates(times) if shared else [_plain_dates(row) for row in times]


def _plain_dates(row: Any) -> NDArray[Any]:
    """One vector of times; dates with a zone, and those in lists, would stay objects in numpy."""
    dates = getattr(row, "dt", row)
    plain = np.asarray(row if getattr(dates, "tz", None) is None else dates.tz_convert(None))
    if plain.dtype == object and plain.size and all(isinstance(one, (date, np.datetime64)) for one in plain):
        return np.array([in_utc(one) for one in plain])
    return plain


def _has_dates(times: Times | None) -> bool:
    return times is not None and any(row.dtype.kind == "M" for row in _rows(times))


def _rows(times: Times) -> list[NDArray[Any]]:
    return [times] if isinstance(times, np.ndarray) else times


def _each(times: Times, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Times:
    return change(times) if isinstance(times, np.ndarray) else [change(row) for row in times]


def _from_table(
    X: Any,
    times: Any,
    columns: Columns,
    labels: Labels,
    label_kind: LabelKind,
    schema: Schema | None,
    weights: bool,
) -> IrregularDataset:
    if columns.time is None or (columns.id is None and columns.cut is None):
        raise DataError(
            "X is a table: say which columns name the series and the time, id=… and time=…. A table that is one long "
            "series needs no id where cut=… says how long its pieces are (forecasts)"
        )
    if times is not None:
        raise DataError(f"times: the table has times of its own in column {columns.time!r}")
    label = columns.label if labels == "required" else None
    roles: dict[str, Any] = {
        "id": columns.id,
        "time": columns.time,
        "label": label,
        "weight": columns.weight if weights else None,
        "static": columns.static,
        "group": columns.group if schema is None else None,
        "unit": columns.unit if schema is None else None,
        "duplicates": columns.duplicates,
        "unlabelled": columns.unlabelled,
        "new_categories": columns.new_categories,
        "label_kind": label_kind,
        "schema": schema,
    }
    if (columns.channel is None) != (columns.value is None):
        raise DataError(
            "channel and value belong together: a long table has both, a wide table neither; events without a value "
            "take a column of ones"
        )
    if columns.channel is not None and columns.value is not None:
        roles |= {"channel": columns.channel, "value": columns.value, "channels": columns.channels}
        return _with_gaps(from_long(X, **roles), columns, schema)
    channels = columns.channels
    if channels is None:
        table = open_table(X)
        taken = {columns.id, columns.time, columns.label, columns.weight, columns.group, *columns.static}
        channels = table.others(taken)
        if schema is not None:
            new = [name for name in channels if name not in schema.channels]
            if new:
                raise DataError(
                    f"{table.name}: column {new[0]!r} is new; the model was trained on {_some(schema.channels)}. "
                    "Drop the column (`--ignore-new` in commands), or train again with it"
                )
            channels = schema.channels
    return _with_gaps(from_wide(X, channels=channels, **roles), columns, schema)


def _with_gaps(data: IrregularDataset, columns: Columns, schema: Schema | None) -> IrregularDataset:
    """Check that time passes in the training data; rows of one series at one time were merged into one step."""
    if schema is None and int(data.lengths.max(initial=0)) <= 1:
        raise DataError(
            f"column {columns.time!r}: every series has a single time, so there is no gap to learn from; is the column "
            "too coarse (dates without hours), rounded, or not the time of the measurement?"
        )
    return data


def _check_same(data: IrregularDataset, schema: Schema) -> None:
    known, found = schema.channels, data.channels
    if len(known) != len(found) or (known != found and not _unnamed(known) and not _unnamed(found)):
        new = [name for name in found if name not in known]
        what = f"channel {new[0]!r} is new" if new else f"found channels {_some(found)}"
        raise DataError(f"X: {what}; the model was trained on {_some(known)}")
    if schema.unit != data.unit and data.unit is not None and schema.unit is not None:
        raise DataError(f"X: times are in {data.unit!r}; the model was trained in {schema.unit!r}")
    if data.schema.static and schema.static and data.schema.static != schema.static:
        raise DataError(
            f"X: found the static columns {_described(data.schema.static)}; the model was trained on "
            f"{_described(schema.static)}. Read the table with schema=model.schema_"
        )


def _described(columns: Sequence[StaticColumn]) -> str:
    """Static columns and their categories, for messages."""
    kinds = ["numbers" if one.categories is None else _some(one.categories) for one in columns]
    return ", ".join(f"{one.name!r} ({kind})" for one, kind in zip(columns, kinds, strict=True))


def _unnamed(channels: Sequence[str]) -> bool:
    return all(name == f"channel_{i}" for i, name in enumerate(channels))


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:6])) + (", …" if len(names) > 6 else "")
