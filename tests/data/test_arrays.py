"""Arrays as aeon, PyPOTS and ragged lists give them."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from tides.data import collate, from_arrays
from tides.errors import DataError

CASES = np.arange(24.0).reshape(3, 2, 4)  # cases, channels, length


def test_aeon_numpy3d() -> None:
    data = from_arrays(CASES, y=np.array(["b", "a", "b"]))
    np.testing.assert_array_equal(data[1].values, CASES[1].T)
    np.testing.assert_array_equal(data[1].times, [0, 1, 2, 3])
    assert data.unit == "step"
    assert data.class_names == ("a", "b")
    assert data.labels.tolist() == [1, 0, 1]


def test_aeon_list_of_unequal_lengths() -> None:
    data = from_arrays([CASES[0], CASES[1][:, :2]], times=[[0.0, 1, 5, 9], [2.0, 2.5]], unit="s")
    assert data.lengths.tolist() == [4, 2]
    np.testing.assert_array_equal(data[1].times, [2.0, 2.5])
    assert collate(data).values.shape == (2, 4, 2)


def test_pypots_dictionary() -> None:
    x = np.where(np.arange(24.0).reshape(3, 4, 2) % 5 == 0, np.nan, 1.0)
    data = from_arrays({"X": x, "y": np.array([0, 1, 1])})
    np.testing.assert_array_equal(data[2].values, x[2])
    np.testing.assert_array_equal(data[0].observed, ~np.isnan(x[0]))
    assert data.labels.tolist() == [0, 1, 1]


def test_univariate_time_first_and_shared_times() -> None:
    assert from_arrays(np.zeros((5, 7)))[0].values.shape == (7, 1)
    data = from_arrays(CASES.transpose(0, 2, 1), times=[0.0, 0.5, 4.0, 4.5], layout="time-first")
    np.testing.assert_array_equal(data[2].values, CASES[2].T)
    np.testing.assert_array_equal(data[2].times, [0.0, 0.5, 4.0, 4.5])
    later = pd.Series([0.0, 0.5, 4.0, 4.5], index=[5, 6, 7, 8])
    np.testing.assert_array_equal(from_arrays(CASES, times=later)[2].times, later)
    assert from_arrays([[1.0, 2.0], [3.0]])[1].values.shape == (1, 1)


def test_entries_of_masked_arrays_are_missing() -> None:
    mask = np.zeros(CASES.shape, np.bool_)
    mask[1, 0, 2] = True
    whole = np.ma.array(np.zeros(CASES.shape, np.int64), mask=mask)
    for data in (from_arrays(np.ma.array(CASES, mask=mask)), from_arrays(whole), from_arrays(list(whole))):
        assert not data[1].observed[2, 0]
        assert sum(int(one.observed.sum()) for one in data) == CASES.size - np.isnan(CASES).sum() - 1


def test_weights_and_groups_of_cases() -> None:
    data = from_arrays(CASES, weights=np.arange(3.0), groups=["g", "g", "h"])
    assert data.weights.tolist() == [0.0, 1.0, 2.0]  # type: ignore[union-attr]
    assert data.groups == ["g", "g", "h"]
    shuffled = from_arrays(
        CASES,
        weights=pd.Series([0.0, 1.0, 2.0], index=[2, 0, 1]),
        groups=pd.Series(["g", "g", "h"], index=[7, 1, 0]),  # type: ignore[arg-type]
    )
    assert shuffled.weights.tolist() == data.weights.tolist()  # type: ignore[union-attr]
    assert shuffled.groups == data.groups


def test_numbers_as_labels() -> None:
    assert from_arrays(CASES, y=[0.1, 0.2, 0.3]).labels.tolist() == [0.1, 0.2, 0.3]
    assert from_arrays(CASES, y=np.ones((3, 2))).labels.shape == (3, 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"X": np.zeros(3)}, r"shape \(3,\)"),
        ({"X": []}, "no case"),
        ({"X": {"x": 1}}, "wanted 'X'"),
        ({"X": [np.zeros((4, 2)), np.zeros((3, 2))]}, "did you mean layout='time-first'"),
        ({"X": CASES, "y": [1, 2]}, "2 labels; X has 3"),
        ({"X": CASES, "y": [0.5, np.nan, 1.0]}, r"y\[1\] is not finite"),
        ({"X": CASES, "times": np.zeros((3, 5))}, "times of case 0"),
        ({"X": CASES, "times": [[0.0] * 4]}, "times for 1 cases"),
        ({"X": CASES, "times": [3.0, 2.0, 1.0, 0.0]}, "earlier than"),
        ({"X": CASES, "times": np.arange(4).astype("datetime64[s]")}, "times are datetime64"),
        ({"X": CASES, "times": 3.0}, "times: found 3.0, wanted one vector"),
        ({"X": CASES, "y": 1}, "y: found 1, wanted one label per case"),
        ({"X": [["a", "b"]]}, "does not hold numbers"),
        ({"X": CASES * 1j}, "X does not hold numbers: they are complex"),
        ({"X": CASES, "layout": "columns"}, "layout='columns'"),
        ({"X": np.full((1, 1, 2), np.inf)}, "count as observed"),
        ({"X": CASES, "groups": ["g"]}, "1 groups for 3 cases"),
        ({"X": CASES, "weights": [1.0]}, "1 weights for 3 cases"),
        ({"X": CASES, "weights": [1.0, -2.0, 1.0]}, "series 1: its weight is -2.0"),
    ],
)
def test_errors(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        from_arrays(**arguments)
