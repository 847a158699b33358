from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import tides
from tests.estimators.series import FAST, levels
from tides.data import IrregularDataset
from tides.errors import ConfigError, DataError
from tides.estimators import TIDESClassifier, TIDESRegressor
from tides.training.evaluation import load_batch


@pytest.fixture(scope="module")
def fitted() -> TIDESClassifier:
    return TIDESClassifier(**FAST).fit(levels())


def wide_table(n: int = 30) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = []
    for i in range(n):
        for t in np.sort(rng.uniform(0, 48, int(rng.integers(3, 9)))):
            when = pd.Timestamp("2031-05-01") + pd.Timedelta(hours=t)
            hr = np.nan if rng.random() < 0.3 else 80 + 30 * (i % 2) + rng.normal()
            static = {"age": np.nan if i == 3 else 40.0 + i, "sex": "f" if i % 3 else "m"}
            rows.append(
                {"patient": f"p{i}", "charttime": when, "hr": hr, "spo2": rng.normal(), "died": i % 2, **static}
            )
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


TABLE: dict[str, Any] = {"id": "patient", "time": "charttime", "label": "died", "static": ["age", "sex"], "unit": "h"}


def test_ragged_series_with_holes_are_learnt(fitted: TIDESClassifier) -> None:
    fresh = levels(40, seed=1)
    assert fitted.score(fresh) > 0.9
    assert fitted.classes_.tolist() == ["low", "high"]
    assert set(fitted.predict(fresh)) == {"low", "high"}
    probabilities = fitted.predict_proba(fresh)
    assert probabilities.shape == (40, 2)
    np.testing.assert_allclose(probabilities.sum(1), 1)


def test_answers_do_not_depend_on_the_rest_of_the_batch(fitted: TIDESClassifier) -> None:
    fresh = levels(20, seed=2)
    together = fitted.predict_proba(fresh)
    alone = np.concatenate([fitted.predict_proba(fresh[i : i + 1]) for i in range(20)])
    np.testing.assert_allclose(alone, together, rtol=1e-10)


def test_the_same_seed_gives_the_same_model(fitted: TIDESClassifier) -> None:
    for seed in (0, np.int64(0)):
        again = TIDESClassifier(**{**FAST, "random_state": seed}).fit(levels())
        np.testing.assert_array_equal(again.predict_proba(levels(5, 3)), fitted.predict_proba(levels(5, 3)))


def test_saved_and_loaded_it_answers_the_same(fitted: TIDESClassifier, tmp_path: Path) -> None:
    fresh = levels(8, seed=1)
    loaded = TIDESClassifier.load(fitted.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(fresh), fitted.predict_proba(fresh))
    assert loaded.predict(fresh).tolist() == fitted.predict(fresh).tolist()
    assert {path.name for path in (tmp_path / "model").iterdir()} == {
        "config.json",
        "model.safetensors",
        "estimator.json",
    }
    assert isinstance(tides.load(tmp_path / "model"), tides.SequenceClassifier)
    assert isinstance(tides.estimators.load_estimator(tmp_path / "model"), TIDESClassifier)
    with pytest.raises(ConfigError, match="holds a TIDESClassifier"):
        TIDESRegressor.load(tmp_path / "model")
    with pytest.raises(DataError, match=r"has no estimator\.json"):
        TIDESClassifier.load(tmp_path)


