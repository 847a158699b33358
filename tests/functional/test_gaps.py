"""Gaps from times and the explicit policy for the first one."""

import inspect
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tides.errors import DataError, ShapeError
from tides.functional import check_times, gaps_from_times

TIMES = torch.tensor([[1.0, 2.0, 4.0, 9.0], [0.0, 0.0, 3.0, 5.0]], dtype=torch.float64)


def test_inner_gaps_are_differences() -> None:
    assert gaps_from_times(TIMES, 0.0)[:, 1:].tolist() == [[1, 2, 5], [0, 3, 2]]


def test_first_gap_policies() -> None:
    assert gaps_from_times(TIMES)[:, 0].tolist() == [2, 2]
    assert gaps_from_times(TIMES, 7.5)[:, 0].tolist() == [7.5, 7.5]
    assert gaps_from_times(TIMES, start=-1.0)[:, 0].tolist() == [2, 1]
    assert gaps_from_times(TIMES, start=torch.tensor([0.5, -2.0]))[:, 0].tolist() == [0.5, 2]


def test_padding_has_no_gap_and_no_share_in_the_median() -> None:
    times = torch.tensor([[0.0, 1.0, 3.0, 0.0, -5.0], [0.0, 2.0, 4.0, 6.0, 100.0]])
    valid = torch.tensor([[True] * 3 + [False] * 2, [True] * 4 + [False]])
    gaps = gaps_from_times(times, valid=valid)
    assert gaps.tolist() == [[2, 1, 2, 0, 0], [2, 2, 2, 2, 0]]


def test_padding_may_hold_anything() -> None:
    times = torch.tensor([[0.0, 1.0, torch.nan, torch.inf]])
    valid = torch.tensor([[True, True, False, False]])
    assert gaps_from_times(times, 1.0, valid=valid).tolist() == [[1, 1, 0, 0]]


def test_integers_become_float64_and_floats_keep_their_precision() -> None:
    whole = torch.tensor([10**15, 10**15 + 1])
    assert gaps_from_times(whole, 0.0).dtype == torch.float64
    assert gaps_from_times(whole, 0.0).tolist() == [0, 1]
    assert gaps_from_times(TIMES.float(), 0.0).dtype == torch.float32


def test_whole_numbers_of_any_size_keep_their_differences() -> None:
    begin = 1_700_000_000_000_000_000
    times = torch.tensor([[begin, begin + 100, begin + 200], [begin + 1, begin + 1, begin + 4]])
    assert gaps_from_times(times, 1.0).tolist() == [[1, 100, 100], [1, 0, 3]]
    assert gaps_from_times(times)[:, 0].tolist() == [3, 3]
    for start in (begin - 1, torch.tensor([begin - 1, begin - 1])):
        assert gaps_from_times(times, start=start)[:, 0].tolist() == [1, 2]
    assert gaps_from_times(torch.tensor([[7, 9]]), start=2.75).tolist() == [[4.25, 2]]
    assert gaps_from_times(torch.tensor([[7, 9]], dtype=torch.uint8), start=torch.tensor([-0.5])).tolist() == [[7.5, 2]]
    with pytest.raises(DataError, match=r"times: decrease in series \[0\] at observation 2"):
        gaps_from_times(times[:1, [0, 2, 1]])


def test_one_series_or_many_axes() -> None:
    assert gaps_from_times(TIMES[0], 0.0).shape == (4,)
    assert gaps_from_times(TIMES.unsqueeze(0), 0.0).shape == (1, 2, 4)


def test_length_one() -> None:
    assert gaps_from_times(torch.tensor([[3.0]]), 0.5).tolist() == [[0.5]]
    with pytest.raises(DataError, match="median"):
        gaps_from_times(torch.tensor([[3.0]]))


@given(st.lists(st.floats(0, 1e3), min_size=2, max_size=8))
def test_times_come_back_from_gaps(steps: list[float]) -> None:
    times = torch.tensor(steps, dtype=torch.float64).cumsum(0)
    gaps = gaps_from_times(times, start=0.0)
    assert torch.allclose(gaps.cumsum(0), times, rtol=1e-12)
    assert bool((gaps >= 0).all())


def test_decreasing_times_name_series_and_observation() -> None:
    bad = TIMES.clone()
    bad[1, 3] = 1.0
    with pytest.raises(DataError, match=r"times.*series.*1.*observation 3: 3 is followed by 1"):
        gaps_from_times(bad)


