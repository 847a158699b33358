"""Forecast questions cut from plain series."""

import datetime as dt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tides.data import IrregularDataset, IrregularSeries, collate, forecast_windows, split
from tides.errors import DataError


def make(n: int = 3, steps: int = 10) -> IrregularDataset:
    return IrregularDataset(
        [IrregularSeries(np.arange(float(steps))[:, None], np.arange(float(steps)), id=i, label=0) for i in range(n)]
    )


def test_cut_in_two() -> None:
    window = forecast_windows(make(), cut=0.5)[0]
    assert window.times.tolist() == [0, 1, 2, 3, 4]
    assert window.query_times.tolist() == [5, 6, 7, 8, 9]
    assert window.target.ravel().tolist() == [5, 6, 7, 8, 9]
    assert window.label is None
    assert forecast_windows(make(), cut=0.5, horizon=2)[0].query_times.tolist() == [5, 6]


def test_sliding_windows() -> None:
    data = forecast_windows(make(1), history=3, horizon=2, stride=2)
    # The cut at 9 would leave nothing to ask.
    assert [window.times.tolist() for window in data] == [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7]]
    assert data[0].query_times.tolist() == [4, 5]
    weighed = IrregularDataset([make(1)[0].replace(weight=0.5)])
    assert forecast_windows(weighed, history=3, horizon=2).weights.tolist() == [0.5] * 3  # type: ignore[union-attr]


@pytest.mark.parametrize("first", [0, -7, 53])
def test_windows_on_a_grid_of_tenths_are_those_on_a_grid_of_ones(first: int) -> None:
    """0.1 + 0.7 is before 0.8, and 3 · 0.1 after 0.3."""
    ones = IrregularSeries(np.arange(60.0)[:, None], np.arange(first, first + 60.0))
    tenths = ones.replace(times=np.arange(first, first + 60) / 10)
    for history, horizon in ((10, 5), (3, 3), (7, 1)):
        wanted = forecast_windows(IrregularDataset([ones]), history=history, horizon=horizon)
        found = forecast_windows(IrregularDataset([tenths]), history=history / 10, horizon=horizon / 10)
        assert len(found) == len(wanted)
        for ours, theirs in zip(found, wanted, strict=True):
            assert ours.values.ravel().tolist() == theirs.values.ravel().tolist()
            assert ours.target.ravel().tolist() == theirs.target.ravel().tolist()


def test_lengths_of_time_have_units() -> None:
    data = IrregularDataset(list(make(1)), unit="h")
    wanted = forecast_windows(data, history=3, horizon=2, stride=1)
    found = forecast_windows(data, history="3h", horizon="120min", stride=dt.timedelta(hours=1))
    assert [window.times.tolist() for window in found] == [window.times.tolist() for window in wanted]
    assert [window.query_times.tolist() for window in found] == [window.query_times.tolist() for window in wanted]
    with pytest.raises(DataError, match="history: found '3h', but this time axis has no unit"):
        forecast_windows(make(), history="3h", horizon=2)
    with pytest.raises(DataError, match="horizon='0h'; wanted a time span above 0"):
        forecast_windows(data, history=3, horizon="0h")


def test_windows_of_one_series_stay_on_one_side() -> None:
    data = forecast_windows(make(10), history=3, horizon=2)
    train, test = split(data, (0.5, 0.5))
    assert not set(train.ids) & set(test.ids)
    assert collate(train).targets.ndim == 3


@given(st.integers(0, 500), st.floats(0.1, 0.9))
def test_nothing_is_seen_twice_and_no_answer_is_given_away(seed: int, cut: float) -> None:
    rng = np.random.default_rng(seed)
    series = [
        IrregularSeries(np.where(rng.random((8, 2)) < 0.5, np.nan, 1.0), np.sort(rng.random(8)), id=i) for i in range(4)
    ]
    for window in forecast_windows(IrregularDataset(series), cut=cut):
        whole = series[window.id]
        assert window.times[-1] < window.query_times[0]
        np.testing.assert_array_equal(np.append(window.times, window.query_times), whole.times)
        assert window.observed.any()
        assert window.target_observed.any()


@pytest.mark.parametrize(
    "arguments", [{}, {"cut": 0.5, "history": 1.0}, {"cut": 1.5}, {"history": 1.0}, {"history": -1.0, "horizon": 1.0}]
)
def test_refusals(arguments: dict[str, float]) -> None:
    with pytest.raises(DataError):
        forecast_windows(make(), **arguments)
