"""The embedded tasks are learnt: well above chance, and better than trivial forecasts, on held-out series."""

import numpy as np
import pytest
import torch

from tides.data import IrregularDataset, split, systems
from tides.nn import Forecaster, SequenceClassifier, SequenceRegressor, TIDESConfig
from tides.training import Classification, Forecasting, Regression, TrainConfig, evaluate, fit


def config(channels: int) -> TIDESConfig:
    return TIDESConfig(
        input_size=channels, hidden_size=16, state_size=8, depth=1, rank=4, mask_channels=True, projector_init="random"
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_classification_is_far_above_chance(seed: int) -> None:
    train, val, test = split(systems.classification(n=120, points=24, seed=seed), (0.6, 0.2, 0.2))
    torch.manual_seed(seed)
    model = SequenceClassifier(config(2), classes=3)
    settings = TrainConfig(epochs=8, batch_size=16, lr=2e-2, seed=seed)
    fit(model, Classification(), (train, val), settings, progress=False)
    found = evaluate(model, Classification(), test, resamples=200)
    # Three balanced classes: chance is 1/3 with a standard error of 0.1 on 24 series.
    assert found["accuracy"].value > 0.7
    assert found["auroc"].low > 0.6


def trivial_errors(train: IrregularDataset, test: IrregularDataset, scale: tuple[float, ...]) -> tuple[float, float]:
    """Mean squared errors of the training mean and of each channel's last observed value."""
    mean = np.concatenate([one.target for one in train]).mean(axis=0)  # type: ignore[misc]
    flat, last = [], []
    for one in test:
        seen = [one.values[one.observed[:, c], c] for c in range(len(mean))]
        held = np.array([values[-1] if len(values) else m for values, m in zip(seen, mean, strict=True)])
        assert one.target is not None
        flat.append(((one.target - mean) / scale) ** 2)
        last.append(((one.target - held) / scale) ** 2)
    return float(np.concatenate(flat).mean()), float(np.concatenate(last).mean())


def test_forecasts_beat_the_mean_and_the_last_value() -> None:
    train, val, test = split(systems.forecasting(n=120, points=40), (0.7, 0.15, 0.15))
    model = Forecaster(config(4), channels=4)
    task = Forecasting.standardised(train)
    fit(model, task, (train, val), TrainConfig(epochs=8, batch_size=16, lr=2e-2, monitor="mse"), progress=False)
    mean, last = trivial_errors(train, test, task.scale or ())
    error = evaluate(model, task, test, resamples=1)["mse"].value
    assert error < 0.85 * mean
    assert error < 0.5 * last


def test_regression_finds_a_number_in_units_of_its_own() -> None:
    data = systems.classification(n=90, points=16)
    targets = IrregularDataset(
        [one.replace(label=1000.0 + 50.0 * float(one.values[one.observed].mean())) for one in data], schema=data.schema
    )
    train, val, test = split(targets, (0.6, 0.2, 0.2))
    model = SequenceRegressor(config(2))
    task = Regression.standardised(train)
    fit(model, task, (train, val), TrainConfig(epochs=8, batch_size=9, lr=2e-2), progress=False)
    # In units of the standard deviation: predicting the mean would give 1.
    assert evaluate(model, task, test, resamples=1)["mse"].value < 0.3