@pytest.mark.parametrize(
    "times",
    [
        [1.7e9, 1.7e9 + 128, 1.7e9 + 256],
        [0.0, 1.7e9, 1.7e9 + 128, 1.7e9 + 256, 1.7e9 + 384],
        [-1.7e9, -1.7e9 + 128, 0.0],
        [1.7e9, 1.7e9],
    ],
)
def test_times_that_single_precision_cannot_tell_apart_are_refused(times: list[float]) -> None:
    """Numbers around 1.7e9 are 128 apart; in double precision they are fine."""
    with pytest.raises(DataError, match=r"times: found torch\.float32 around 1\.7e\+09, which only resolves 2e\+02"):
        check_times(torch.tensor(times))
    check_times(torch.tensor(times, dtype=torch.float64))


def test_single_precision_is_enough_where_gaps_are_long_and_padding_does_not_count() -> None:
    check_times(torch.tensor([1.7e9, 1.7e9 + 1024, 1.7e9 + 2048]))
    check_times(torch.tensor([5.0, 5.0]))
    check_times(torch.tensor([1.7e9]))
    padded, valid = torch.tensor([[0.0, 1.0, 2.0, 1.7e9, 1.7e9]]), torch.tensor([[True, True, True, False, False]])
    check_times(padded, valid)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_times_that_are_not_finite_are_named(value: float) -> None:
    bad = TIMES.clone()
    bad[0, 2] = value
    with pytest.raises(DataError, match=r"times: not finite at index \[0, 2\]"):
        check_times(bad)


def test_a_bad_first_gap_is_named() -> None:
    with pytest.raises(DataError, match="first: found 'mean'"):
        inspect.unwrap(gaps_from_times)(TIMES, "mean")  # without the shape checker, who would speak first
    for first in (-1.0, float("nan"), float("inf"), torch.tensor(torch.inf)):
        with pytest.raises(DataError, match="first: found"):
            gaps_from_times(TIMES, first)
    with pytest.raises(DataError, match=r"start.*before the start"):
        gaps_from_times(TIMES, start=0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 2.0],), "times: found list, wanted a tensor"),
        ((torch.tensor(1.0),), r"times: found torch.float32 of shape \(\)"),
        ((TIMES, None), "first: found None"),
        ((TIMES, torch.ones(2)), "first: found tensor"),
        ((TIMES, 0.0, "noon"), "start: found 'noon'"),
        ((TIMES, 0.0, math.nan), "start: found nan"),
        ((TIMES.long(), 0.0, -1e300), r"start: found -1e\+300"),
        ((TIMES, 0.0, torch.tensor([0.0, math.nan])), "start: found a number that is not finite"),
        ((TIMES, 0.0, torch.zeros(3)), r"start: found shape \(3,\), wanted \(2,\)"),
        ((TIMES, 0.0, None, [[True] * 4] * 2), "valid: found list"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_arguments_of_another_kind_are_named(arguments: tuple[Any, ...], message: str) -> None:
    given = dict(zip(("times", "first", "start", "valid"), arguments, strict=False))
    with pytest.raises((DataError, ShapeError), match=message):
        inspect.unwrap(gaps_from_times)(**given)  # without the shape checker, who would speak first


def test_single_precision_that_cannot_hold_the_gaps_is_refused() -> None:
    seconds = torch.tensor([[1.7e9, 1.7e9 + 1, 1.7e9 + 200, 1.7e9 + 400]], dtype=torch.float64)
    assert gaps_from_times(seconds)[0, 1:].tolist() == [1, 199, 200]
    for times in (seconds, seconds[:, :2]):
        with pytest.raises(DataError, match="wanted float64"):
            gaps_from_times(times.float())
    torch.testing.assert_close(gaps_from_times((seconds - 1.7e9).float())[0, 1:], torch.tensor([1.0, 199.0, 200.0]))
    padded, valid = torch.tensor([[0.0, 1.0, 1e30]]), torch.tensor([[True, True, False]])
    assert gaps_from_times(padded, valid=valid).tolist() == [[1, 1, 0]]
    assert gaps_from_times(torch.zeros(1, 3), 1.0).tolist() == [[1, 0, 0]]
