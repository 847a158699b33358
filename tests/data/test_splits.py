"""Splits share nothing: no series, no group, no future."""

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tides.data import IrregularDataset, IrregularSeries, folds, forecast_windows, from_wide, split, temporal_split
from tides.errors import ConfigError, DataError


def make(n: int, groups: list[object] | None = None, classes: int | None = 2) -> IrregularDataset:
    return IrregularDataset(
        [
            IrregularSeries(
                [[0.0], [1.0]],
                [float(i), i + 1.5],
                label=None if classes is None else i % classes,
                group=None if groups is None else groups[i],
                id=i,
            )
            for i in range(n)
        ],
        class_names=None if classes is None else [str(k) for k in range(classes)],
    )


@given(st.integers(3, 60), st.integers(0, 99), st.booleans())
def test_parts_are_disjoint_and_complete(n: int, seed: int, stratify: bool) -> None:
    parts = split(make(n), seed=seed, stratify=stratify) if n >= 20 else split(make(n), (0.5, 0.5), seed=seed)
    assert sorted(i for part in parts for i in part.ids) == list(range(n))


@given(st.lists(st.integers(0, 9), min_size=30, max_size=60), st.integers(0, 99))
def test_groups_stay_together(groups: list[int], seed: int) -> None:
    data = make(len(groups), list(groups))
    if len(set(groups)) < 3:
        return
    parts = split(data, seed=seed)
    found = [set(part.groups) for part in parts]
    for i, one in enumerate(found):
        for other in found[i + 1 :]:
            assert not one & other
    assert sorted(i for part in parts for i in part.ids) == list(range(len(groups)))
    by_argument = split(make(len(groups)), seed=seed, groups=list(groups))
    assert [part.ids for part in by_argument] == [part.ids for part in parts]


def test_sizes_and_class_shares() -> None:
    rng = np.random.default_rng(0)
    data = IrregularDataset(
        [IrregularSeries([[0.0]], [0.0], label=int(k), id=i) for i, k in enumerate(rng.random(200) < 0.1)],
        class_names=["common", "rare"],
    )
    rare = int(data.labels.sum())
    parts = split(data, (0.6, 0.2, 0.2), seed=1)
    for part, share in zip(parts, (0.6, 0.2, 0.2), strict=True):
        assert abs(len(part) - 200 * share) <= 2
        assert abs(int(part.labels.sum()) - rare * share) <= 1
    assert parts[0].ids == split(data, (0.6, 0.2, 0.2), seed=1)[0].ids
    assert parts[0].ids != split(data, (0.6, 0.2, 0.2), seed=2)[0].ids


def test_labels_may_be_any_whole_numbers() -> None:
    labels = [-7, 10**12] * 20
    data = IrregularDataset([IrregularSeries(np.zeros((2, 1)), [0, 1], label=label) for label in labels])
    for part in split(data, (0.5, 0.5)):
        assert part.labels is not None
        assert np.unique(part.labels, return_counts=True)[1].tolist() == [10, 10]


