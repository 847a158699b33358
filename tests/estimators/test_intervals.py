"""Intervals from calibration scores, against their definitions and a simulation."""

from statistics import NormalDist

import numpy as np
import pytest

from tides.errors import ConfigError, DataError
from tides.estimators.intervals import Calibrated


def one_score_each(scores: list[float]) -> Calibrated:
    """Calibrated on one value per series with these scores |y − mean| / spread."""
    truth = np.array(scores)[:, None]
    return Calibrated.fit(np.zeros_like(truth), np.ones_like(truth), truth, np.ones(truth.shape, bool), len(scores))


def test_scores_are_errors_in_units_of_the_spread() -> None:
    mean, truth = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]), np.array([[5.0, 1.0], [1.0, 9.0], [9.0, 2.0]])
    spread = np.array([[2.0, 1.0], [1.0, 1.0], [2.0, 4.0]])
    scored = np.array([[True, True], [True, False], [True, True]])
    found = Calibrated.fit(mean, spread, truth, scored, 3)
    np.testing.assert_array_equal(found.scores[0], [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(found.scores[1], [0.5, 1.0])
    np.testing.assert_allclose(found.stretch, [np.sqrt(14 / 3), np.sqrt(1.25 / 2)], rtol=1e-15)
    half = found.width(0.9, "gaussian", ("a", "b"))
    np.testing.assert_allclose(half, NormalDist().inv_cdf(0.95) * found.stretch, rtol=1e-15)


def test_a_channel_without_calibration_values_keeps_the_spread_of_the_network() -> None:
    nothing = Calibrated.fit(np.zeros((2, 1)), np.ones((2, 1)), np.ones((2, 1)), np.zeros((2, 1), bool), 2)
    for found, series in ((nothing, 2), (Calibrated.none(1), 0)):
        assert found.to_dict() == {"stretch": [1.0], "conformal": [[]], "calibration_series": series}


def test_conformal_widths_are_calibration_scores() -> None:
    """The level is coverage · (1 + 1/n): with nine series 0.9 asks for the largest score, and more cannot be had."""
    nine = one_score_each([3.0, 9.0, 1.0, 5.0, 7.0, 2.0, 8.0, 6.0, 4.0])
    assert [float(nine.width(c, "conformal", ("a",))[0]) for c in (0.3, 0.5, 0.9)] == [4.0, 6.0, 9.0]
    with pytest.raises(DataError, match=r"9 calibration series support at most 0\.900, found 0\.901"):
        nine.width(0.901, "conformal", ("a",))


@pytest.mark.parametrize("coverage", [0.0, 1.0])
def test_an_interval_of_nothing_or_everything_is_refused(coverage: float) -> None:
    for method in ("gaussian", "conformal"):
        with pytest.raises(ConfigError, match=f"coverage: found {coverage}, wanted a number between 0 and 1"):
            one_score_each([1.0]).width(coverage, method, ("a",))


def test_conformal_intervals_hold_what_they_promise_with_few_series() -> None:
    """Fresh scores of the same kind lie within the width in at least a share `coverage` of all calibrations."""
    rng = np.random.default_rng(0)
    draws = 2000
    inside = [
        abs(fresh) <= one_score_each(list(known)).width(0.8, "conformal", ("a",))[0]
        for *known, fresh in rng.standard_t(3, size=(draws, 10))
    ]
    assert np.mean(inside) >= 0.8 - 3 * np.sqrt(0.8 * 0.2 / draws)


def test_many_scores_are_thinned_over_all_ranks() -> None:
    scores = np.arange(10_001.0)
    found = one_score_each(list(scores[::-1]))
    (kept,) = found.scores
    assert len(kept) == 2000
    assert (kept[0], kept[-1]) == (0.0, 10_000.0)
    assert np.diff(kept).max() <= 6
    assert found.stretch[0] == pytest.approx(np.sqrt(np.mean(scores**2)), rel=1e-12)


def test_they_survive_json() -> None:
    found = one_score_each([1.0, 0.1, 1 / 3])
    again = Calibrated.from_dict(found.to_dict())
    np.testing.assert_array_equal(again.stretch, found.stretch)
    np.testing.assert_array_equal(again.scores, found.scores)
    assert again.series == 3
