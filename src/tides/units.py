"""Units of time by name, and durations such as "6h" as numbers of a unit."""

import math
import re
from datetime import timedelta
from typing import Any

from tides.errors import DataError

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_ALIASES = {"µs": "us", "sec": "s", "second": "s", "minute": "min", "hour": "h", "day": "d", "week": "w"}
_DURATION = re.compile(r"\s*\+?\s*(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+)\s*([a-zµ]*)\s*", re.IGNORECASE)


def seconds_per(unit: str) -> float:
    """Seconds in one unit of time: "ns", "us", "ms", "s", "min", "h", "d", "w" (long names work too)."""
    name = str(unit).strip().lower()
    for candidate in (name, name.rstrip("s") or name):
        known = _ALIASES.get(candidate, candidate)
        if known in _SECONDS:
            return _SECONDS[known]
    raise DataError(f"unit={unit!r}: dates and durations need a unit of time: {', '.join(_SECONDS)}")


def duration_in(value: Any, unit: str | None, name: str = "duration") -> float:
    """A duration ≥ 0 as a number of `unit`: numbers are taken as they are; "6h", "+90 min" and timedeltas convert."""
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        if match is None:
            raise DataError(f"{name}: found {value!r}, wanted a number or a duration such as '6h' or '+90min'")
        found = float(match[1])
        if match[2]:
            found = found * seconds_per(match[2]) / _unit_seconds(unit, value, name)
    elif isinstance(value, timedelta):
        found = value.total_seconds() / _unit_seconds(unit, value, name)
    elif type(value).__name__ == "timedelta64":
        found = int(value.astype("timedelta64[ns]").astype("int64")) * 1e-9 / _unit_seconds(unit, value, name)
    else:
        try:
            found = as_float(value)
        except (TypeError, ValueError):
            raise DataError(f"{name}: found {value!r}, wanted a number or a duration such as '6h'") from None
    if not 0 <= found < float("inf"):
        raise DataError(f"{name}: found {value!r}, wanted a finite duration ≥ 0")
    return found


def as_float(value: Any) -> float:
    """A number in double precision; whole numbers that are too large for it are infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _unit_seconds(unit: str | None, value: Any, name: str) -> float:
    if unit is None:
        raise DataError(
            f"{name}: found {value!r}, but this time axis has no unit; give a number, or say the unit (unit=)"
        )
    return seconds_per(unit)
