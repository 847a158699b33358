"""Time columns: numbers, dates (with or without zone) and durations, as float64 in one explicit unit."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tides.data.columns import comma_hint, is_text, numbers, plain
from tides.data.schema import Schema
from tides.data.sources import open_table
from tides.data.written_dates import are_written_dates
from tides.errors import DataError
from tides.units import seconds_per

_EXACT = 2**53  # whole numbers beyond it are rounded by float64
_OF_DAY = re.compile(r"\d{1,2}:\d\d(:\d\d(\.\d+)?)?( ?[AaPp][Mm])?")
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # ticks of an integer clock per second


@dataclass
class ClockReader:
    """Reads the chunks of one time column as raw ticks (dates, durations) or numbers, the same for all chunks."""

    where: str
    kind: str = ""  # "number", "count" (whole and beyond float64), "date" or "duration"; known after the first chunk
    resolution: str = ""
    zoned: bool | None = None
    written: bool = True
    """Whether all numbers so far are dates written as such (20310501)."""
    span: tuple[float, float] = (np.inf, -np.inf)

    def read(self, array: Any, row: int) -> NDArray[Any]:
        """Raw times of a chunk: int64 ticks and counts, or float64; nothing missing, nothing infinite."""
        import pyarrow as pa

        column = plain(array)
        if is_text(column.type):
            column = self._parse(column, row)
        if pa.types.is_uint64(column.type):
            column = _signed(column)
        kind = column.type
        if pa.types.is_time(kind):
            raise DataError(f"{self.where}: found times of day; wanted numbers, durations, or dates with their times")
        if pa.types.is_date(kind):
            column = column.cast(pa.timestamp("s" if pa.types.is_date32(kind) else "ms"))
            kind = column.type
        if column.null_count:
            missing = column.is_null().to_numpy(zero_copy_only=False)
            raise DataError(f"{self.where}, row {row + int(np.argmax(missing))}: no time recorded (null or NaT)")
        if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
            column = self._in_first_resolution(column)
            date = pa.types.is_timestamp(kind)
            self._settle("date" if date else "duration", column.type.unit, row)
            if date:
                self._settle_zone(kind.tz is not None, row)
        elif self._counts(column):
            self._settle("count", "", row)
        else:
            times = numbers(column, self.where, row).astype(np.float64, copy=False)
            if np.isnan(times).any():
                raise DataError(f"{self.where}, row {row + int(np.argmax(np.isnan(times)))}: no time recorded (NaN)")
            self._settle("number", "", row)
            if self.written:
                self.written = are_written_dates(times)
                low, high = self.span
                self.span = float(times.min(initial=low)), float(times.max(initial=high))
            return times
        ticks: NDArray[Any] = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return ticks

    def refuse_written_dates(self) -> None:
        """Refuse dates written as numbers: 20310131 and 20310201 are a day apart, but 70 as numbers. One alone may be
        any number.
        """
        low, high = self.span
        if self.written and low < high:
            raise DataError(
                f"{self.where}: the numbers from {low:.0f} to {high:.0f} are dates written as numbers, whose "
                "differences are not durations; convert them, for example pd.to_datetime(column.astype(str))"
            )

    def _counts(self, column: Any) -> bool:
        """Whether these are whole numbers too large for float64, such as nanoseconds since 1970."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.kind not in ("", "count") or not pa.types.is_integer(column.type) or pa.types.is_uint64(column.type):
            return False
        ends = pc.min_max(column).as_py()
        return self.kind == "count" or max(-(ends["min"] or 0), ends["max"] or 0) > _EXACT

    def _in_first_resolution(self, column: Any) -> Any:
        """Ticks in the resolution of the first chunk, if none is lost: files of one folder may differ in theirs."""
        import pyarrow as pa

        kind = column.type
        if self.resolution in ("", kind.unit):
            return column
        try:
            zone = {"tz": kind.tz} if pa.types.is_timestamp(kind) else {}
            return column.cast((pa.timestamp if zone else pa.duration)(self.resolution, **zone))
        except pa.ArrowInvalid:
            return column

    def _settle(self, kind: str, resolution: str, row: int) -> None:
        if not self.kind:
            self.kind, self.resolution = kind, resolution
        elif (self.kind, self.resolution) != (kind, resolution):
            raise DataError(
                f"{self.where}: rows before {row} are {self.kind}s {self.resolution}, later ones {kind}s {resolution}"
            )

    def _settle_zone(self, zoned: bool, row: int) -> None:
        if self.zoned is None:
            self.zoned = zoned
        elif self.zoned != zoned:
            raise DataError(f"{self.where}: times with and without a time zone meet at row {row}")

    def _parse(self, column: Any, row: int) -> Any:
        """Text as numbers or ISO 8601 dates, in nanoseconds within the range of their calendar, else in
        microseconds.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        column = pc.utf8_trim_whitespace(column)
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
        if self.kind in ("", "count"):
            try:
                whole = column.cast(pa.int64())
                if self._counts(whole):
                    return whole
            except pa.ArrowInvalid:
                pass
        wanted = [pa.float64()] + [pa.timestamp(unit, zone) for unit in ("ns", "us") for zone in (None, "UTC")]
        if self.kind in ("number", "count"):
            wanted = [pa.float64()]
        elif self.kind:
            wanted = [pa.timestamp(self.resolution, "UTC" if self.zoned else None)]
        for kind in wanted:
            try:
                return column.cast(kind)
            except pa.ArrowInvalid:
                continue
        texts = column.to_pylist()
        for at, text in enumerate(texts):
            if not any(_casts(text, kind) for kind in wanted):
                hint = " (a time of day needs its date)" if _OF_DAY.fullmatch(text) else comma_hint(text)
                raise DataError(
                    f"{self.where}, row {row + at}: found {text!r}; wanted a number or an ISO 8601 date{hint}"
                )
        first = next(text for text in texts if text is not None)
        like = [kind for kind in wanted if _casts(first, kind)]
        unlike = (at for at, text in enumerate(texts) if not any(_casts(text, kind) for kind in like))
        other = next(unlike, None)
        if other is None:
            raise DataError(
                f"{self.where}: found nanoseconds, and dates before 1677 or after 2262; wanted one or the other"
            )
        raise DataError(
            f"{self.where}, row {row + other}: found {texts[other]!r} after {first!r}; wanted numbers alone, or dates "
            "that all have a zone or all have none"
        )


@dataclass(frozen=True)
class Clock:
    """From raw times to float64 in `unit`.

    Numbers (`resolution` empty) are used as they are. Ticks, and whole numbers too large for float64, count from tick
    `zero`, so that float64 stays exact, less `lag` if the origin lies between two ticks.
    """

    unit: str | None
    resolution: str = ""
    zero: int = 0
    lag: float = 0.0
    origin: str | None = None  # the date of time 0; None for numbers and durations

    def encode(self, raw: NDArray[Any]) -> NDArray[np.float64]:
        if not self.resolution:
            return raw if self.zero == 0 and raw.dtype == np.float64 else (raw - self.zero).astype(np.float64)
        assert self.unit is not None
        ticks_per_unit = seconds_per(self.unit) * _TICKS[self.resolution]
        times: NDArray[np.float64] = (raw - np.int64(self.zero)) / ticks_per_unit - self.lag
        return times


def settle_clock(
    reader: ClockReader, unit: str | None, earliest: int, origin: str | None = None, offset: int | None = None
) -> Clock:
    """The clock of a column: `earliest` raw tick is time 0 of dates and counts, unless `origin` fixes another instant
    or `offset` another number.
    """
    if origin is not None and reader.kind != "date":
        found = "durations" if reader.kind == "duration" else "numbers"
        raise DataError(f"{reader.where}: found {found}, but the training data's times are dates; give dates")
    reader.refuse_written_dates()
    if reader.kind in ("number", "count"):
        zero = int(earliest) if reader.kind == "count" and offset is None else offset or 0
        return Clock(unit, zero=zero)
    unit = unit or "s"
    seconds_per(unit)
    if reader.kind == "duration":
        return Clock(unit, reader.resolution)
    if origin is None:
        date = str(np.int64(earliest).astype(f"datetime64[{reader.resolution}]"))
        shortest = date.rstrip("0").rstrip(".") if "." in date else date
        return Clock(unit, reader.resolution, int(earliest), 0.0, shortest)
    instant = np.datetime64(origin)
    tick = instant.astype(f"datetime64[{reader.resolution}]")
    lag = float((instant - tick) / np.timedelta64(1, "ns")) * 1e-9 / seconds_per(unit)
    return Clock(unit, reader.resolution, int(tick.astype(np.int64)), lag, origin)


def count_offset(rows: Sequence[NDArray[Any]]) -> int:
    """The smallest of whole numbers that float64 would round, for times to count from it; 0 for other times."""
    if any(row.dtype.kind != "i" for row in rows):
        return 0
    ends = [(int(row.min()), int(row.max())) for row in rows if row.size]
    return min(low for low, _ in ends) if any(max(-low, high) > _EXACT for low, high in ends) else 0


def zone_of(table: Any, time: str) -> str | None:
    """The time zone of a table's dates ("UTC" for text with an offset); None for dates without one and for numbers."""
    opened = open_table(table)
    column = plain(next(opened.chunks((time,), ()))[time])
    reader = ClockReader(f"{opened.name}: column {time!r}")
    reader.read(column, 0)
    zone: str | None = getattr(column.type, "tz", None)
    return zone or ("UTC" if reader.zoned else None)


