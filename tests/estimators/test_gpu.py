"""On a GPU: estimators train there, and answer the same once they are saved and read on a CPU."""

from pathlib import Path

import numpy as np
import pytest

from tests.tolerances import FLOAT32_FORWARD
from tides.data import systems
from tides.estimators import TIDESClassifier, TIDESForecaster

pytestmark = pytest.mark.gpu
SMALL = {"device": "cuda", "epochs": 3, "hidden_size": 8, "state_size": 4, "random_state": 0}


def test_a_classifier(tmp_path: Path) -> None:
    data = systems.classification(n=40, points=16)
    model = TIDESClassifier(**SMALL).fit(data)
    assert next(model.model_.parameters()).is_cuda
    there = TIDESClassifier.load(model.save(tmp_path / "model"))
    assert not next(there.model_.parameters()).is_cuda
    np.testing.assert_allclose(there.predict_proba(data), model.predict_proba(data), atol=FLOAT32_FORWARD)


def test_a_forecaster(tmp_path: Path) -> None:
    data = systems.forecasting("calcium", n=40, points=16)
    model = TIDESForecaster(**SMALL, horizon=0.5).fit(data)
    there = TIDESForecaster.load(model.save(tmp_path / "model"))
    at = [1.5, 2.5]
    np.testing.assert_allclose(there.predict(data, at=at), model.predict(data, at=at), atol=FLOAT32_FORWARD)
    low, high = model.predict_interval(data, at=at, coverage=0.8)
    assert bool((low < high).all())
