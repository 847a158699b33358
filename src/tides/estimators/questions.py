"""When a forecast is wanted: spans such as "24h", moments such as "+6h" after the last observation, dates, numbers."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, tzinfo
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tides.data.clock import encode_dates
from tides.data.dataset import IrregularDataset
from tides.data.schema import Schema
from tides.errors import DataError
from tides.units import duration_in

Times = NDArray[np.float64]


def time_span(span: Any, unit: str | None, name: str) -> float:
    """A length of time above zero in `unit`: a number of units, or text with a unit of its own such as "24h"."""
    number = duration_in(span, unit, name)
    if number == 0:
        raise DataError(f"{name}: found {span!r}, wanted a length of time above zero")
    return number


def query_times(
    at: Any, data: IrregularDataset, schema: Schema, *, counted: bool = False, zone: str | None = None
) -> list[Times]:
    """The asked times of every series, in the data's unit, in the order they were asked.

    `at` is one question or several, the same for all series or one row for each. Text with a sign is relative to the
    last time of each series ("+6h", "-30min", "+2" in the data's own unit; commas separate several). Dates and numbers
    are absolute. If times were dates, a number is refused, since its unit and origin are unknown, unless the caller has
    the `counted` times of a data set. Dates without a zone are in `zone`, that of the table, or in UTC if it is not
    known.
    """
    # A data set may count from a day of its own.
    schema = replace(schema, origin=data.schema.origin or schema.origin)
    zero = 0 if counted else schema.offset if schema.origin is None else None
    if isinstance(at, Tensor):
        at = at.tolist()
    if isinstance(at, str):
        at = [word for word in at.split(",") if word.strip()]
    rows = list(at) if isinstance(at, (list, tuple)) or np.ndim(at) else [at]
    if not rows:
        raise DataError("at: no time is asked for")
    read = partial(_moment, schema=schema, zero=zero, zone=None if zone is None else _zone(zone))
    if all(np.ndim(one) == 0 or isinstance(one, str) for one in rows):
        return [_moments(rows, data.times(i), read) for i in range(len(data))]
    if len(rows) != len(data):
        raise DataError(f"at: found {len(rows)} rows of times for {len(data)} series")
    return [_moments(row, data.times(i), read) for i, row in enumerate(rows)]


def _moments(row: Sequence[Any], times: Times, read: Callable[[Any, float], float]) -> Times:
    moments = np.array([read(one, float(times[-1])) for one in row], np.float64)
    if len(moments) == 0 or not np.isfinite(moments).all():
        raise DataError(f"at: found {list(row)}, wanted at least one finite time for each series")
    return moments


def _moment(one: Any, last: float, *, schema: Schema, zero: int | None, zone: tzinfo | None) -> float:
    """One asked time; numbers count from `zero`, or are refused where there is none."""
    number = _number(one)
    if number is None and isinstance(one, str) and one.strip()[:1] in ("+", "-"):
        span = duration_in(one.strip()[1:], schema.unit, "at")
        return last + span if one.strip()[0] == "+" else last - span
    if number is None:
        return _date(one, schema, zone)
    if zero is None:
        raise DataError(
            f"at: found the number {one}, but the model was trained on dates; give a date, or an offset from the last "
            f"observation such as '+6h'"
        )
    return float(number - zero)


def _number(one: Any) -> float | None:
    """A number, or text that is one; a sign in front of text makes it an offset."""
    if isinstance(one, str):
        word = one.strip()
        if word[:1] in ("+", "-"):
            return None
        for read in (int, float):
            try:
                return read(word)
            except ValueError:
                continue
        return None
    if isinstance(one, np.generic) and one.dtype.kind in "fiu":
        one = one.item()
    return one if isinstance(one, (int, float)) and not isinstance(one, bool) else None


def _date(one: Any, schema: Schema, zone: tzinfo | None) -> float:
    try:
        if not isinstance(one, (str, date, np.datetime64)):
            raise TypeError
        instant = in_utc(one, zone)
    except (TypeError, ValueError):
        raise DataError(
            f"at: found {one!r}; wanted an offset from the last observation such as '+6h', a date or a number"
        ) from None
    if schema.origin is None or schema.unit is None:
        raise DataError(f"at: found the date {one!r}, but the model's times are numbers and not dates")
    return float(encode_dates(instant, schema.unit, schema.origin))


def in_utc(one: str | date | np.datetime64, zone: tzinfo | None = None) -> np.datetime64:
    """Dates as UTC without a zone, since numpy knows none; those without one are dates of `zone`."""
    moment: Any = one
    if isinstance(one, str):
        with suppress(ValueError):
            moment = datetime.fromisoformat(one.strip())
    if getattr(moment, "tzinfo", None) is not None:
        return _stamp(moment.astimezone(UTC).replace(tzinfo=None))
    local = _stamp(one)
    clock = local.astype("datetime64[us]").item() if zone is not None else None
    ahead = clock.replace(tzinfo=zone).utcoffset() if isinstance(clock, datetime) else None
    return local if ahead is None else local - np.timedelta64(ahead)


def _stamp(one: Any) -> np.datetime64:
    """A date without a zone; pandas' know more than microseconds."""
    stamp: np.datetime64 = one.to_datetime64() if hasattr(one, "to_datetime64") else np.datetime64(one)
    return stamp


def _zone(name: str) -> tzinfo | None:
    """A time zone by its name, or by its offset from UTC such as "+02:00"."""
    return datetime.strptime(name, "%z").tzinfo if name[:1] in ("+", "-") else ZoneInfo(name)
