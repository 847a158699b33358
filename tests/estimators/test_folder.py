"""Estimators on disk: what comes back, and folders whose files do not belong together."""

import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV

from tests.estimators.series import FAST, levels, relaxing
from tides.errors import ConfigError, DataError
from tides.estimators import TIDESClassifier, TIDESForecaster, TIDESRegressor, load_estimator

QUICK: dict[str, Any] = {**FAST, "epochs": 1}


def change(folder: Path, **facts: Any) -> None:
    path = folder / "estimator.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))


def test_a_loaded_estimator_can_be_fitted_again(tmp_path: Path) -> None:
    data = levels(24)
    weights = {np.int64(0): 1.0, np.int64(1): 2.0}
    model = TIDESClassifier(**QUICK, model={"step_init": (1e-2, 1e-1)}, class_weight=weights).fit(data, data.labels)
    loaded = TIDESClassifier.load(model.save(tmp_path))
    assert loaded.class_weight == {0: 1.0, 1: 2.0}
    assert (loaded.best_epoch_, loaded.n_iter_, loaded.series_) == (model.best_epoch_, model.n_iter_, model.series_)
    again = loaded.set_params(random_state=0).fit(data, data.labels)
    np.testing.assert_array_equal(again.predict_proba(data), model.predict_proba(data))


@pytest.mark.parametrize("kind", ["i4", "u1", "f4", "?", "U3", "O"])
def test_classes_come_back_as_the_numbers_or_text_they_were(kind: str, tmp_path: Path) -> None:
    data, y = levels(12), np.array(["0", "1"] * 6 if kind == "O" else [0, 1] * 6, kind)
    model = TIDESClassifier(**QUICK).fit(data, y)
    loaded = TIDESClassifier.load(model.save(tmp_path))
    assert model.classes_.dtype == loaded.classes_.dtype == y.dtype
    np.testing.assert_array_equal(loaded.classes_, model.classes_)
    assert loaded.predict(data).dtype == y.dtype


class Logged(TIDESClassifier):
    """Somebody's own estimator, with nothing more to store."""


def test_a_child_of_an_estimator_is_saved_as_its_parent(tmp_path: Path) -> None:
    data = levels(12)
    model = Logged(**QUICK, lr=1e-3).fit(data)
    loaded = load_estimator(model.save(tmp_path))
    assert (type(loaded), loaded.lr) == (TIDESClassifier, 1e-3)
    np.testing.assert_array_equal(TIDESClassifier.load(tmp_path).predict_proba(data), model.predict_proba(data))
    with pytest.raises(ConfigError, match="holds a TIDESClassifier, wanted a Logged"):
        Logged.load(tmp_path)


def test_the_number_of_features_comes_back(tmp_path: Path) -> None:
    matrix, y = np.random.default_rng(0).normal(size=(12, 5)), np.arange(12) % 2
    named = pd.DataFrame(matrix, columns=list("abcde"))
    loaded = TIDESClassifier.load(TIDESClassifier(**QUICK).fit(named, y).save(tmp_path))
    assert loaded.n_features_in_ == 5
    assert loaded.feature_names_in_.tolist() == list("abcde")
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict(named.rename(columns={"a": "z"}))


def test_folders_of_earlier_versions_load(tmp_path: Path) -> None:
    data = levels(24)
    model = TIDESClassifier(**QUICK, class_weight={"low": 1.0, "high": 2.0}).fit(data)
    model.save(tmp_path)
    facts = json.loads((tmp_path / "estimator.json").read_text())
    del facts["fit"], facts["class_dtype"]
    facts["params"]["class_weight"] = {"low": 1.0, "high": 2.0}
    (tmp_path / "estimator.json").write_text(json.dumps(facts))
    loaded = TIDESClassifier.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict_proba(data), model.predict_proba(data))
    assert loaded.class_weight == model.class_weight


def test_what_was_learnt_is_saved_and_not_what_is_asked_of_the_next_fit(tmp_path: Path) -> None:
    data = relaxing(12)
    model = TIDESForecaster(3.0, **QUICK).fit(data)
    wanted = model.predict(data)
    loaded = TIDESForecaster.load(model.set_params(gaussian=False, hidden_size=4).save(tmp_path))
    np.testing.assert_array_equal(loaded.predict(data), wanted)
    assert not loaded.gaussian


@pytest.mark.parametrize("horizon", [timedelta(hours=3), pd.Timedelta("3h"), np.timedelta64(3, "h"), np.float32(3)])
def test_numbers_of_numpy_and_lengths_of_time_are_arguments(horizon: Any, tmp_path: Path) -> None:
    quick = {
        **QUICK,
        "epochs": np.int64(1),
        "hidden_size": np.int32(8),
        "lr": np.float32(0.01),
        "batch_size": np.int64(8),
    }
    model = TIDESForecaster(horizon, origins=np.int64(1), **quick).fit(relaxing(12))
    loaded = TIDESForecaster.load(model.save(tmp_path))
    assert loaded.horizon_ == 3.0
    assert loaded.set_params(epochs=1).fit(relaxing(12)).horizon_ == 3.0


def test_a_grid_of_numpy_numbers() -> None:
    grid = {"hidden_size": np.arange(4, 6), "dropout": np.array([0.1], np.float32)}
    search = GridSearchCV(TIDESClassifier(**QUICK), grid, cv=2, error_score="raise").fit(levels(12), levels(12).labels)
    assert search.best_params_["hidden_size"] in (4, 5)


@pytest.mark.parametrize(
    ("classes", "message"), [(None, "does not describe an estimator"), (["low"], "with 2 numbers, .* names 1")]
)
def test_classes_that_are_not_those_of_the_network_are_refused(classes: Any, message: str, tmp_path: Path) -> None:
    change(TIDESClassifier(**QUICK).fit(levels(12)).save(tmp_path), classes=classes)
    with pytest.raises(DataError, match=message):
        TIDESClassifier.load(tmp_path)


def test_the_network_of_another_estimator_is_refused(tmp_path: Path) -> None:
    classifier = TIDESClassifier(**QUICK).fit(levels(12)).save(tmp_path / "classifier")
    regressor = TIDESRegressor(**QUICK).fit(levels(12), np.arange(12.0)).save(tmp_path / "regressor")
    forecaster = TIDESForecaster(2.0, **QUICK).fit(levels(12)).save(tmp_path / "forecaster")
    for folder, other, found in (
        (classifier, forecaster, "Forecaster, wanted a SequenceClassifier"),
        (forecaster, regressor, "SequenceRegressor, wanted a Forecaster"),
    ):
        for name in ("config.json", "model.safetensors"):
            shutil.copy(other / name, folder / name)
        with pytest.raises(DataError, match=f"found the network of a {found}"):
            TIDESClassifier.load(folder)
    change(regressor, targets=3)
    with pytest.raises(DataError, match=r"answers with 1 numbers, estimator\.json names 3"):
        TIDESRegressor.load(regressor)