def test_folds_hold_every_series_out_once() -> None:
    data = make(23, [i // 2 for i in range(23)])
    held = Counter()
    for train, test in folds(data, 4):
        held.update(test.ids)
        assert not set(train.groups) & set(test.groups)
        assert len(train) + len(test) == 23
    assert set(held.values()) == {1}
    assert len(held) == 23


def test_temporal_parts_never_look_ahead() -> None:
    past, present, future = temporal_split(make(20), at=[8.0, 14.0])
    assert max(one.times[-1] for one in past) < 8.0
    assert min(one.times[0] for one in present) >= 8.0
    assert max(one.times[-1] for one in present) < 14.0
    assert min(one.times[0] for one in future) >= 14.0
    assert past.ids == list(range(7))
    assert 7 not in [*past.ids, *present.ids]


def test_temporal_questions_are_not_answered_from_the_future() -> None:
    data = IrregularDataset([IrregularSeries(np.zeros((9, 1)), i + np.arange(9.0), id=i) for i in range(30)])
    past, future = temporal_split(forecast_windows(data, cut=0.5), at=[20.0])
    assert max(one.query_times[-1] for one in past) < 20.0
    assert min(one.times[0] for one in future) >= 20.0
    assert (len(past), len(future)) == (12, 10)


def test_temporal_groups_keep_their_earliest_part() -> None:
    past, future = temporal_split(make(20, [i % 15 for i in range(20)]), at=[12.0])
    assert future.ids == [12, 13, 14]
    assert not set(past.groups) & set(future.groups)


def test_temporal_cut() -> None:
    data = IrregularDataset([IrregularSeries([[0.0], [1.0], [2.0]], [0, 1, 2], id="s")])
    past, future = temporal_split(data, at=[1.0], straddle="cut")
    assert past[0].times.tolist() == [0.0]
    assert future[0].times.tolist() == [1.0, 2.0]
    with pytest.raises(DataError, match="same label"):
        temporal_split(make(3), at=[1.0], straddle="cut")


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_temporal_parts_by_date(zone: str | None) -> None:
    """Midnight in Berlin is 22:00 of the day before in UTC."""
    when = pd.Series(pd.date_range("2031-05-01", periods=4, freq="D", tz=zone))
    frame = pd.DataFrame({"i": range(4), "t": when, "x": 0.0})
    data = from_wide(frame, id="i", time="t", unit="h")
    edge = when[2]
    for at in ([edge], [edge.isoformat()], [edge.to_pydatetime()], pd.DatetimeIndex([edge]), [48.0]):
        assert [part.ids for part in temporal_split(data, at=at)] == [[0, 1], [2, 3]]
    days = [np.datetime64("2031-05-02"), np.datetime64("2031-05-03T00:00")]
    wanted = [[0], [1], [2, 3]] if zone is None else [[0, 1], [2], [3]]
    assert [part.ids for part in temporal_split(data, at=days)] == wanted
    for at, words in (
        (["2031-05-02", "soon"], "at, row 1: found 'soon'; wanted a number or an ISO 8601 date"),
        (["2031-05-02", "2031-05-01"], "at: found .*, wanted increasing times"),
        ("2031-05-02", "at: found '2031-05-02', wanted a list"),
        ([pd.Timedelta(days=2)], "at: found durations"),
        ([object()], "at: found .*, wanted numbers or dates"),
    ):
        with pytest.raises(DataError, match=words):
            temporal_split(data, at=at)
    with pytest.raises(DataError, match=r"at: found \['2031-05-02'\], but the data set's times are numbers"):
        temporal_split(make(3), at=["2031-05-02"])


@pytest.mark.parametrize("straddle", ["drop", "cut"])
def test_a_series_that_begins_at_a_date_is_behind_it(straddle: Any) -> None:
    """The clock counts from a fraction of a second, so that no midnight is a round number."""
    days = pd.date_range("2021-01-02", periods=120, unit="ns")
    times = days.insert(0, pd.Timestamp("2021-01-01 00:07:13.123456789"))
    twice = pd.concat([pd.DataFrame({"id": range(121), "t": times + pd.Timedelta(h, "h"), "x": 1.0}) for h in (0, 7)])
    data = from_wide(twice, id="id", time="t", unit="h")
    for first in range(1, 5):
        at = [day.to_pydatetime() for day in days[first::4]]
        parts = temporal_split(data, at, straddle=straddle)
        assert [len(part) for part in parts[:-1]] == [first + 1, *[4] * (len(at) - 1)]


def test_refusals() -> None:
    with pytest.raises(DataError, match="add up to 1"):
        split(make(10), (0.5, 0.6))
    with pytest.raises(DataError, match="needs class labels"):
        split(make(10, classes=None), stratify=True)
    with pytest.raises(DataError, match="would be empty"):
        split(make(10, ["same"] * 10))
    with pytest.raises(
        DataError, match="part 1 would be empty: 10 series or groups for 2 parts, 10 classes in proport"
    ):
        split(make(10, classes=10), (0.8, 0.2))
    with pytest.raises(ConfigError, match="seed=-1; wanted a whole number"):
        split(make(10), seed=-1)
    with pytest.raises(DataError, match="3 groups for 10"):
        split(make(10), groups=[1, 2, 3])
    with pytest.raises(DataError, match="increasing"):
        temporal_split(make(3), at=[2.0, 1.0])
    with pytest.raises(DataError, match="at least 2"):
        folds(make(3), 1)
