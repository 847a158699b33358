"""Moments that were computed mean the time they are next to; times themselves stay apart."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tides.rounding import slack


@given(
    st.integers(-2000, 2000),
    st.integers(1, 400),
    st.integers(1, 400),
    st.integers(0, 300),
    st.sampled_from([3, 7, 10, 12, 1000]),
)
def test_sums_of_rounded_numbers_find_their_time(first: int, span: int, stride: int, i: int, per_unit: int) -> None:
    """Times are whole steps of a third, a tenth, a twelfth, …; a moment is as `forecast_windows` forms it."""
    times = np.arange(first, first + span + i * stride + 2) / per_unit
    moment = first / per_unit + span / per_unit + i * (stride / per_unit)
    near = slack(times)
    assert np.searchsorted(times, moment + near, side="right") == span + i * stride + 1
    assert np.searchsorted(times, moment - near, side="left") == span + i * stride


def test_neighbours_are_never_one() -> None:
    for times in (
        np.array([1.7e15, 1.7e15 + 1]),
        np.array([0.3, np.nextafter(0.3, 1)]),
        np.array([2.0**53 - 1, 2.0**53]),
    ):
        assert np.searchsorted(times, times + slack(times), side="right").tolist() == [1, 2]
    assert slack(np.empty(0)) < 1e-300
    assert slack(np.zeros(3)) < 1e-300
