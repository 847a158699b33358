"""What `fit` and `predict` accept, and what they say about the rest."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score, cross_validate, train_test_split

from tests.estimators.series import FAST, levels
from tides.data import IrregularDataset, from_wide
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
    with pytest.raises(DataError, match="X holds no case"):
        estimator.predict([])


def test_features_are_counted_anew_in_every_fit() -> None:
    rng, y = np.random.default_rng(0), np.arange(12) % 2
    model = TIDESClassifier(**QUICK).fit(rng.normal(size=(12, 9)), y)
    model.fit([rng.normal(size=(1, 5 + i % 3)) for i in range(12)], y)
    assert not hasattr(model, "n_features_in_")
    assert len(model.predict([rng.normal(size=7)])) == 1


def test_times_beside_arrays_may_be_lists_of_dates_and_any_series() -> None:
    rng, y = np.random.default_rng(0), np.arange(12) % 2
    X, dates = rng.normal(size=(12, 2, 5)), pd.date_range("2031-05-01", periods=5, freq="90min")
    wanted = TIDESClassifier(unit="h", **QUICK).fit(X, y, times=dates)
    zoned = list(dates.tz_localize("UTC").tz_convert("Europe/Berlin"))
    for same in (list(dates), zoned, [zoned] * 12, dates.to_pydatetime().tolist(), pd.Series(dates, index=range(3, 8))):
        np.testing.assert_array_equal(wanted.predict_proba(X, times=same), wanted.predict_proba(X, times=dates))
        found = TIDESClassifier(unit="h", **QUICK).fit(X, y, times=same)
        np.testing.assert_array_equal(found.predict_proba(X, times=dates), wanted.predict_proba(X, times=dates))
    hours = np.arange(5) * 1.5
    plain = TIDESClassifier(**QUICK).fit(X, y, times=pd.Series(hours, index=range(3, 8)))
    for same in (
        hours,
        pd.DataFrame(np.tile(hours, (12, 1)), index=range(3, 15)),
        [pd.Series(hours, index=range(3, 8))] * 12,
    ):
        np.testing.assert_array_equal(plain.predict_proba(X, times=same), plain.predict_proba(X, times=hours))


def test_channels_of_a_long_table_are_chosen_once() -> None:
    long = smokers("light", "heavy").drop(columns="smokes").rename(columns={"x": "value"}).assign(item="x")
    roles: dict[str, Any] = {"id": "p", "time": "t", "label": "y", "channel": "item", "value": "value"}
    model = TIDESClassifier(**roles, channels=["x"], **QUICK).fit(long)
    assert model.schema_.channels == ("x",)
    notes = long.assign(item="notes", value=0.5)
    np.testing.assert_array_equal(model.predict_proba(pd.concat([long, notes])), model.predict_proba(long))


def test_plain_series_are_told_their_unit() -> None:
    with pytest.raises(DataError, match=r"horizon: found '2h', .* no unit; give a number, or say the unit \(unit=\)"):
        cross_val_score(TIDESForecaster("2h", **QUICK), list(levels(12)), cv=2, error_score="raise")
    for unit, X in (("h", list(levels(12))), (None, levels(12))):
        scores = cross_val_score(TIDESForecaster("2h", unit=unit, **QUICK), X, cv=2, error_score="raise")
        assert np.isfinite(scores).all()


def test_series_and_tables_have_times_of_their_own() -> None:
    table = smokers("light", "heavy").drop(columns="smokes")
    of_series, of_tables = (
        TIDESClassifier(**QUICK).fit(levels(12)),
        TIDESClassifier(id="p", time="t", label="y", **QUICK),
    )
    with pytest.raises(DataError, match="times: the series have times of their own"):
        of_series.predict(levels(12), times=np.arange(3.0))
    with pytest.raises(DataError, match="times: the table has times of its own in column 't'"):
        of_tables.fit(table, times=np.arange(4.0))


def test_a_data_set_has_the_channels_and_the_unit_of_training() -> None:
    data = levels(12)
    model = TIDESClassifier(**QUICK).fit(data)
    wanted = model.predict_proba(data)
    # Names and units that nobody stated contradict nothing.
    for channels, unit in ((("a", "b"), None), (None, "h"), (None, None)):
        found = model.predict_proba(IrregularDataset(list(data), channels=channels, unit=unit))
        np.testing.assert_array_equal(found, wanted)
    unnamed = TIDESClassifier(**QUICK).fit(IrregularDataset(list(data)))
    np.testing.assert_array_equal(unnamed.predict_proba(data), unnamed.predict_proba(list(data)))
    for channels, unit, message in (
        (("a", "c"), "h", "X: channel 'c' is new; the model was trained on 'a', 'b'"),
        (("b", "a"), "h", "X: found channels 'b', 'a'; the model was trained on 'a', 'b'"),
        (("a", "b"), "min", "X: times are in 'min'; the model was trained in 'h'"),
    ):
        with pytest.raises(DataError, match=message):
            model.predict(IrregularDataset(list(data), channels=channels, unit=unit))
    one = [series.replace(values=series.values[:, :1], observed=series.observed[:, :1]) for series in data]
    with pytest.raises(DataError, match="X: found channels 'a'; the model was trained on 'a', 'b'"):
        model.predict(IrregularDataset(one, channels=("a",)))


def test_channels_of_unequal_lengths_are_named_by_their_case() -> None:
    with pytest.raises(DataError, match=r"X\[0\] does not hold numbers"):
        TIDESClassifier(**QUICK).fit([[[1, 2, 3], [3, 4]], [[1, 2], [3, 4]]], [0, 1])


def test_entries_of_a_masked_matrix_are_missing() -> None:
    X, y = np.random.default_rng(0).normal(size=(12, 5)), np.arange(12) % 2
    masked = np.ma.array(X, mask=X > 1)
    model = TIDESClassifier(**QUICK).fit(masked, y)
    np.testing.assert_array_equal(model.to_dataset(masked)[0].observed[:, 0], X[0] <= 1)
    np.testing.assert_array_equal(model.predict_proba(masked), model.predict_proba(np.where(X > 1, np.nan, X)))


def test_a_part_without_the_columns_of_series_and_time_is_no_matrix() -> None:
    table = smokers("heavy", "light").drop(columns="smokes")
    for parts in ({"label": "y"}, {"static": ["y"]}, {"channels": ["x"]}, {"group": "p"}):
        with pytest.raises(DataError, match="say which columns name the series and the time"):
            TIDESClassifier(**parts, **QUICK).fit(table, table.y)


def test_a_dictionary_of_frames_is_no_dictionary_of_pypots() -> None:
    with pytest.raises(DataError, match=r"X is a dictionary with keys '0', '1', '10', .*; wanted 'X'"):
        TIDESClassifier(**QUICK).fit(dict(iter(smokers("heavy", "light").groupby("p"))), np.arange(12) % 2)


def test_parts_that_scikit_learn_cuts_keep_their_names() -> None:
    data = levels(24)
    train, test = train_test_split(data, test_size=0.25, stratify=data.labels, random_state=0)
    assert (len(train), len(test)) == (18, 6)
    assert train.schema == test.schema == data.schema
    model = TIDESClassifier(**QUICK).fit(train)
    assert model.schema_.channels == ("a", "b")
    assert set(model.predict(test)) <= {"low", "high"}


def test_a_model_that_was_trained_with_times_wants_times() -> None:
    rng, y = np.random.default_rng(0), np.arange(12) % 2
    X, times = rng.normal(size=(12, 2, 5)), np.arange(5.0) * 100
    for trained in (TIDESClassifier(**QUICK).fit(X, y, times=times), TIDESClassifier(**QUICK).fit(levels(12))):
        assert len(trained.predict(X, times=times)) == 12
        for call in (lambda one: one.predict(X), lambda one: one.score(X, y)):
            with pytest.raises(DataError, match="times: found none, but the model was trained with times"):
                call(trained)
    with pytest.raises(DataError, match="times: found none"):
        # Without metadata routing scikit-learn gives them to `fit` alone.
        cross_validate(TIDESClassifier(**QUICK), X, y, params={"times": times}, cv=2, error_score="raise")
    for without in (TIDESClassifier(**QUICK), TIDESClassifier(unit="h", **QUICK)):
        assert len(without.fit(X, y).predict(X)) == 12
    samples = IrregularDataset(list(levels(12)), unit="sample")  # as the data sets of the UEA archive are counted
    assert len(TIDESClassifier(**QUICK).fit(samples).predict(X)) == 12


def test_an_array_with_more_channels_than_steps_is_doubted() -> None:
    rng, y = np.random.default_rng(0), np.arange(12) % 2
    X = rng.normal(size=(12, 5, 2))
    with pytest.warns(UserWarning, match=r"X: read 5 channels of at most 2 steps; state layout='time-first'"):
        TIDESClassifier(**QUICK).fit(X, y)
    with pytest.warns(UserWarning, match=r"X: read 5 channels"):
        TIDESClassifier(**QUICK).fit(list(X), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TIDESClassifier(**QUICK).fit([*X.transpose(0, 2, 1), X[0, :2, :1]], [*y, 0])  # one is short, others are not
        model = TIDESClassifier(layout="channels-first", **QUICK).fit(X, y)
        model = TIDESClassifier(layout="time-first", **QUICK).fit(X, y)
        model = TIDESClassifier(**QUICK).fit(X.transpose(0, 2, 1), y)
        model.predict(X[:, :2, :1])  # the beginning of a series, of a model that knows how many channels there are
