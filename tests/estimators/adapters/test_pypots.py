from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tides.errors import DataError
from tides.estimators import TIDESClassifier
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


def test_the_estimator_inside_can_be_saved(tmp_path: Path) -> None:
    model = PyPOTSTIDESClassifier(n_steps=6, n_features=3, n_classes=2, **SMALL).fit(samples(12), samples(4, seed=1))
    loaded = TIDESClassifier.load(model.estimator.save(tmp_path))
    test = samples(5, seed=2)
    found = loaded.predict_proba({"X": test["X"]}, times=test["times"])
    np.testing.assert_array_equal(found, model.predict_proba(test))


@pytest.mark.parametrize("key", ["y", "times"])
def test_sets_are_not_joined_over_a_missing_entry(key: str) -> None:
    """Together they would have as many as there are samples, and the wrong ones."""
    train, val = samples(12), samples(4, seed=1)
    train[key], val[key] = train[key][:-1], np.concatenate([val[key], val[key][:1]])
    model = PyPOTSTIDESClassifier(n_steps=6, n_features=3, n_classes=2, **SMALL)
    with pytest.raises(DataError, match=f"train_set: found 11 entries of '{key}' for 12 samples"):
        model.fit(train, val)


def test_an_empty_validation_set_is_named() -> None:
    model = PyPOTSTIDESClassifier(n_steps=6, n_features=3, n_classes=2, **SMALL)
    with pytest.raises(DataError, match="val_set: holds no sample"):
        model.fit(samples(12), {"X": np.zeros((0, 6, 3)), "y": np.zeros(0)})


def test_samples_without_a_label_move_none_between_the_sets() -> None:
    train, val = samples(40), samples(10, seed=1)
    some = {**val, "y": np.where(np.arange(10) < 4, np.nan, val["y"])}
    model = PyPOTSTIDESClassifier(n_steps=6, n_features=3, n_classes=2, unlabelled="drop", **SMALL)
    with pytest.warns(UserWarning, match="4 of 50 series without a label: 40, 41, 42, 43; left out"):
        model.fit(train, some)
    assert model.estimator.series_ == {"training": 40, "validation": 6}
    rest = PyPOTSTIDESClassifier(n_steps=6, n_features=3, n_classes=2, **SMALL)
    rest.fit(train, {key: entries[4:] for key, entries in val.items()})
    np.testing.assert_array_equal(model.predict_proba(train), rest.predict_proba(train))


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