def read_dates(dates: Any, schema: Schema, name: str) -> NDArray[np.float64]:
    """Dates as times of a data set, read as the time column of its table was; `name` is their argument."""
    import pyarrow as pa

    found = np.asarray(dates)
    if found.dtype.kind == "M" and np.datetime_data(found.dtype)[0] not in _TICKS:
        found = found.astype("datetime64[s]")  # Arrow knows no hours and minutes
    try:
        column = pa.array(found)
    except (pa.ArrowException, TypeError, ValueError):
        raise DataError(f"{name}: found {dates!r}, wanted numbers or dates") from None
    if schema.origin is None:
        raise DataError(f"{name}: found {dates!r}, but the data set's times are numbers; wanted numbers")
    reader = ClockReader(name)
    raw = reader.read(column, 0)
    return settle_clock(reader, schema.unit, 0, schema.origin).encode(raw)


def encode_dates(dates: ArrayLike, unit: str, origin: str) -> NDArray[np.float64]:
    """Dates as times of a data set with this unit and origin, for questions such as "at these dates"."""
    stamps: NDArray[np.datetime64] = np.asarray(dates, dtype="datetime64")
    if np.isnat(stamps).any():
        raise DataError(f"dates: entry {int(np.argmax(np.isnat(stamps)))} is NaT")
    # Whole seconds and the rest: nanoseconds of 64 bits end in 2262.
    (seconds, rest), (since, lag) = _split_seconds(stamps), _split_seconds(np.asarray(np.datetime64(origin)))
    times: NDArray[np.float64] = ((seconds - since) + (rest - lag) * 1e-9) / seconds_per(unit)
    return times


def _split_seconds(stamps: NDArray[np.datetime64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Seconds since 1970 and nanoseconds after them."""
    seconds = stamps.astype("datetime64[s]")
    return seconds.astype(np.int64), (stamps - seconds).astype("timedelta64[ns]").astype(np.int64)


def _signed(column: Any) -> Any:
    """Unsigned whole numbers as int64, so that differences are exact; larger ones stay, to be rounded to float64."""
    import pyarrow as pa

    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        return column


def _casts(text: str | None, kind: Any) -> bool:
    import pyarrow as pa

    try:
        pa.scalar(text, pa.string()).cast(kind)
    except pa.ArrowInvalid:
        return False
    return True
