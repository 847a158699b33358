"""Durations in the unit of a time axis."""

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from tides.errors import DataError
from tides.units import duration_in


@pytest.mark.parametrize(
    ("value", "unit", "wanted"),
    [
        (6, None, 6.0),
        ("6", None, 6.0),
        ("6h", "h", 6.0),
        ("+90 min", "h", 1.5),
        ("+1.5 days", "h", 36.0),
        (timedelta(hours=1), "min", 60.0),
        (np.timedelta64(3, "h"), "d", 0.125),
        (0, "s", 0.0),
    ],
)
def test_durations(value: Any, unit: str | None, wanted: float) -> None:
    assert duration_in(value, unit) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        ("soon", "h", "at: found 'soon'"),
        ("6 fortnights", "h", "unit='fortnights'"),
        ("6h", None, "has no unit"),
        ("6h", 3600, "unit=3600"),
        ("1e999", None, "finite"),
        ("1e999h", "h", "finite"),
        (-1, "h", "≥ 0"),
        (float("nan"), "h", "finite"),
        (timedelta(hours=-1), "h", "≥ 0"),
        ([], "h", "wanted a number"),
    ],
)
def test_what_is_no_duration(value: Any, unit: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        duration_in(value, unit, "at")
