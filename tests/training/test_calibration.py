"""Scales of targets: mean and standard deviation of what was observed in training, in double precision."""

import numpy as np
import pytest

from tides.data import IrregularDataset, IrregularSeries
from tides.training.calibration import label_moments, target_moments


def asked(*targets: np.ndarray) -> IrregularDataset:
    series = [
        IrregularSeries(np.ones((2, 1)), np.arange(2.0), query_times=2.0 + np.arange(len(one)), target=one)
        for one in targets
    ]
    return IrregularDataset(series)


def test_targets_count_where_they_were_observed() -> None:
    """A channel that never varies, or was never observed, keeps its unit."""
    nan = np.nan
    data = asked(np.array([[1.0, 7.0, nan], [nan, 7.0, nan]]), np.array([[4.0, 7.0, nan]]))
    shift, scale = target_moments(data)
    assert shift.tolist() == [2.5, 7.0, 0.0]
    assert scale.tolist() == [1.5, 1.0, 1.0]


def test_moments_of_single_numbers_are_computed_in_double() -> None:
    """In single precision the spread of numbers around 10⁶ would be off in its second digit."""
    values = (1e6 + np.random.default_rng(0).normal(size=(5000, 1))).astype(np.float32)
    shift, scale = target_moments(asked(values))
    exact = values.astype(np.float64)
    assert shift.item() == pytest.approx(exact.mean(), rel=1e-14)
    assert scale.item() == pytest.approx(exact.std(), rel=1e-10)


def test_a_spread_of_rounding_errors_is_none() -> None:
    shift, scale = target_moments(asked(np.array([[1e9], [1e9 + 1e-4]])))
    assert shift.item() == pytest.approx(1e9)
    assert scale.item() == 1.0


def test_labels_may_be_vectors() -> None:
    rows = [np.array([1.0, 10.0]), np.array([3.0, 10.0])]
    data = IrregularDataset([IrregularSeries(np.ones((2, 1)), np.arange(2.0), label=row) for row in rows])
    shift, scale = label_moments(data)
    assert (shift.tolist(), scale.tolist()) == ([2.0, 10.0], [1.0, 1.0])
