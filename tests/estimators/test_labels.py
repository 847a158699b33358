"""Labels beside the series: which series they belong to, and in which form classes are stated."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV

from tests.estimators.series import FAST, levels
from tides.errors import DataError
from tides.estimators import TIDESClassifier, TIDESRegressor

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


def test_an_index_of_ids_may_hold_others_too() -> None:
    """As the label table of a hospital does beside the charts of one ward."""
    table = numbered()
    labels = pd.Series({100 + i: i % 2 for i in range(24)}, name="died").rename_axis("p")
    more = pd.concat([pd.Series({7: 1, 300: 0}), labels]).rename_axis("p").sample(frac=1, random_state=0)
    weights = more * 2.0 + 1
    model = TIDESClassifier(id="p", time="t", **QUICK).fit(table, more, sample_weight=weights)
    same = TIDESClassifier(id="p", time="t", **QUICK).fit(table, labels, sample_weight=weights.loc[labels.index])
    np.testing.assert_array_equal(model.predict_proba(table), same.predict_proba(table))
    assert model.score(table, more) == model.score(table, labels)
    for wrong in (more.rename_axis("stay"), more.drop(100), pd.concat([more, more])):
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            model.fit(table, wrong)


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


def test_labels_in_rows_of_the_table_find_their_series() -> None:
    # Text ids in the order of another sort: 99 comes after 100, and so on.
    table = numbered().sample(frac=1, random_state=0).reset_index(drop=True)
    table["p"] = "p" + (table.p - 12).astype(str)
    table["died"] = table.p.str[1:].astype(int) % 2
    by_id = table.groupby("p")["died"].first()
    model = TIDESClassifier(id="p", time="t", channels=["a", "b"], **QUICK)
    wanted = model.fit(table, by_id).predict_proba(table)
    for one in (table.drop_duplicates("p")["died"], table.groupby("p").tail(1)["died"]):
        assert list(one) != list(by_id)
        np.testing.assert_array_equal(model.fit(table, one).predict_proba(table), wanted)
    # Where all series are of one length, the first rows of them are a range.
    even = table.groupby("p").head(3).sort_values("p", key=lambda ids: ids.str[::-1], ignore_index=True)
    first = even.drop_duplicates("p")["died"].set_axis(pd.RangeIndex(0, len(even), 3))
    np.testing.assert_array_equal(
        model.fit(even, first).predict_proba(even), model.fit(even, by_id).predict_proba(even)
    )


def test_rows_that_are_not_one_of_each_series_are_refused() -> None:
    table = numbered()
    table["p"] = "p" + table.p.astype(str)
    labels = table.drop_duplicates("p").p.str[1:].astype(int) % 2
    model = TIDESClassifier(id="p", time="t", **QUICK)
    for other in (table.drop(index=labels.index[3]), table.assign(p=table.p.replace("p103", "p104"))):
        y = labels if other.p.nunique() == 24 else labels.iloc[:-1]
        with pytest.raises(DataError, match="y: its index names rows of the table, but not one of each series"):
            model.fit(other, y)


@pytest.mark.parametrize("estimator", [TIDESClassifier(**QUICK), TIDESRegressor(**QUICK)])
def test_dates_and_durations_are_no_labels(estimator: Any) -> None:
    hours = np.arange(12) % 2
    for y, found in ((pd.to_timedelta(hours, unit="h"), "durations"), (pd.to_datetime(hours, unit="h"), "dates")):
        for same in (y, pd.Series(y), y.to_numpy()):
            with pytest.raises(DataError, match=f"y: found {found}, wanted classes or numbers in a unit"):
                estimator.fit(levels(12), same)


def test_row_numbers_that_may_be_ids_as_well_are_refused() -> None:
    table = numbered().sort_values("t", ignore_index=True)
    first = table.drop_duplicates("p").sample(frac=1, random_state=0)
    table = pd.concat([first, table.drop(first.index)], ignore_index=True)
    table["died"] = table.p % 2
    model = TIDESClassifier(id="p", time="t", channels=["a", "b"], **QUICK)
    with pytest.raises(DataError, match="y: its index could mean rows of the table or places among the sorted ids"):
        model.fit(table, table["died"].iloc[:24])
    table["p"] -= 100
    numbers = table.groupby("p")["died"].first().rename_axis(None)
    with pytest.raises(DataError, match=r"or ids, which disagree; wanted an index of ids called 'p'"):
        model.fit(table, numbers)
    model.fit(table, numbers.rename_axis("p"))


def test_a_label_for_every_row_is_refused() -> None:
    table = numbered()
    for labels in (table.p % 2, (table.p % 2).to_numpy(), (table.p % 2).tolist()):
        with pytest.raises(DataError, match=r"one for each row of the table; wanted one for each of the 24 series"):
            TIDESClassifier(id="p", time="t", **QUICK).fit(table, labels)
