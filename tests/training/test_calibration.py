"""Scales of targets: mean and standard deviation of what was observed in training, in double precision."""

import numpy as np
import pytest
import torch

from tests.comparison import assert_close
from tests.tolerances import EXACT
from tides.data import IrregularDataset, IrregularSeries, collate
from tides.nn import SequenceClassifier, TIDESConfig
from tides.training.calibration import calibrate, label_moments, target_moments


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


@pytest.mark.parametrize("values", [True, False])
def test_statistics_of_the_training_series_are_standardised(values: bool) -> None:
    """Whether the channels are or not, in more than one batch; what is the same in all series keeps its unit."""
    generator = np.random.default_rng(0)
    series = []
    for _ in range(70):
        x = generator.normal(5, 3, (6, 2))
        x[:, 1] = np.nan if generator.random() < 0.3 else x[:, 1]
        series.append(IrregularSeries(x, np.cumsum(generator.exponential(2.0, 6))))
    data = IrregularDataset(series)
    model = SequenceClassifier(TIDESConfig(input_size=2, summary=True, mask_channels=True, depth=1), 2).double()
    calibrate(model, data, values=values)
    batch = collate(data, dtype=torch.float64)
    found, known = model.summarise(
        batch.values, model.gaps(batch.times, batch.valid), observed=batch.observed, valid=batch.valid
    )
    assert model.summary is not None
    z = ((found - model.summary.shift) / model.summary.scale).masked_fill(~known, torch.nan)
    mean, varies = z.nanmean(0), ~torch.isin(torch.arange(20), torch.tensor([0, 16]))
    assert_close(1 + mean, torch.ones(20).double(), EXACT, "means")
    assert_close((z - mean).square().nanmean(0)[varies], torch.ones(18).double(), EXACT, "variances")
    assert model.summary.scale[~varies].tolist() == [1.0, 1.0]
