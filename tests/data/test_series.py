"""One series: what it accepts, what it fills in, what it refuses."""

import numpy as np
import pytest

from tides.data import IrregularSeries
from tides.errors import DataError, ShapeError


def test_nan_is_not_observed_and_times_become_float64() -> None:
    series = IrregularSeries([[1, np.nan], [2, 3]], [0, 2], label=1)
    np.testing.assert_array_equal(series.observed, [[True, False], [True, True]])
    assert series.times.dtype == np.float64
    np.testing.assert_array_equal(series.gaps, [2.0])


def test_float32_values_stay_float32() -> None:
    assert IrregularSeries(np.ones((2, 1), np.float32), [0, 1]).values.dtype == np.float32


def test_values_under_a_mask_may_be_anything() -> None:
    series = IrregularSeries([[np.inf], [1.0]], [0, 1], np.array([[False], [True]]))
    assert series.observed.sum() == 1


def test_entries_of_a_masked_array_are_missing() -> None:
    series = IrregularSeries(np.ma.array([[1], [-999]], mask=[[False], [True]]), np.ma.array([0, 1]))
    np.testing.assert_array_equal(series.observed, [[True], [False]])
    with pytest.raises(DataError, match="times: row 1 is nan"):
        IrregularSeries([[1.0], [2.0]], np.ma.array([0, 1], mask=[False, True]))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"times": [1, 0]}, DataError, r"series 'p7'.*row 1 is 0.0, earlier than 1.0"),
        ({"times": [0, np.nan]}, DataError, "row 1 is nan"),
        ({"times": [0, 1, 2]}, ShapeError, "3 times for 2 rows"),
        ({"times": ["a", "b"]}, DataError, "not numbers"),
        ({"times": np.array(["2024-01-01", "2024-01-02"], "datetime64[D]")}, DataError, r"times are datetime64\[D\]"),
        ({"times": np.array([0, 5], "timedelta64[ms]")}, DataError, r"times are timedelta64\[ms\]"),
        ({"values": [[1.0], [np.inf]]}, DataError, "row 1, channel 0 are inf"),
        ({"values": [[1j], [2.0]]}, DataError, "values are not numbers: they are complex"),
        ({"values": [1.0, 2.0]}, ShapeError, r"shape \(2,\)"),
        ({"observed": np.ones((2, 2), bool)}, ShapeError, "wanted bool"),
        ({"observed": np.ones((2, 1))}, ShapeError, "float64"),
        ({"query_times": [3.0]}, DataError, "both query_times and target"),
        ({"query_times": [3.0], "target": [[1.0]], "label": 1}, DataError, "carries one of them"),
        ({"query_times": [3.0], "target": [[1.0], [2.0]]}, ShapeError, r"wanted \(1, c\)"),
        ({"start": 0.5}, DataError, "start 0.5 lies after"),
        ({"start": -np.inf}, DataError, "series 'p7': start is -inf; wanted a finite number"),
        ({"start": "a"}, DataError, "start is 'a'; wanted a finite number"),
        ({"static": [[1.0, 2.0]]}, ShapeError, r"series 'p7': static features have shape \(1, 2\)"),
        ({"static": ["male"]}, DataError, "series 'p7': static features are not numbers"),
    ],
)
def test_errors_name_the_series_and_the_row(change: dict, error: type[Exception], words: str) -> None:
    good = {"values": [[1.0], [2.0]], "times": [0.0, 1.0], "id": "p7"}
    with pytest.raises(error, match=words):
        IrregularSeries(**(good | change))
