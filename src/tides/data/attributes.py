"""Columns that belong to a whole series: its label, and static features with categories encoded."""

from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tides.data.columns import number
from tides.data.schema import StaticColumn
from tides.data.sources import shown
from tides.errors import DataError

LabelKind = Literal["auto", "class", "number"]
# Whole numbers with at most this many distinct values are classes under "auto".
_MOST_CLASSES = 20


def encode_labels(
    values: Sequence[Any],
    codes: NDArray[np.integer[Any]],
    where: str,
    *,
    kind: LabelKind = "auto",
    class_names: tuple[str, ...] | None = None,
) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    """Class indices and class names, or numbers and None, for series whose label is `values[codes]`.

    "auto": text, truth values, and whole numbers with at most 20 distinct values are classes (sorted); other numbers
    are numbers. `class_names` fixes the classes, as in a model that is already trained.
    """
    _refuse_dates(values, where, "classes or numbers")
    if class_names is None and (kind == "number" or (kind == "auto" and not _are_classes(values))):
        odd = _no_number(values)
        if odd is not None:
            raise DataError(f"{where}: found {odd!r}; wanted numbers")
        as_numbers = np.array([float(value) for value in values])
        if not np.isfinite(as_numbers).all():
            raise DataError(f"{where}: found {values[int(np.argmin(np.isfinite(as_numbers)))]}; wanted finite numbers")
        return as_numbers[codes], None
    names = [class_name(value) for value in values]
    if class_names is None:
        try:
            class_names = tuple(dict.fromkeys(class_name(value) for value in sorted(values)))
        except TypeError as error:
            raise DataError(f"{where} mixes values that cannot be ordered: {error}") from None
    unknown = sorted(set(names) - set(class_names))
    if unknown:
        raise DataError(f"{where}: class {unknown[0]!r} is not among the known ones {shown(class_names)}")
    place = {name: i for i, name in enumerate(class_names)}
    return np.array([place[name] for name in names], np.int64)[codes], class_names


def encode_weights(values: Sequence[Any], codes: NDArray[np.integer[Any]], where: str) -> NDArray[np.float64]:
    """The weights of series whose weight is `values[codes]`."""
    odd = _no_number(values)
    if odd is None:
        odd = next((value for value in values if not 0 <= float(value) < np.inf), None)
    if odd is not None:
        raise DataError(f"{where}: found {odd!r}; wanted weights, finite numbers ≥ 0")
    weights: NDArray[np.float64] = np.array([float(value) for value in values])[codes]
    return weights


def class_name(value: Any) -> str:
    """The name of a class: whole numbers without a fraction, everything else as it prints."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)


def encode_static(
    column: StaticColumn, values: Sequence[Any], codes: NDArray[np.integer[Any]], where: str
) -> NDArray[np.float64]:
    """Features (n, f) of a static column, NaN where nothing was recorded (code -1), or a category of another column."""
    _refuse_dates(values, where, "numbers or categories, such as an age")
    if column.categories is None:
        odd = _no_number(values)
        if odd is not None:
            raise DataError(f"{where}: found {odd!r} in a numeric static column")
        table = np.array([float(value) for value in values] + [np.nan])[:, None]
    else:
        place = {category: i for i, category in enumerate(column.categories)}
        positions = np.array([place.get(class_name(value), -1) for value in values], np.int64)
        each = np.arange(len(place), dtype=np.float64)[:, None] if column.ordinal else np.eye(len(place))
        each = np.vstack([each, np.full((1, each.shape[1]), np.nan)])
        table = each[np.append(positions, -1)]
    if np.isinf(table).any():
        raise DataError(f"{where}: found an infinite value in a static column")
    features: NDArray[np.float64] = table[codes]
    return features


def describe_static(name: str, values: Sequence[Any], *, ordinal: bool) -> StaticColumn:
    """Numeric where every value is a number, else categories in sorted order; truth values are categories."""
    if all(_is_number(value) and not isinstance(value, (bool, np.bool_)) for value in values):
        return StaticColumn(name)
    return StaticColumn(name, tuple(sorted({class_name(value) for value in values})), ordinal)


def _refuse_dates(values: Sequence[Any], where: str, wanted: str) -> None:
    """Refuse dates and durations: a category for every day that occurs says nothing about another day."""
    found = next((value for value in values if isinstance(value, (date, timedelta))), None)
    if found is not None:
        kind = "duration" if isinstance(found, timedelta) else "date"
        raise DataError(f"{where}: found {found!s}, a {kind}; wanted {wanted}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, Decimal, np.number, np.bool_))


def _no_number(values: Sequence[Any]) -> Any:
    """A value that is not a number; None if all are numbers.

    In a text file all values are text if one of them is not a number; then that one is returned.
    """
    odd = [value for value in values if not _is_number(value)]
    return next(
        (value for value in odd if not (isinstance(value, str) and _reads_as_number(value))), next(iter(odd), None)
    )


def _reads_as_number(text: str) -> bool:
    try:
        number(text)
    except ValueError:
        return False
    return True


def _are_classes(values: Sequence[Any]) -> bool:
    if not all(_is_number(value) for value in values):
        return True
    return len(values) <= _MOST_CLASSES and all(float(value).is_integer() for value in values)
