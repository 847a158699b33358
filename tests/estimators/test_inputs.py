"""What `fit` and `predict` accept, and what they say about the rest."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.estimators.series import FAST, levels
from tides.data import from_wide
from tides.errors import DataError
from tides.estimators import TIDESClassifier, TIDESForecaster

QUICK: dict[str, Any] = {**FAST, "epochs": 1}


def smokers(*habits: str) -> pd.DataFrame:
    """Twelve patients of alternating habits."""
    rows = [(i, t, i % 2 + t / 5, habits[i % 2], i % 2) for i in range(12) for t in range(4)]
    return pd.DataFrame(rows, columns=["p", "t", "x", "smokes", "y"])


@pytest.mark.parametrize("estimator", [TIDESClassifier(**QUICK), TIDESForecaster(2.0, **QUICK)])
@pytest.mark.parametrize("ordinal", [False, True])
def test_static_columns_of_a_data_set_have_the_categories_of_training(estimator: Any, ordinal: bool) -> None:
    roles: dict[str, Any] = {"id": "p", "time": "t", "label": "y", "static": ["smokes"], "ordinal": ordinal}
    known, other = (from_wide(smokers(*habits), **roles) for habits in (("heavy", "light"), ("light", "none")))
    estimator.fit(known)
    with pytest.raises(DataError, match=r"'smokes' \('light', 'none'\); the model was trained on 'smokes' \('heavy', "):
        estimator.predict(other)
    again = from_wide(smokers("light", "light"), **roles, schema=estimator.schema_)
    assert len(estimator.predict(again)) == 12


@pytest.mark.parametrize("estimator", [TIDESClassifier(**QUICK), TIDESForecaster(2.0, **QUICK)])
def test_nothing_is_no_data(estimator: Any) -> None:
    estimator.fit(levels(12))
    with pytest.raises(DataError, match="X: holds no series"):
        estimator.predict(levels(12)[:0])


def test_features_are_counted_anew_in_every_fit() -> None:
    rng, y = np.random.default_rng(0), np.arange(12) % 2
    model = TIDESClassifier(**QUICK).fit(rng.normal(size=(12, 9)), y)
    model.fit([rng.normal(size=(1, 5 + i % 3)) for i in range(12)], y)
    assert not hasattr(model, "n_features_in_")
    assert len(model.predict([rng.normal(size=7)])) == 1
