"""Dates written as numbers, such as 20310501: the day after 20310131 is 70 further, so they do not count time."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_YEARS = (1900, 2100)
# How many digits stand after the year, month and day: none, hhmm, hhmmss.
_CLOCKS = (0, 4, 6)


def are_written_dates(numbers: NDArray[Any]) -> bool:
    """Whether every number reads as YYYYMMDD, YYYYMMDDhhmm or YYYYMMDDhhmmss, all in the same way."""
    if len(numbers) == 0:
        return False
    # The first one settles it for nearly every table.
    return any(_read_as(numbers[:1], digits) and _read_as(numbers, digits) for digits in _CLOCKS)


def _read_as(numbers: NDArray[Any], digits: int) -> bool:
    days, clock = np.divmod(numbers, 10**digits)
    months, day = np.divmod(days, 100)
    year, month = np.divmod(months, 100)
    hours = clock // 10 ** (digits - 2) if digits else clock
    minutes = clock // 10 ** (digits - 4) % 100 if digits else clock
    seconds = clock % 100 if digits == 6 else np.zeros_like(clock)
    inside = (
        (year >= _YEARS[0])
        & (year <= _YEARS[1])
        & (month >= 1)
        & (month <= 12)
        & (day >= 1)
        & (day <= 31)
        & (hours < 24)
        & (minutes < 60)
        & (seconds < 60)
        & (numbers == np.floor(numbers))
    )
    return bool(inside.all())
