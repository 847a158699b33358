from typing import Any

import numpy as np
import pytest

from tides.errors import DataError
from tides.estimators.adapters import PyPOTSTIDESClassifier

SMALL: dict[str, Any] = {"hidden_size": 8, "state_size": 4, "depth": 1, "epochs": 6, "random_state": 0}


def samples(n: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = rng.normal(size=(n, 6, 3)) + 3.0 * y[:, None, None]
    X[rng.random(X.shape) < 0.3] = np.nan
    return {"X": X, "y": y, "times": np.sort(rng.uniform(0, 9, (n, 6)), axis=1)}


def test_dictionaries_in_and_out() -> None:
    model = PyPOTSTIDESClassifier(n_steps=6, n_features=3, n_classes=2, **SMALL)
    model.fit(samples(40), samples(10, seed=1))
    assert model.estimator.series_ == {"training": 40, "validation": 10}
    test = samples(20, seed=2)
    found = model.predict({"X": test["X"], "times": test["times"]})
    assert set(found) == {"classification", "classification_proba"}
    assert (found["classification"] == test["y"]).mean() > 0.8
    np.testing.assert_array_equal(model.predict_proba(test), found["classification_proba"])


def test_without_validation_set() -> None:
    model = PyPOTSTIDESClassifier(n_steps=6, n_features=3, n_classes=2, **SMALL).fit(samples(30))
    assert model.estimator.series_["validation"] > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.zeros((40, 5, 3))}, r"train_set: X has shape \(40, 5, 3\), wanted \(samples, 6, 3\)"),
        ({"y": np.arange(40) % 3}, "found 3 classes, wanted n_classes = 2"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], message: str) -> None:
    model = PyPOTSTIDESClassifier(n_steps=6, n_features=3, n_classes=2, **SMALL)
    with pytest.raises(DataError, match=message):
        model.fit({**samples(40), **change})
    with pytest.raises(DataError, match="found keys"):
        model.fit({"X": np.zeros((4, 6, 3))})
