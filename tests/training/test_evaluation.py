"""Scoring: batches that add up, intervals as asked for, a model that is left as it was."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tides.data import IrregularDataset, IrregularSeries
from tides.errors import DataError
from tides.training import Forecasting, evaluate
from tides.training.bootstrap import bootstrap
from tides.training.evaluation import answer, load_batch


class Zero(nn.Module):
    """Answers every question with 0; counts in which mode it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.modes: list[bool] = []

    def forward(self, values: Tensor, times: Tensor, observed: Tensor, query_times: Tensor, **_: Any) -> Tensor:
        self.modes.append(self.training)
        return torch.zeros(*query_times.shape, 1)


def asked(targets: list[list[float]]) -> IrregularDataset:
    """One question with these true answers for each series; NaN is not observed."""
    series = [
        IrregularSeries(
            np.ones((2, 1)), np.arange(2.0), query_times=2.0 + np.arange(len(row)), target=np.array(row)[:, None]
        )
        for row in targets
    ]
    return IrregularDataset(series)


TARGETS = [[1.0], [2.0, np.nan], [3.0, 4.0, 5.0], [6.0], [np.nan]]


@pytest.mark.parametrize("size", [1, 2, 5, 64])
def test_batches_of_any_size_give_the_mean_over_all_scored_entries(size: int) -> None:
    found = answer(Zero(), Forecasting(), asked(TARGETS), size)
    assert found.loss == pytest.approx((1 + 4 + 9 + 16 + 25 + 36) / 6)
    assert found.weight == 6
    assert len(found.predictions) == 5
    np.testing.assert_array_equal(found.predictions.targets, [1, 2, 3, 4, 5, 6])  # type: ignore[attr-defined]
    np.testing.assert_array_equal(found.predictions.owners, [0, 1, 2, 2, 2, 3])  # type: ignore[attr-defined]


def test_intervals_are_those_of_the_bootstrap_that_was_asked_for() -> None:
    settings: dict[str, Any] = {"resamples": 50, "coverage": 0.5, "seed": 3}
    found = evaluate(Zero(), Forecasting(), asked(TARGETS), **settings)
    metrics = answer(Zero(), Forecasting(), asked(TARGETS), 64).predictions.metrics()
    assert set(found) == {"mse", "mae"}
    for name, metric in metrics.items():
        assert found[name] == bootstrap(metric, 5, **settings)
        assert found[name] != bootstrap(metric, 5, **{**settings, "resamples": 1000})


@pytest.mark.parametrize("training", [True, False])
def test_a_model_answers_in_evaluation_mode_and_keeps_its_own(training: bool) -> None:
    model = Zero().train(training)
    answer(model, Forecasting(), asked(TARGETS), 2)
    assert model.modes == [False, False, False]
    assert model.training is training


def test_nothing_to_score() -> None:
    with pytest.raises(DataError, match="evaluation: the data set is empty"):
        answer(Zero(), Forecasting(), asked(TARGETS)[:0], 64)
    found = answer(Zero(), Forecasting(), asked([[np.nan], [np.nan]]), 64)
    assert np.isnan(found.loss)
    assert found.weight == 0


def test_batches_have_the_precision_of_the_model() -> None:
    """Data is never rounded below single precision."""
    for dtype, wanted in (
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
    ):
        assert load_batch(nn.Linear(1, 1, dtype=dtype), asked([[1.0]])).values.dtype == wanted
    learns_nothing = Zero()
    assert load_batch(learns_nothing, asked([[1.0]])).values.dtype == torch.float32
    learns_nothing.register_buffer("scale", torch.ones(1, dtype=torch.float64))
    assert load_batch(learns_nothing, asked([[1.0]])).values.dtype == torch.float64
