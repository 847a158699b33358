"""Times of a stream as float64 in the model's unit: numbers as they are, dates since the model's origin."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tides.errors import DataError
from tides.units import as_float, duration_in, seconds_per

_NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_BEYOND_MICROSECONDS = re.compile(r"[.,]\d{6}(\d{1,3})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class StreamClock:
    """Reads times as the training data's time column was read.

    Numbers count in the model's unit, and durations are converted to it. Dates (`datetime`, `numpy.datetime64`, ISO
    8601 text) become the time since `origin`, the date of time 0 in training (1970 if the model knows none). A model
    that was trained on dates takes no numbers, since their unit and origin would be unknown. A date without a zone is
    UTC. Dates are subtracted as whole nanoseconds, and numbers beyond 2⁵³ count from the `offset` of the training data,
    so nothing is lost to rounding.
    """

    def __init__(self, unit: str | None = None, origin: str | None = None, offset: int = 0) -> None:
        self.unit, self.origin, self.offset = unit, origin, offset
        self._zero = 0 if origin is None else _nanoseconds(_read_origin(origin))

    def encode(self, t: Any) -> float:
        """One time as a number; raises `DataError` for anything else."""
        if (isinstance(t, np.generic) and t.dtype.kind in "fiu") or (hasattr(t, "detach") and t.ndim == 0):
            t = t.item()
        if isinstance(t, (float, int)) and not isinstance(t, bool):
            self._check_numbers(t)
            return as_float(t - self.offset)
        if isinstance(t, (str, datetime, date, np.datetime64)):
            if self.unit is None:
                raise DataError(f"t: found {t!r}, but the model's time has no unit; give numbers")
            return (_nanoseconds(t) - self._zero) / (seconds_per(self.unit) * 1e9)
        if isinstance(t, (timedelta, np.timedelta64)):
            return self._encode_duration(t)
        raise DataError(f"t: found {t!r}, wanted a number, a date or ISO 8601 text")

    def _encode_duration(self, t: Any) -> float:
        """A duration, which counts as a time only if the model's times have no date."""
        passed = t.to_timedelta64() if hasattr(t, "to_timedelta64") else np.timedelta64(t)
        if self.unit is None or self.origin is not None or np.isnat(passed):
            known = "are dates" if self.origin is not None else "have no unit" if self.unit is None else "are durations"
            raise DataError(f"t: found {t!r}, but the model's times {known}")
        return float(passed.astype("timedelta64[ns]").astype(np.int64)) / (seconds_per(self.unit) * 1e9)

    def encode_all(self, times: Any) -> NDArray[np.float64]:
        """A sequence of times (n,)."""
        if hasattr(times, "to_numpy"):
            times = times.to_numpy()
        elif hasattr(times, "detach"):  # a tensor
            times = times.numpy(force=True)
        if np.ma.is_masked(times):
            raise DataError("t: found masked times, wanted a time for every observation")
        if isinstance(times, np.ndarray) and times.dtype.kind in "fiu":
            self._check_numbers(*times.flat[:1])
            if self.offset and times.dtype.kind in "iu" and times.dtype != np.int64:
                # Whole numbers of Python may be as large as the offset, and negative where they come before it.
                times = times.astype(object)
            return np.atleast_1d((times - self.offset if self.offset else times).astype(np.float64))
        if (
            isinstance(times, np.ndarray)
            and times.dtype.kind == "M"
            and (found := self._encode_dates(times)) is not None
        ):
            return found
        # An array of dates as objects would be one of whole numbers.
        single = isinstance(times, (str, date, np.datetime64)) or np.ndim(times) == 0
        return np.array([self.encode(t) for t in ([times] if single else times)])

    def _encode_dates(self, times: NDArray[np.datetime64]) -> NDArray[np.float64] | None:
        """An array of dates at once, as each by itself; None where 64 bits are too few, or one of them is no date."""
        base, multiple = np.datetime_data(times.dtype)
        if self.unit is None or base not in _NANOSECONDS or times.size == 0 or np.isnat(times).any():
            return None
        step = multiple * _NANOSECONDS[base]
        counts, (whole, rest) = np.atleast_1d(times).astype(np.int64), divmod(self._zero, step)
        farthest = max(abs(int(counts.min()) - whole), abs(int(counts.max()) - whole)) + 1
        if max(farthest * step, abs(whole)) >= 2**63:
            return None
        return ((counts - whole) * step - rest) / (seconds_per(self.unit) * 1e9)

    def decode(self, time: float) -> str:
        """A time for messages: the date if the model knows the date of time 0, else the number."""
        if self.origin is None or self.unit is None or not np.isfinite(time):
            return str(self.offset + round(time)) if self.offset and np.isfinite(time) else f"{time:.15g}"
        nanoseconds = self._zero + round(time * seconds_per(self.unit) * 1e9)
        if abs(nanoseconds) < 2**63:
            return str(np.datetime64(nanoseconds, "ns")).rstrip("0").rstrip(".")
        return f"{time:.15g} {self.unit} after {self.origin}"

    def duration(self, value: Any, name: str) -> float:
        """A duration in the model's unit, from a number, "6h" or a timedelta."""
        return duration_in(value, self.unit, name)

    def _check_numbers(self, *found: float) -> None:
        if found and self.origin is not None:
            raise DataError(f"t: found {found[0]:.15g}, but the model was trained on dates; give dates")


def _read_origin(origin: Any) -> np.datetime64:
    try:
        moment = np.datetime64(origin)
    except (TypeError, ValueError):
        moment = np.datetime64("NaT")
    if np.isnat(moment):
        raise DataError(f"origin: found {origin!r}, wanted an ISO 8601 date")
    return moment


def _nanoseconds(t: str | date | np.datetime64) -> int:
    """Whole nanoseconds since 1970, UTC."""
    if isinstance(t, np.datetime64):
        if np.isnat(t):
            raise DataError("t: found NaT, wanted a date")
        # Not by nanoseconds of 64 bits, which end in 2262.
        base, multiple = np.datetime_data(t.dtype)
        if base in _NANOSECONDS:
            return int(t.astype(np.int64)) * multiple * _NANOSECONDS[base]
        return int(t.astype("datetime64[s]").astype(np.int64)) * 10**9
    if isinstance(t, str):
        try:
            moment = datetime.fromisoformat(t.strip())
        except ValueError:
            raise DataError(f"t: found {t!r}, wanted a number or an ISO 8601 date") from None
    elif isinstance(t, datetime):
        if t != t:
            raise DataError("t: found NaT, wanted a date")
        moment = t
    else:
        moment = datetime(t.year, t.month, t.day)
    passed = (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment) - _EPOCH
    # What lies beyond microseconds: pandas knows it, and of text `fromisoformat` leaves it out.
    extra = int(getattr(t, "nanosecond", 0))
    if isinstance(t, str) and (fraction := _BEYOND_MICROSECONDS.search(t)):
        extra = int(fraction[1].ljust(3, "0"))
    return ((passed.days * 86400 + passed.seconds) * 10**6 + passed.microseconds) * 1000 + extra
