"""Weights of series: 0 is left out, 1 is as good as none, and every way to state them means the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score

from tests.estimators.series import FAST, levels, relaxing
from tides.data import IrregularDataset
from tides.errors import ConfigError, DataError, TidesError
from tides.estimators import TIDESClassifier, TIDESForecaster, TIDESRegressor, load_estimator
from tides.estimators.scorecard import scorecard

QUICK: dict[str, Any] = {**FAST, "epochs": 2}
N = 24
ROLES: dict[str, Any] = {"id": "p", "time": "t"}


def table(n: int = N, **columns: Any) -> pd.DataFrame:
    """A table whose ids are the numbers from 100 on, with these columns of one entry per series."""
    rows = [(100 + one.id, t, *row) for one in levels(n) for t, row in zip(one.times, one.values, strict=True)]
    frame = pd.DataFrame(rows, columns=["p", "t", "a", "b"])
    return frame.assign(**{name: np.asarray(column)[frame["p"] - 100] for name, column in columns.items()})


def some_weights(n: int = N) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).uniform(0.5, 2.0, n)


def answers(model: Any, X: Any) -> Any:
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


@pytest.mark.parametrize("kind", [TIDESClassifier, TIDESRegressor])
def test_zero_is_left_out_and_equal_weights_are_as_good_as_none(kind: Any) -> None:
    data = levels(40)
    y = np.arange(40) % 2 if kind is TIDESClassifier else np.arange(40.0)
    weights = (np.arange(40) % 5 > 0).astype(float)
    rest = np.flatnonzero(weights)
    model = kind(**QUICK).fit(data, y, sample_weight=weights)
    removed = kind(**QUICK).fit(data[rest], y[rest])
    assert model.series_ == removed.series_
    np.testing.assert_array_equal(answers(model, data), answers(removed, data))
    plain = answers(kind(**QUICK).fit(data, y), data)
    for equal in (np.ones(40), [7] * 40, np.full(40, 1e-300)):
        np.testing.assert_array_equal(answers(kind(**QUICK).fit(data, y, sample_weight=equal), data), plain)
    assert not np.allclose(answers(kind(**QUICK).fit(data, y, sample_weight=some_weights(40)), data), plain)


def test_a_class_without_weight_is_no_class() -> None:
    y = np.arange(N) % 3
    model = TIDESClassifier(**QUICK).fit(levels(N), y, sample_weight=y < 2)
    assert model.classes_.tolist() == [0, 1]
    with pytest.raises(DataError, match="have one class, 1"):
        TIDESClassifier(**QUICK).fit(levels(N), y, sample_weight=y == 1)


def test_the_heavier_of_two_opinions_is_learnt() -> None:
    """Of every two equal series one says the contrary of the other."""
    data = levels(40)
    twice = data[np.repeat(np.arange(40), 2)]
    y = np.stack([data.labels, 1 - data.labels], axis=1).ravel()  # type: ignore[operator]
    heavy = np.tile([5.0, 1.0], 40)
    for weights, right in ((heavy, True), (6 - heavy, False)):
        model = TIDESClassifier(**FAST, validation=0.0).fit(twice, y, sample_weight=weights)
        assert (model.score(data, data.labels) > 0.9) == right
        share = model.predict_proba(data).max(axis=1).mean()
        assert 0.7 < share < 0.95  # 5/6 where the loss is right


@pytest.mark.parametrize("kind", [TIDESClassifier, TIDESRegressor])
def test_every_way_to_state_them_means_the_same(kind: Any) -> None:
    weights, y = some_weights(), np.arange(N) % 2
    frame, columns = table(), {**ROLES, **QUICK}
    wanted = kind(**columns).fit(frame, y, sample_weight=weights)
    by_id = pd.Series(weights, index=pd.Index(np.arange(100, 100 + N), name="p")).sample(frac=1, random_state=0)
    by_row = pd.Series(weights, index=frame.drop_duplicates("p").index)
    named = table(w=weights, y=y)
    series = [one.replace(weight=w, label=label) for one, w, label in zip(levels(N), weights, y.tolist(), strict=True)]
    data = IrregularDataset(series, channels=("a", "b"))
    plain = levels(N)
    for model, X in (
        (kind(**columns).fit(frame, y, sample_weight=by_id), frame),
        (kind(**columns).fit(frame, y, sample_weight=by_row), frame),
        (kind(**columns, weight="w", label="y").fit(named), frame),
        (kind(**columns, weight="w", label="y").fit(named), named),
        (
            kind(**columns, weight="w").fit(table(w=1 / weights), y, sample_weight=list(weights)),
            named.drop(columns="y"),
        ),
        (kind(**QUICK).fit(data), plain),
        (kind(**QUICK).fit(list(data)), plain),
        (kind(**QUICK).fit(data, y, sample_weight=5 * weights), plain),
    ):
        np.testing.assert_allclose(answers(model, X), answers(wanted, frame), rtol=1e-5, atol=1e-6)
    # Scores count all series the same unless they are told otherwise.
    assert kind(**QUICK).fit(data).score(data) == kind(**QUICK).fit(data).score(plain, y)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0] * (N - 1) + [-1.0], r"sample_weight: series 123 has -1\.0, wanted a finite number ≥ 0"),
        ([1.0, np.nan] * (N // 2), "sample_weight: series 101 has nan"),
        ([np.inf, 1.0] * (N // 2), "sample_weight: series 100 has inf"),
        (pd.Series([1, None] * (N // 2), dtype="Int64"), "sample_weight: series 101 has nan"),
        (["heavy"] * N, "sample_weight: found other things than numbers, wanted one for each"),
        (np.ones(N - 1), r"sample_weight: found shape \(23,\), wanted one weight for each of 24 series"),
        (np.ones((N, 2)), r"sample_weight: found shape \(24, 2\)"),
        (2.0, r"sample_weight: found shape \(\)"),
        (np.zeros(N), "sample_weight: every weight is zero"),
        (np.ones(len(table())), r"sample_weight: found \d+ weights, one for each row .* or weight=… for a column"),
        (pd.Series(1.0, index=range(101, 101 + N)), "sample_weight: found an index without 100, the id of a series"),
        (np.arange(N).astype("datetime64[s]"), "sample_weight: found other things than numbers, wanted one for each"),
    ],
)
def test_weights_that_make_no_sense(weights: Any, message: str) -> None:
    for kind in (TIDESClassifier, TIDESRegressor):
        with pytest.raises(DataError, match=message):
            kind(**ROLES, **QUICK).fit(table(), np.arange(N) % 2, sample_weight=weights)
    model = TIDESRegressor(**ROLES, **{**QUICK, "epochs": 1}).fit(table(), np.arange(N) % 2)
    with pytest.raises(DataError, match=message):
        model.score(table(), np.arange(N) % 2, sample_weight=weights)


def test_columns_of_weights_that_make_no_sense() -> None:
    columns: dict[str, Any] = {**ROLES, **QUICK, "label": "y", "weight": "w"}
    y = np.arange(N) % 2
    frame = table(y=y, w=np.ones(N))
    for change, message in (
        ({"w": frame["w"].where(frame["p"] != 103)}, "column 'w': p 103 has no weight"),
        (
            {"w": frame["w"].where(frame.index != 3, 2.0)},
            "column 'w' must have one value per 'p', but p 100 has 1.0 and",
        ),
        ({"w": -frame["w"]}, "column 'w': found -1.0; wanted weights"),
        ({"w": "heavy"}, "column 'w': found 'heavy'; wanted weights"),
        ({"w": 0}, "weight: every weight is zero"),
    ):
        with pytest.raises(DataError, match=message):
            TIDESClassifier(**columns).fit(frame.assign(**change))
    with pytest.raises(DataError, match="weight='w' is not a column"):
        TIDESClassifier(**columns).fit(frame.drop(columns="w"))
    with pytest.raises(DataError, match="label and weight are the same column 'y'"):
        TIDESClassifier(**{**columns, "weight": "y"}).fit(frame)


def test_class_weights_multiply_them() -> None:
    data, y, weights = levels(N), np.arange(N) % 2, some_weights()
    both = TIDESClassifier(**QUICK, class_weight={0: 3.0, 1: 0.5}).fit(data, y, sample_weight=weights)
    product = TIDESClassifier(**QUICK).fit(data, y, sample_weight=weights * np.where(y == 0, 3.0, 0.5))
    np.testing.assert_allclose(both.predict_proba(data), product.predict_proba(data), rtol=1e-5, atol=1e-6)
    # Balanced is what makes the classes' sums of weights equal.
    balanced = TIDESClassifier(**QUICK, validation=0.0, class_weight="balanced").fit(data, y, sample_weight=1 + 3.0 * y)
    plain = TIDESClassifier(**QUICK, validation=0.0).fit(data, y)
    np.testing.assert_allclose(balanced.predict_proba(data), plain.predict_proba(data), rtol=1e-5, atol=1e-6)


def test_scores() -> None:
    frame, y, weights = table(), np.arange(N) % 2, some_weights()
    wrong = np.where(np.arange(N) < 5, 1 - y, y)
    clf = TIDESClassifier(**ROLES, **FAST).fit(frame, y)
    hits = clf.predict(frame) == wrong
    by_id = pd.Series(weights, index=np.arange(100, 100 + N)).sample(frac=1, random_state=0)
    assert clf.score(frame, wrong, by_id) == pytest.approx(np.average(hits, weights=weights))
    assert clf.score(frame, wrong) == hits.mean() != clf.score(frame, wrong, by_id)
    reg = TIDESRegressor(**ROLES, **QUICK).fit(frame, y)
    spread = np.average((y - np.average(y, weights=weights)) ** 2, weights=weights)
    error = np.average((y - reg.predict(frame)) ** 2, weights=weights)
    assert reg.score(frame, y, by_id) == pytest.approx(1 - error / spread)


@pytest.mark.parametrize("kind", [TIDESClassifier, TIDESRegressor])
def test_scorecards_and_scores_know_ratios_alone(kind: Any) -> None:
    frame, weights = table(y=np.arange(N) % 2), some_weights()
    model = kind(**ROLES, **QUICK, label="y", weight="w").fit(frame.assign(w=1.0))

    def metrics(numbers: Any) -> Any:
        weighed = frame.assign(w=numbers[frame["p"] - 100])
        return scorecard(model, model.to_dataset(weighed, labelled=True, weighted=True))["metrics"]

    wanted = metrics(weights)
    for name, values in metrics(1e308 / 2 * weights).items():
        assert values[0] == pytest.approx(wanted[name][0], rel=1e-9), name
        assert values[1] is None or values[1:] == pytest.approx(wanted[name][1:], rel=1e-9), name
    assert model.score(frame, sample_weight=1e308 / 2 * weights) == pytest.approx(
        model.score(frame, sample_weight=weights)
    )
    with pytest.raises(DataError, match="weight: every weight is zero, wanted some above zero"):
        metrics(np.zeros(N))


def test_cross_validation_and_searches_cut_them_with_the_series() -> None:
    data, weights = levels(N), some_weights()
    model = TIDESClassifier(**QUICK)
    search = GridSearchCV(model, {"depth": [1]}, cv=2).fit(data, data.labels, sample_weight=weights)
    assert search.best_estimator_.classes_.tolist() == [0, 1]
    assert len(cross_val_score(model, data, data.labels, cv=2, params={"sample_weight": weights})) == 2


def test_a_saved_model_leaves_the_column_alone_and_a_run_knows_its_weights(tmp_path: Path) -> None:
    y = np.arange(N) % 2
    frame = table(y=y, w=some_weights())
    model = TIDESClassifier(**ROLES, **QUICK, label="y", weight="w", folder=tmp_path / "run").fit(frame)
    model.save(tmp_path / "model")
    loaded = load_estimator(tmp_path / "model")
    assert loaded.weight == "w"
    for new in (frame, frame.drop(columns=["w", "y"])):
        np.testing.assert_array_equal(loaded.predict_proba(new), model.predict_proba(frame))  # type: ignore[attr-defined]
    assert loaded.to_dataset(frame, labelled=True).weights is None
    np.testing.assert_array_equal(loaded.to_dataset(frame, weighted=True).weights, some_weights())
    assert model.fit(frame.assign(w=2 * frame["w"])).n_iter_ == 2  # ratios alone count: the same run
    with pytest.raises(TidesError, match="use another folder"):
        model.fit(frame.assign(w=frame["w"].where(frame["p"] > 110, 9.0)))


def test_a_forecaster_trains_with_the_weights_of_its_series() -> None:
    data, small = relaxing(30), {**QUICK, "origins": 2}
    weights = (np.arange(30) % 3 > 0).astype(float)

    def weighed(numbers: Any) -> IrregularDataset:
        return IrregularDataset(
            [one.replace(weight=w) for one, w in zip(data, numbers, strict=True)], schema=data.schema
        )

    def mean(X: IrregularDataset) -> Any:
        return TIDESForecaster(2.0, **small).fit(X).predict(data)

    np.testing.assert_array_equal(mean(weighed(weights)), mean(data[np.flatnonzero(weights)]))
    np.testing.assert_array_equal(mean(weighed(np.full(30, 3.0))), mean(data))
    assert not np.allclose(mean(weighed(1 + np.arange(30.0))), mean(data))


def partly(y: Any, *places: int, nothing: Any = None) -> Any:
    found = np.array(y, object)
    found[list(places)] = nothing
    return found


@pytest.mark.parametrize("nothing", [None, np.nan, pd.NA])
def test_series_without_a_label_are_left_out_when_asked(nothing: Any) -> None:
    data, y = levels(N), np.arange(N) % 2
    rest, some = np.setdiff1d(np.arange(N), [3, 7]), partly(y, 3, 7, nothing=nothing)
    model = TIDESClassifier(**QUICK, unlabelled="drop")
    wanted = TIDESClassifier(**QUICK).fit(data[rest], y[rest])
    for stated in (some.tolist(), some, pd.Series(some)):
        with pytest.warns(UserWarning, match="2 of 24 series without a label: 3, 7; left out"):
            model.fit(data, stated)
        np.testing.assert_array_equal(model.predict_proba(data), wanted.predict_proba(data))
    with pytest.warns(UserWarning, match="left out"):
        assert model.score(data, some, sample_weight=np.ones(N)) == wanted.score(data[rest], y[rest])
    with pytest.raises(ValueError, match=r"y: entry 3 is missing|Input y contains NaN"):
        TIDESClassifier(**QUICK).fit(data, some)
    with pytest.raises(ConfigError, match="unlabelled: found 'leave', wanted 'error' or 'drop'"):
        TIDESClassifier(**QUICK, unlabelled="leave").fit(data, y)  # type: ignore[arg-type]


def test_unlabelled_series_of_tables_and_data_sets() -> None:
    y = np.arange(N, dtype=float)
    some = np.where(np.isin(np.arange(N), [3, 7]), np.nan, y)
    weights = some_weights()
    rest = np.flatnonzero(~np.isnan(some))
    frame = table(y=some, w=weights)
    wanted = TIDESRegressor(**ROLES, **QUICK).fit(frame[frame["y"].notna()].drop(columns=["y", "w"]), y[rest])
    model = TIDESRegressor(**ROLES, **QUICK, label="y", unlabelled="drop")
    with pytest.warns(UserWarning, match="column 'y': 2 of 24 series without a label: 103, 107; left out"):
        model.fit(frame.drop(columns="w"))
    np.testing.assert_array_equal(model.predict(frame.drop(columns="w")), wanted.predict(frame[["p", "t", "a", "b"]]))
    with pytest.warns(UserWarning, match="left out"):
        weighed = model.set_params(weight="w").fit(frame).predict(frame)
    with pytest.warns(UserWarning, match="left out"):
        again = TIDESRegressor(**ROLES, **QUICK, unlabelled="drop").fit(table(), some, sample_weight=weights)
    np.testing.assert_array_equal(again.predict(table()), weighed)
    with pytest.raises(DataError, match=r"2 of 24 series without a label: 103, 107; .* unlabelled='drop'"):
        TIDESRegressor(**ROLES, **QUICK, label="y", weight="w").fit(frame)
    data = IrregularDataset([one.replace(label=None if one.id in (3, 7) else one.label) for one in levels(N)])
    with pytest.warns(UserWarning, match="2 of 24 series without a label: 3, 7; left out"):
        found = TIDESClassifier(**QUICK, unlabelled="drop").fit(data)
    assert sum(found.series_.values()) == N - 2
    with pytest.raises(DataError, match="has no label while others have one"):
        TIDESClassifier(**QUICK).fit(data)
    numbers = IrregularDataset([one.replace(label=label) for one, label in zip(levels(N), some.tolist(), strict=True)])
    with pytest.warns(UserWarning, match="2 of 24 series without a label: 3, 7; left out"):
        nan = TIDESRegressor(**QUICK, unlabelled="drop").fit(numbers)
    np.testing.assert_array_equal(nan.predict(numbers), TIDESRegressor(**QUICK).fit(numbers[rest]).predict(numbers))
    with pytest.raises(ValueError, match="NaN"):
        TIDESRegressor(**QUICK).fit(numbers)
    with pytest.raises(ValueError, match="NaN"):
        TIDESRegressor(**QUICK, unlabelled="drop").fit(levels(N), np.full(N, np.nan))
    targets = np.stack([some, y], axis=1)
    with pytest.raises(ValueError, match="NaN"):  # half a label is a mistake
        TIDESRegressor(**QUICK, unlabelled="drop").fit(levels(N), targets)


def test_labels_under_a_mask_are_missing() -> None:
    y = np.arange(N) % 2
    masked = np.ma.masked_array(y, mask=np.isin(np.arange(N), [3, 7]))
    for kind in (TIDESClassifier, TIDESRegressor):
        with pytest.raises(ValueError, match=r"y: entry 3 is missing|Input y contains NaN"):
            kind(**QUICK).fit(levels(N), masked)
        with pytest.warns(UserWarning, match="2 of 24 series without a label: 3, 7; left out"):
            found = kind(**QUICK, unlabelled="drop").fit(levels(N), masked)
        rest = np.flatnonzero(~masked.mask)
        np.testing.assert_array_equal(
            answers(found, levels(N)), answers(kind(**QUICK).fit(levels(N)[rest], y[rest]), levels(N))
        )


@pytest.mark.parametrize("kind", [TIDESClassifier, TIDESRegressor, TIDESForecaster])
def test_who_is_answered_needs_neither_label_nor_weight(kind: Any) -> None:
    """Nor must all have one or none: those without are often the ones to be answered for."""
    plain = levels(N)
    model = kind(**QUICK, **({"horizon": 2.0} if kind is TIDESForecaster else {})).fit(plain)
    wanted = answers(model, plain)
    for blank in ({"label": None}, {"label": np.nan}, {"weight": 2.0}):
        some = [one.replace(**blank) if one.id in (3, 7) else one for one in plain]
        np.testing.assert_array_equal(answers(model, IrregularDataset(some, schema=plain.schema)), wanted)
    if kind is TIDESForecaster:
        assert model.score(IrregularDataset(some, schema=plain.schema)) == model.score(plain)
