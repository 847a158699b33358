"""One folder for many fits: cross-validation and searches clone an estimator, and each clone's run has its place."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

from tides.errors import ConfigError
from tides.estimators import TIDESClassifier

QUICK: dict[str, Any] = {
    "hidden_size": 4,
    "state_size": 4,
    "depth": 1,
    "epochs": 1,
    "random_state": 0,
    "training": {"checkpoint_seconds": 0.0},
}


def waves(n: int = 18) -> tuple[np.ndarray, np.ndarray]:
    rng, labels = np.random.default_rng(0), np.arange(n) % 2
    return rng.normal(size=(n, 1, 5)) + labels[:, None, None], labels


def trained(folder: Path) -> dict[str, int]:
    """The runs below a folder, and when each of them was written."""
    return {str(path.parent): path.stat().st_mtime_ns for path in folder.rglob("checkpoint.json")}


def test_cross_validation_continues_in_one_folder(tmp_path: Path) -> None:
    X, y = waves()
    model = TIDESClassifier(**QUICK, folder=tmp_path)
    scores = cross_val_score(model, X, y, cv=3)
    first = trained(tmp_path)
    assert len(first) == 3
    np.testing.assert_array_equal(cross_val_score(model, X, y, cv=3), scores)
    assert trained(tmp_path) == first


def test_a_search_keeps_its_runs_apart(tmp_path: Path) -> None:
    X, y = waves()
    search = GridSearchCV(TIDESClassifier(**QUICK, folder=str(tmp_path)), {"lr": [0.01, 0.02]}, cv=2).fit(X, y)
    assert len(trained(tmp_path)) == 2 * 2 + 1
    assert search.best_estimator_.predict(X).shape == (18,)


def test_a_fit_of_its_own_is_strict_about_its_folder(tmp_path: Path) -> None:
    X, y = waves()
    model = TIDESClassifier(**QUICK, folder=tmp_path).fit(X, y)
    assert list(trained(tmp_path)) == [str(tmp_path)]
    with pytest.raises(ConfigError, match="holds the run of other training series"):
        TIDESClassifier(**QUICK, folder=tmp_path).fit(X[:10], y[:10])
    again = clone(clone(model))
    assert again.folder == str(tmp_path)
    again.fit(X[:10], y[:10])
    assert len(trained(tmp_path)) == 2
    assert clone(TIDESClassifier()).folder is None
    assert clone(TIDESClassifier(folder=3)).folder == 3  # type: ignore[arg-type]