def test_the_network_on_disk_needs_no_preprocessing(fitted: TIDESClassifier, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    network = tides.load(tmp_path)
    batch = tides.data.collate(levels(6, seed=4))
    logits = network(batch.values, network.gaps(batch.times, batch.valid), observed=batch.observed, valid=batch.valid)
    found = logits.softmax(-1).detach().numpy()
    np.testing.assert_allclose(found, fitted.predict_proba(levels(6, seed=4)), atol=1e-4)


def test_tables_with_dates_static_columns_and_holes(tmp_path: Path) -> None:
    table = wide_table()
    model = TIDESClassifier(**TABLE, **FAST).fit(table)
    assert model.classes_.tolist() == [0, 1]
    assert model.schema_.static_names == ("age", "sex=f", "sex=m")
    assert model.score(table) > 0.8
    new = table.drop(columns="died")
    wanted = pd.Series(model.predict(new), index=model.to_dataset(new).ids)
    table.drop(columns="died").to_csv(tmp_path / "new.csv", index=False)
    found = pd.Series(model.predict(tmp_path / "new.csv"), index=model.to_dataset(tmp_path / "new.csv").ids)
    pd.testing.assert_series_equal(found, wanted)
    loaded = TIDESClassifier.load(model.save(tmp_path / "model"))
    np.testing.assert_allclose(loaded.predict_proba(new), model.predict_proba(new))


def test_labels_by_id_find_their_series() -> None:
    """Ids as text sort p0, p1, p10, …: labels in another order must not be taken by position."""
    table = pd.DataFrame(
        [(f"p{one.id}", t, a, b) for one in levels(24) for t, (a, b) in zip(one.times, one.values, strict=True)],
        columns=["p", "t", "a", "b"],
    )
    by_id = pd.Series({f"p{i}": i % 2 for i in range(24)})
    model = TIDESClassifier(id="p", time="t", **FAST).fit(table, by_id)
    assert model.score(table, by_id) == model.score(table, by_id.sort_index().to_numpy()) > 0.9
    assert model.score(table, by_id.sort_index().reset_index(drop=True)) > 0.9  # another index: in the order of ids


@pytest.mark.parametrize(
    "classes", [[9, 10], ["9", "10"], [0.5, 1.5], [1.0, 2.0], [True, False], ["True", "False"], ["a", "b"]]
)
def test_classes_come_back_as_they_stood_in_the_table(classes: list[Any], tmp_path: Path) -> None:
    rows = [(i, t, i % 2 + t / 10, classes[i % 2]) for i in range(8) for t in range(3)]
    table = pd.DataFrame(rows, columns=["i", "t", "x", "y"])
    model = TIDESClassifier(id="i", time="t", label="y", **{**FAST, "epochs": 1}).fit(table)
    assert set(model.classes_.tolist()) == set(classes)
    for one in (model, TIDESClassifier.load(model.save(tmp_path))):
        assert {type(answer) for answer in one.predict(table).tolist()} <= {
            type(name) for name in model.classes_.tolist()
        }
        assert one.score(table) == np.mean(one.predict(table) == table.groupby("i")["y"].first().to_numpy())


def test_an_answer_that_is_not_finite_names_the_series(fitted: TIDESClassifier) -> None:
    fresh = list(levels(4, seed=3))
    fresh[2] = fresh[2].replace(values=fresh[2].values * 1e300)
    with pytest.raises(DataError, match=r"series 2: the answer is not finite; .* found values up to \d.*e\+300"):
        fitted.predict(fresh)


def test_long_tables() -> None:
    kept = ["patient", "charttime", "died"]
    long = wide_table().melt(kept, ["hr", "spo2"], "item", "value").dropna()
    roles = {"id": "patient", "time": "charttime", "label": "died", "channel": "item", "value": "value", "unit": "h"}
    model = TIDESClassifier(**roles, **FAST).fit(long)
    assert model.schema_.channels == ("hr", "spo2")
    assert model.score(long) > 0.8
    with pytest.raises(DataError, match="channel 'lactate' is not among"):
        model.predict(long.assign(item="lactate"))


def test_a_table_in_minutes_is_the_table_in_hours() -> None:
    hours = TIDESClassifier(**TABLE, **FAST).fit(wide_table())
    minutes = TIDESClassifier(**{**TABLE, "unit": "min"}, **FAST).fit(wide_table())
    np.testing.assert_allclose(minutes.predict_proba(wide_table()), hours.predict_proba(wide_table()), atol=2e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time": "chartime"}, r"time='chartime' is not a column; did you mean 'charttime'\?"),
        ({"id": None}, "say which columns name the series"),
        ({"static": "age"}, "static: found 'age', wanted a list"),
        ({"value": "hr"}, "channel and value belong together"),
    ],
)
def test_wrong_columns_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises((DataError, ConfigError), match=message):
        TIDESClassifier(**{**TABLE, **change}, **FAST).fit(wide_table())


def test_helpful_lines_about_hopeless_tables() -> None:
    table = wide_table()
    with pytest.raises(DataError, match=r"label 'died': all 30 series have one class, 1"):
        TIDESClassifier(**TABLE, **FAST).fit(table.assign(died=1))
    rough = table.assign(charttime=table.groupby("patient")["charttime"].transform("min").dt.normalize())
    with pytest.raises(DataError, match=r"no series has two different times|twice at the same"):
        TIDESClassifier(**TABLE, **FAST).fit(rough)
    spoken = table.assign(charttime="yesterday")
    with pytest.raises(DataError, match="found 'yesterday'; wanted a number or an ISO 8601 date"):
        TIDESClassifier(**TABLE, **FAST).fit(spoken)
    model = TIDESClassifier(**TABLE, **{**FAST, "epochs": 1}).fit(table)
    with pytest.raises(DataError, match=r"column 'lactate' is new; the model was trained on 'hr', 'spo2'"):
        model.predict(table.assign(lactate=1.0))
    with pytest.raises(DataError, match="'hr' is not a column"):
        model.predict(table.drop(columns="hr"))


