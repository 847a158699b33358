"""Series that choose the epoch or calibrate intervals have no part in the scales that the network is trained with."""

from typing import Any

import numpy as np
import pytest

from tests.estimators.series import FAST, levels, relaxing
from tides.data import IrregularDataset
from tides.estimators import TIDESClassifier, TIDESForecaster, TIDESRegressor
from tides.estimators.recipe import split_off

QUICK: dict[str, Any] = {**FAST, "epochs": 1}


def test_time_and_values_of_a_forecaster_are_scaled_as_in_its_training_series() -> None:
    """Every series ticks at its own pace and has its own level."""
    series = [
        one.replace(times=np.arange(20) * (1 + 0.1 * i), values=one.values + i) for i, one in enumerate(relaxing(40))
    ]
    data = IrregularDataset(series, channels=("x",), unit="h")
    model = TIDESForecaster(30.0, **QUICK).fit(data)
    rest, kept = split_off(data, 0.2, 0)
    train, val = split_off(rest, 0.2, 1)
    assert kept is not None
    assert val is not None
    assert model.series_ == {"training": len(train), "validation": len(val), "calibration": len(kept)}
    calibration = model.model_.backbone.calibration
    gaps = np.sort(np.concatenate([one.gaps for one in train]))
    assert calibration.time_scale.item() == gaps[(len(gaps) - 1) // 2]
    values = np.concatenate([one.values for one in train])
    assert calibration.shift.item() == pytest.approx(values.mean(), rel=1e-6)
    assert model.task_.scale == pytest.approx((values.std(),), rel=1e-12)


@pytest.mark.parametrize("kind", [TIDESClassifier, TIDESRegressor])
def test_static_numbers_are_scaled_and_filled_as_in_the_training_series(kind: Any) -> None:
    ages = np.where(np.arange(40) % 5 == 0, np.nan, np.arange(40.0) ** 2)
    series = [
        one.replace(static=ages[i : i + 1], label=i % 2 if kind is TIDESClassifier else float(i))
        for i, one in enumerate(levels(40))
    ]
    data = IrregularDataset(series, channels=("a", "b"), unit="h")
    model = kind(**QUICK).fit(data)
    train, val = split_off(data, 0.2, 0)
    assert val is not None
    known = np.array([one.static for one in train])
    assert model.model_.static_shift.item() == pytest.approx(np.nanmean(known), rel=1e-6)
    assert model.model_.static_scale.item() == pytest.approx(np.nanstd(known), rel=1e-6)
    if kind is TIDESRegressor:
        assert model.task_.scale == pytest.approx((np.std([one.label for one in train]),), rel=1e-12)
    filled = IrregularDataset(
        [one.replace(static=np.where(np.isnan(one.static), np.nanmean(known), one.static)) for one in series],
        channels=("a", "b"),
        unit="h",
    )
    answers = model.predict_proba if kind is TIDESClassifier else model.predict
    np.testing.assert_allclose(answers(data), answers(filled), rtol=1e-5)


def test_balanced_classes_are_those_of_the_training_series() -> None:
    """Of 25 and 15 series, validation has its share of each class by whole numbers only."""
    series = [one.replace(label=int(i >= 25)) for i, one in enumerate(levels(40))]
    data = IrregularDataset(series, channels=("a", "b"), unit="h")
    model = TIDESClassifier(class_weight="balanced", validation=0.3, **QUICK).fit(data)
    train, val = split_off(data, 0.3, 0)
    assert val is not None
    counts, others = (np.bincount(part.labels) for part in (train, val))
    assert model.task_.class_weights == pytest.approx(tuple(len(train) / (2 * counts)))
    assert tuple(len(val) / (2 * others)) != pytest.approx(tuple(len(train) / (2 * counts)))
