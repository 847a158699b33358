"""Labels beside the series: which series they belong to, and in which form classes are stated."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV

from tests.estimators.series import FAST, levels
from tides.errors import DataError
from tides.estimators import TIDESClassifier

QUICK: dict[str, Any] = {**FAST, "epochs": 1}


def numbered(n: int = 24) -> pd.DataFrame:
    """A table whose ids are the numbers from 100 on."""
    rows = [(100 + one.id, t, *row) for one in levels(n) for t, row in zip(one.times, one.values, strict=True)]
    return pd.DataFrame(rows, columns=["p", "t", "a", "b"])


def test_a_model_of_codes_is_scored_on_a_data_set_with_names() -> None:
    fresh = levels(40, seed=1)
    model = TIDESClassifier(**FAST).fit(levels(), levels().labels)
    assert model.score(fresh) == model.score(fresh, fresh.labels) > 0.9
    search = GridSearchCV(TIDESClassifier(**FAST), {"depth": [1]}, cv=2).fit(levels(), levels().labels)
    assert search.best_estimator_.score(fresh) > 0.9


def test_classes_in_another_form_are_refused() -> None:
    data = levels(24)
    named = TIDESClassifier(**QUICK).fit(data)
    with pytest.raises(DataError, match=r"y: found 0, and no class that the model knows; wanted some of \['low', "):
        named.score(data, data.labels)
    coded = TIDESClassifier(**QUICK).fit(data, data.labels)
    with pytest.raises(DataError, match=r"y: found '0', .* wanted some of \[0, 1\]"):
        coded.score(data, data.labels.astype(str))  # type: ignore[union-attr]
    others = TIDESClassifier(**QUICK).fit(data, np.array(["x", "y"])[data.labels])
    with pytest.raises(DataError, match=r"label: found 'low', .* wanted some of \['x', 'y'\]"):
        others.score(data)


@pytest.mark.parametrize("change", [str, {100: 999}], ids=["text", "another"])
def test_an_index_that_is_only_nearly_the_ids_is_refused(change: Any) -> None:
    labels = pd.Series({100 + i: i % 2 for i in range(24)}).sample(frac=1, random_state=0)
    model = TIDESClassifier(id="p", time="t", **QUICK).fit(numbered(), labels)
    in_order = labels.sort_index()
    wanted = model.score(numbered(), in_order.to_numpy())
    for same in (labels, in_order.reset_index(drop=True), in_order.rename(lambda one: f"row {one}")):
        assert model.score(numbered(), same) == wanted
    with pytest.raises(DataError, match="y: found an index without 100, the id of a series"):
        model.fit(numbered(), labels.rename(index=change))


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (None, r"y: entry 3 is missing \(None\)"),
        (pd.NA, r"y: entry 3 is missing \(<NA>\)"),
        (float("nan"), r"y: entry 3 is missing \(nan\)"),
        (1, "y: found 'a' in entry 0 and 1 in entry 3, wanted one kind"),
    ],
)
def test_a_class_that_is_missing_or_of_another_kind_is_named(odd: Any, message: str) -> None:
    classes = np.array(["a", "b"] * 6, object)
    classes[3] = odd
    with pytest.raises(DataError, match=message):
        TIDESClassifier(**QUICK).fit(levels(12), classes)