def test_gaps_that_are_all_zero_are_refused() -> None:
    still = IrregularDataset([one.replace(times=np.zeros(len(one))) for one in levels(6)], unit="d")
    with pytest.raises(DataError, match=r"times in unit 'd': no series has two different times"):
        TIDESClassifier(**FAST).fit(still)


def test_arrays_lists_and_dictionaries_are_the_same_data() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(24) % 2
    X = rng.normal(size=(24, 2, 6)) + 3 * y[:, None, None]
    times = np.sort(rng.uniform(0, 5, (24, 6)), axis=1)
    wanted = TIDESClassifier(**FAST).fit(X, y, times=times).predict_proba(X, times=times)
    for same in (list(X), {"X": X.transpose(0, 2, 1)}):
        found = TIDESClassifier(**FAST).fit(same, y, times=times).predict_proba(same, times=times)
        np.testing.assert_array_equal(found, wanted)
    whole = {"X": X.transpose(0, 2, 1), "y": y}
    labelled = TIDESClassifier(**FAST).fit(whole, times=times)
    np.testing.assert_array_equal(labelled.predict_proba(whole, times=times), wanted)
    assert labelled.score(whole, times=times) == labelled.score(X, y, times=times)
    assert labelled.classes_.dtype == y.dtype
    shared = TIDESClassifier(**FAST).fit(X, y.astype(str), times=times[0])
    assert shared.score(X, y.astype(str), times=times[0]) > 0.8
    dates = np.datetime64("2031-05-01") + (times * 3600).astype("timedelta64[s]")
    dated = TIDESClassifier(unit="h", **FAST).fit(X, y, times=dates)
    assert dated.schema_.origin is not None
    np.testing.assert_allclose(dated.predict_proba(X, times=dates), wanted, atol=1e-3)
    with pytest.raises(DataError, match="times: found dates, but the model was trained on numbers without a unit"):
        shared.predict(X, times=dates)
    for numbers, found in ((times, "numbers"), (None, "none")):
        with pytest.raises(DataError, match=f"times: found {found}, but the model was trained on dates"):
            dated.predict(X, times=numbers)


def test_dates_beside_arrays_count_in_the_unit_of_the_training_data() -> None:
    data = levels(24)  # in hours
    model = TIDESClassifier(**FAST).fit(data)
    X, hours = np.ones((1, 2, 5)), np.array([0.0, 1.0, 3.0, 4.0, 9.0])
    dates = np.datetime64("2031-05-01T00:00:00") + (hours * 3600).astype("timedelta64[s]")
    wanted = model.predict_proba(X, times=hours)
    zoned = pd.DatetimeIndex(dates, tz="UTC").tz_convert("Europe/Berlin")
    for same in (dates, zoned, pd.Series(zoned), [zoned]):
        np.testing.assert_allclose(model.predict_proba(X, times=same), wanted, rtol=1e-6)


def test_clone_pipeline_and_grid_search() -> None:
    estimator = TIDESClassifier(**FAST, class_weight="balanced")
    assert clone(estimator).get_params() == estimator.get_params()
    with pytest.raises(NotFittedError):
        estimator.predict(np.zeros((2, 3)))
    y = np.arange(40) % 2
    X = np.random.default_rng(0).normal(size=(40, 5)) + 3 * y[:, None]
    search = GridSearchCV(make_pipeline(StandardScaler(), estimator), {"tidesclassifier__hidden_size": [4, 8]}, cv=2)
    assert search.fit(X, y).best_score_ > 0.8
    over_series = GridSearchCV(estimator, {"depth": [1]}, cv=2).fit(levels(), [f"c{i % 2}" for i in range(40)])
    assert over_series.best_estimator_.predict(levels(4)).tolist() == ["c0", "c1", "c0", "c1"]


def test_a_fit_that_fails_leaves_no_network_of_other_data() -> None:
    model = TIDESClassifier(**FAST | {"epochs": 1}).fit(levels(12))
    with pytest.raises(ConfigError, match="hidden_size"):
        model.set_params(hidden_size=-1).fit(levels(12), np.array(["a", "b"])[np.arange(12) % 2])
    with pytest.raises(NotFittedError):
        model.predict(levels(3))
    assert set(model.set_params(hidden_size=8).fit(levels(12)).predict(levels(3))) <= {"low", "high"}


