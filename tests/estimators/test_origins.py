"""Forecast questions: what is known at an origin, what is asked after it, and nothing that lies beyond."""

import numpy as np
import pytest
import torch

from tests.estimators.series import relaxing
from tides.data import IrregularDataset, IrregularSeries
from tides.estimators.origins import Origins, join_static

TIMES = np.array([0.0, 1.0, 1.0, 2.0, 10.0])


def numbered(observed: list[bool] | None = None, *, length: int = 5) -> IrregularSeries:
    """A labelled series whose values are its row numbers; the second channel is no target."""
    times = TIMES if length == 5 else np.arange(float(length))
    rows = np.arange(float(length))
    seen = np.ones((length, 2), bool)
    seen[:, 0] = True if observed is None else observed
    return IrregularSeries(np.stack([rows, -rows], axis=1), times, seen, label=1, id="one")


def test_origins_leave_something_to_ask_for_within_the_horizon() -> None:
    """Rows of one time are known together; the horizon is inclusive; after t = 2 nothing comes for eight hours."""
    assert Origins(1.0, 1).cuts(numbered()).tolist() == [1, 3]
    assert Origins(0.5, 1).cuts(numbered()).tolist() == []
    assert Origins(8.0, 1).cuts(numbered()).tolist() == [1, 3, 4]
    # A row whose target is missing is no answer, though the other channel is there.
    assert Origins(1.0, 1).cuts(numbered([True, True, True, False, True])).tolist() == [1]
    assert Origins(1.0, 2).cuts(numbered([True, True, True, False, True])).tolist() == [1, 3]
    # Nothing at all was observed up to the first time.
    blank = numbered().replace(observed=np.arange(5)[:, None].repeat(2, axis=1) > 0)
    assert Origins(1.0, 1).cuts(blank).tolist() == [3]


def test_a_horizon_of_one_step_reaches_the_next_one_on_a_grid_of_tenths() -> None:
    rows = numbered(length=60).replace(times=np.arange(60) / 10)
    origins = Origins(0.1, 1)
    assert origins.cuts(rows).tolist() == list(range(1, 60))
    for cut in range(59):
        question = origins.question(rows, lambda n, cut=cut: cut if n == 59 else 0)
        assert question.target.ravel().tolist() == [cut + 1]


@pytest.mark.parametrize("smoothing", [False, True])
def test_a_question_knows_the_past_and_asks_for_the_horizon(smoothing: bool) -> None:
    rng = np.random.default_rng(0)
    one = relaxing(1, points=60)[0]
    one = one.replace(values=np.hstack([one.values, one.values + 1]), observed=rng.random((60, 2)) < 0.7)
    origins = Origins(2.0, 1, smoothing)
    for _ in range(50):
        drawn: list[int] = []

        def draw(n: int, drawn: list[int] = drawn) -> int:
            drawn.append(int(rng.integers(n)))
            return drawn[-1]

        asked = origins.question(one, draw)
        assert asked.query_times is not None
        rows, past = np.searchsorted(one.times, asked.query_times), np.searchsorted(one.times, asked.times)
        np.testing.assert_array_equal(asked.target, one.values[rows, :1])
        np.testing.assert_array_equal(asked.target_observed, one.observed[rows, :1])
        np.testing.assert_array_equal(asked.values, one.values[past])
        np.testing.assert_array_equal(asked.observed, one.observed[past])
        known = origins.cuts(one)[drawn[0]]
        hidden, ahead = rows[rows < known], rows[rows >= known]
        np.testing.assert_array_equal(np.sort([*past, *hidden]), np.arange(known))
        assert len(hidden) == (max(1, known // 4) if smoothing and known > 1 else 0)
        within = (one.times > one.times[known - 1]) & (one.times <= one.times[known - 1] + 2.0) & one.observed[:, 0]
        np.testing.assert_array_equal(ahead, np.flatnonzero(within))


def test_a_quarter_of_the_past_is_hidden_and_asked_for() -> None:
    """With the last possible origin of 21 rows, 20 are known: 5 of them are hidden, and one row lies ahead."""
    one = numbered(length=21)
    asked = Origins(1.0, 1, smoothing=True).question(one, lambda n: n - 1)
    assert len(asked) == 15
    assert asked.query_times is not None
    assert len(asked.query_times) == 6
    assert sorted([*asked.times, *asked.query_times]) == list(range(21))
    # A single known row is never hidden.
    first = Origins(1.0, 1, smoothing=True).question(one, lambda n: 0)
    assert first.times.tolist() == [0.0]


def test_no_more_than_32_times_are_asked_at_once() -> None:
    asked = Origins(1000.0, 1).question(numbered(length=100), lambda n: 0)
    assert asked.query_times is not None
    assert asked.query_times.tolist() == list(range(1, 33))


def test_fixed_questions_repeat_and_fresh_ones_follow_torch() -> None:
    data, origins = relaxing(3), Origins(3.0, 1)
    first, again, other = (origins.fixed(data, 2, seed) for seed in (0, 0, 1))
    assert [one.group for one in first] == [0, 0, 1, 1, 2, 2]
    assert [one.id for one in first] == [0, 0, 1, 1, 2, 2]
    for one, two in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.query_times, two.query_times)
    assert any(len(one) != len(two) for one, two in zip(first, other, strict=True))
    lengths = []
    for seed in (0, 0, 1, 2):
        torch.manual_seed(seed)
        lengths.append([len(origins.fresh(data[0])) for _ in range(5)])
    assert lengths[0] == lengths[1]
    assert len({tuple(one) for one in lengths}) == 3


def test_static_features_join_every_row() -> None:
    one = numbered().replace(static=np.array([7.0, np.nan]))
    joined = join_static(one)
    np.testing.assert_array_equal(joined.values, np.hstack([one.values, np.tile([7.0, 0.0], (5, 1))]))
    np.testing.assert_array_equal(joined.observed[:, 2:], np.tile([True, False], (5, 1)))
    np.testing.assert_array_equal(joined.observed[:, :2], one.observed)
    assert joined.static is None
    assert join_static(numbered()).values.shape == (5, 2)
    assert IrregularDataset([joined]).channels == ("channel_0", "channel_1", "channel_2", "channel_3")