def test_class_weights() -> None:
    data = levels()[[*range(0, 40, 2), 1, 3, 5]]
    balanced = TIDESClassifier(**FAST, class_weight="balanced").fit(data)
    assert balanced.task_.class_weights[1] > 2  # type: ignore[attr-defined, index]
    with pytest.raises(ConfigError, match="class 'high' has no weight"):
        TIDESClassifier(**FAST, class_weight={"low": 1.0}).fit(data)
    with pytest.raises(ConfigError, match="class_weight: found 'even'"):
        TIDESClassifier(**FAST, class_weight="even").fit(data)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"class_weight: found \[1, 2\], wanted 'balanced', a mapping or None"):
        TIDESClassifier(**FAST, class_weight=[1, 2]).fit(data)  # type: ignore[arg-type]
    for weight, message in (
        (-5.0, "found -5.0 for class 'high'"),
        (np.nan, "found nan"),
        ("much", "found 'much' for class 'high'"),
        (0.0, "found 0 for every class"),
    ):
        with pytest.raises(ConfigError, match=f"class_weight: {message}"):
            TIDESClassifier(**FAST, class_weight={"low": 0.0, "high": weight}).fit(data)


def test_an_interrupted_fit_continues(tmp_path: Path) -> None:
    whole = TIDESClassifier(**FAST, folder=tmp_path / "run").fit(levels())
    again = TIDESClassifier(**FAST, folder=tmp_path / "run").fit(levels())
    np.testing.assert_array_equal(again.predict_proba(levels(5)), whole.predict_proba(levels(5)))
    with pytest.raises(ConfigError, match="use another folder"):
        TIDESClassifier(**{**FAST, "lr": 0.5}, folder=tmp_path / "run").fit(levels())


def test_a_run_in_a_folder_wants_a_seed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="random_state: found None, wanted a whole number"):
        TIDESClassifier(**{**FAST, "random_state": None}, folder=tmp_path / "run").fit(levels())
    assert not (tmp_path / "run").exists()


def test_no_old_description_stands_beside_a_new_network(
    fitted: TIDESClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted.save(tmp_path)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tides.estimators.folder.write_json", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fitted.save(tmp_path)
    with pytest.raises(DataError, match=r"has no estimator\.json"):
        TIDESClassifier.load(tmp_path)


def test_a_folder_is_not_continued_for_other_data_or_another_network(tmp_path: Path) -> None:
    data = levels(24)
    quick = {**FAST, "epochs": 1, "folder": tmp_path / "run"}
    TIDESClassifier(**quick).fit(data)
    turned = [1 - one.label for one in data]
    warmer = IrregularDataset([one.replace(values=one.values + 40) for one in data], schema=data.schema)
    hours = IrregularDataset(list(data), channels=("a", "b"), unit="min", class_names=("low", "high"))
    with pytest.raises(ConfigError, match="holds the run of other training series"):
        TIDESClassifier(**quick).fit(data, turned)
    for other in (warmer, hours):
        with pytest.raises(ConfigError, match="holds the run of other training series"):
            TIDESClassifier(**quick).fit(other)
    with pytest.raises(ConfigError, match="holds the run of another model"):
        TIDESClassifier(**quick, model={"hold": "preceding"}).fit(data)


def test_answers_are_those_of_evaluation_whatever_the_mode_of_the_network() -> None:
    model = TIDESClassifier(**{**FAST, "epochs": 1, "dropout": 0.5}).fit(levels(20))
    wanted = model.predict_proba(levels(5, seed=1))
    model.model_.train()
    np.testing.assert_array_equal(model.predict_proba(levels(5, seed=1)), wanted)
    assert model.model_.training


def test_a_very_long_series_does_not_make_the_others_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    data = levels(30, seed=3)
    model = TIDESClassifier(**FAST).fit(data)
    alone = np.concatenate([model.predict_proba(data[i : i + 1]) for i in range(30)])
    sizes: list[tuple[int, int]] = []

    def watched(network: Any, part: Any) -> Any:
        batch = load_batch(network, part)
        sizes.append(tuple(batch.valid.shape))
        return batch

    monkeypatch.setattr("tides.estimators.base.load_batch", watched)
    monkeypatch.setattr("tides.estimators.base._MOST_STEPS", 40)
    np.testing.assert_allclose(model.predict_proba(data), alone, rtol=1e-12)
    assert sum(count for count, _ in sizes) == 30
    assert all(count * steps <= 40 for count, steps in sizes)
    padding = sum(count * steps for count, steps in sizes) - int(data.lengths.sum())
    assert padding < 30
    monkeypatch.setattr("tides.estimators.base._MOST_STEPS", 1)
    np.testing.assert_allclose(model.predict_proba(data), alone, rtol=1e-12)
