import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import tides
from tests.estimators.series import FAST, relaxing
from tides.data import IrregularDataset, pieces
from tides.errors import ConfigError, DataError
from tides.estimators import TIDESForecaster
from tides.estimators.recipe import split_off
from tides.estimators.scorecard import scorecard

QUICK: dict[str, Any] = {**FAST, "epochs": 3, "origins": 1}


@pytest.fixture(scope="module")
def fitted() -> TIDESForecaster:
    return TIDESForecaster("3h", **FAST).fit(relaxing(60))


def test_answers_at_any_times(fitted: TIDESForecaster) -> None:
    fresh = relaxing(5, seed=1)
    last = np.array([one.times[-1] for one in fresh])
    assert fitted.horizon_ == 3.0
    assert fitted.predict(fresh).shape == (5, 1, 1)
    relative = fitted.predict(fresh, at="+1h, +90min, +2")
    absolute = fitted.predict(fresh, at=np.stack([last + 1, last + 1.5, last + 2], axis=1))
    np.testing.assert_allclose(relative, absolute)
    np.testing.assert_array_equal(fitted.predict(fresh, at=["+2", "+1h"]), relative[:, [2, 0]])
    assert fitted.predict(fresh, at=5.0).shape == (5, 1, 1)
    assert np.isfinite(fitted.predict(fresh, at=["-2h", 0.0, -1.0])).all()
    ragged = fitted.predict(fresh[:2], at=[[1.0, 2.0], [3.0]])
    assert [row.shape for row in ragged] == [(2, 1), (1, 1)]


def test_asking_more_changes_no_answer(fitted: TIDESForecaster) -> None:
    fresh = relaxing(4, seed=2)
    alone, among = fitted.predict(fresh, at="+2h"), fitted.predict(fresh, at="+1h,+2h,-1h,+3h")
    np.testing.assert_allclose(among[:, 1:2], alone, rtol=1e-9)


def test_times_may_be_a_tensor(fitted: TIDESForecaster) -> None:
    fresh = relaxing(2, seed=2)
    wanted = fitted.predict(fresh, at=[11.0, 12.5])
    np.testing.assert_array_equal(fitted.predict(fresh, at=torch.tensor([11.0, 12.5])), wanted)
    np.testing.assert_array_equal(fitted.predict(fresh, at=torch.tensor([[11.0, 12.5]] * 2)), wanted)


@pytest.mark.parametrize("count", [0, True, 2.0])
def test_a_backtest_asks_at_least_once(fitted: TIDESForecaster, count: Any) -> None:
    with pytest.raises(ConfigError, match="per_series: found"):
        fitted.backtest(relaxing(2), per_series=count)


def test_intervals_widen_with_coverage_and_lead(fitted: TIDESForecaster) -> None:
    fresh = relaxing(20, seed=3)
    for method in ("conformal", "gaussian"):
        low, high = fitted.predict_interval(fresh, "+1h", 0.5, method=method)
        wide_low, wide_high = fitted.predict_interval(fresh, "+1h", 0.8, method=method)
        mean = fitted.predict(fresh, "+1h")
        assert (wide_low < low).all()
        assert (low < mean).all()
        assert (mean < high).all()
        assert (high < wide_high).all()
    with pytest.raises(DataError, match=r"calibration series support at most 0\.9"):
        fitted.predict_interval(fresh, "+1h", 0.99)
    for coverage in (90, "0.9"):
        with pytest.raises(ConfigError, match=f"coverage: found {coverage!r}"):
            fitted.predict_interval(fresh, "+1h", coverage)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="method: found 'bayes'"):
        fitted.predict_interval(fresh, "+1h", method="bayes")  # type: ignore[arg-type]


def test_saved_and_loaded_it_answers_the_same(fitted: TIDESForecaster, tmp_path: Path) -> None:
    fresh = relaxing(4, seed=4)
    loaded = TIDESForecaster.load(fitted.save(tmp_path))
    np.testing.assert_array_equal(loaded.predict(fresh, "+1h"), fitted.predict(fresh, "+1h"))
    np.testing.assert_array_equal(
        loaded.predict_interval(fresh, "+1h", 0.7), fitted.predict_interval(fresh, "+1h", 0.7)
    )
    network = tides.load(tmp_path)
    assert isinstance(network, tides.Forecaster)
    assert network.channels == 2
    assert clone(loaded).get_params() == loaded.get_params()


def test_it_beats_the_mean(fitted: TIDESForecaster) -> None:
    assert fitted.score(relaxing(60, seed=5)) > 0.1


def test_smoothing_reads_both_sides() -> None:
    model = TIDESForecaster(2.0, smoothing=True, **QUICK).fit(relaxing(30))
    assert model.model_.config.bidirectional
    (one,) = relaxing(1, seed=1)
    changed = one.replace(values=np.where(one.times[:, None] > 5, one.values + 10, one.values))
    before = float(one.times[one.times < 5][-1]) - 0.01
    first, second = (model.predict([s], at=before)[0, 0, 0] for s in (one, changed))
    assert abs(first - second) > 1e-6
    causal = TIDESForecaster(2.0, **QUICK).fit(relaxing(30))
    first, second = (causal.predict([s], at=before)[0, 0, 0] for s in (one, changed))
    assert first == pytest.approx(second)


def table() -> pd.DataFrame:
    rows = []
    for one in relaxing(30, points=8):
        for t, v in zip(one.times, one.values[:, 0], strict=True):
            when = pd.Timestamp("2031-05-01") + pd.Timedelta(hours=float(t))
            rows.append({"pump": one.id, "when": when, "flow": v, "kind": "ab"[one.id % 2]})
    return pd.DataFrame(rows)


def test_tables_dates_and_static_columns(tmp_path: Path) -> None:
    model = TIDESForecaster("120min", id="pump", time="when", static=["kind"], unit="h", **QUICK).fit(table())
    assert model.horizon_ == 2
    assert model.model_.config.input_size == 3
    date = model.predict(table(), at="2031-05-01T12:00")
    since = float((pd.Timestamp("2031-05-01T12:00") - table()["when"].min()).total_seconds() / 3600)
    np.testing.assert_allclose(date, model.predict(model.to_dataset(table()), at=since), rtol=1e-6)
    for number in (since, "12", [1.0, 2.0]):
        with pytest.raises(DataError, match=r"at: found the number .* trained on dates"):
            model.predict(table(), at=number)
    assert date.shape == (30, 1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for same in ("2031-05-01T14:00+02:00", pd.Timestamp("2031-05-01T12:00Z"), np.datetime64("2031-05-01T12:00")):
            np.testing.assert_array_equal(model.predict(table(), at=same), date)
    loaded = TIDESForecaster.load(model.save(tmp_path))
    np.testing.assert_array_equal(loaded.predict(table(), at="+1h"), model.predict(table(), at="+1h"))


def test_what_is_asked_can_be_explained() -> None:
    """With static columns, which are channels of the network, and questions in any order."""
    model = TIDESForecaster("2h", id="pump", time="when", static=["kind"], unit="h", **QUICK).fit(table())
    questions = model.ask(table(), at=["+2h", "+30min"])
    assert questions.unit == "h"
    batch = tides.data.collate(questions)
    found = tides.explain.attribute(model.model_, batch, target=(1, 0))
    answers = model.predict(table(), at=["+2h", "+30min"])
    np.testing.assert_allclose(found.answer, answers[:, 0, 0], rtol=1e-4)
    last = float(questions[0].times[-1])
    later = tides.explain.suggest_next_time(model.model_, batch, [last + 0.5, last + 1.0], task=model.task_)
    assert later.time in later.candidates.tolist()


def test_dates_are_those_of_the_data_set_that_is_asked() -> None:
    days = pd.Timedelta(days=10)
    first, later = (
        tides.data.from_wide(frame, id="pump", time="when", channels=["flow"], unit="h")
        for frame in (table(), table().assign(when=table()["when"] + days))
    )
    model = TIDESForecaster("2h", **QUICK).fit(first)
    date = pd.Timestamp("2031-05-01T12:00")
    np.testing.assert_allclose(model.predict(later, at=date + days), model.predict(first, at=date), rtol=1e-9)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "+02:00"])
def test_dates_without_a_zone_are_those_of_the_table(zone: str) -> None:
    """In May, Berlin is two hours ahead of UTC."""
    zoned = table().assign(when=table()["when"].dt.tz_localize("UTC").dt.tz_convert(zone))
    model = TIDESForecaster("2h", id="pump", time="when", static=["kind"], unit="h", **QUICK).fit(zoned)
    wanted = model.predict(zoned, at="2031-05-02T12:00+02:00")
    for local in ("2031-05-02T12:00", pd.Timestamp("2031-05-02T12:00"), np.datetime64("2031-05-02T12:00")):
        np.testing.assert_array_equal(model.predict(zoned, at=local), wanted)
    np.testing.assert_array_equal(model.predict(zoned, at="2031-05-02"), model.predict(zoned, at="2031-05-01T22:00Z"))
    unknown = model.predict(model.to_dataset(zoned), at="2031-05-02T10:00")
    np.testing.assert_array_equal(unknown, wanted)


def test_a_channel_that_calibration_never_saw_has_no_conformal_interval() -> None:
    rare = [
        one.replace(values=np.hstack([one.values] * 2), observed=np.hstack([one.observed, one.observed & (one.id < 2)]))
        for one in relaxing(30)
    ]
    model = TIDESForecaster(3.0, **QUICK).fit(IrregularDataset(rare, channels=("x", "rare"), unit="h"))
    with pytest.raises(DataError, match="channel 'rare' has none in them"):
        model.predict_interval(rare[:3], "+1h", 0.6)
    assert np.isfinite(model.predict_interval(rare[:3], "+1h", 0.6, method="gaussian")).all()
    assert "coverage of 90% gaussian intervals" in scorecard(model, model.to_dataset(rare))["metrics"]


@pytest.mark.parametrize(
    ("name", "value"), [("interval", "bootstrap"), ("origins", 0), ("calibration", 5), ("calibration", "half")]
)
def test_arguments_that_make_no_sense_are_named_before_training(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: found"):
        TIDESForecaster(3.0, **QUICK).set_params(**{name: value}).fit(relaxing(12))


def test_times_beyond_float64_are_asked_for_as_they_are(tmp_path: Path) -> None:
    """Nanoseconds since 1970 as whole numbers, in a table and in arrays."""
    frame = table().drop(columns="kind")
    zero = 1_700_000_000_000_000_001
    frame["when"] = zero + ((frame["when"] - frame["when"].min()).dt.total_seconds() / 36).astype("int64")
    model = TIDESForecaster(200.0, id="pump", time="when", unit="ns", **QUICK).fit(frame)
    last = frame.groupby("pump")["when"].max().to_numpy()
    wanted = model.predict(frame, at="+50")
    np.testing.assert_array_equal(model.predict(frame, at=[[one + 50] for one in last]), wanted)
    np.testing.assert_array_equal(model.predict(frame, at=[[str(one + 50)] for one in last]), wanted)
    groups = [one for _, one in frame.groupby("pump")]
    arrays = [one[["flow"]].to_numpy().T for one in groups]
    times = [one["when"].to_numpy() for one in groups]
    loaded = TIDESForecaster.load(model.save(tmp_path))
    np.testing.assert_allclose(loaded.predict(arrays, at=[[one + 50] for one in last], times=times), wanted)
    alone = TIDESForecaster(200.0, unit="ns", **QUICK).fit(arrays, times=times)
    assert alone.schema_.offset == zero


def test_without_a_spread_intervals_have_one_width() -> None:
    model = TIDESForecaster(3.0, gaussian=False, **QUICK).fit(relaxing(60))
    low, high = model.predict_interval(relaxing(5), "+1h,+2h", 0.6)
    np.testing.assert_allclose(high - low, (high - low)[0, 0, 0])


@pytest.mark.parametrize(
    ("horizon", "message"),
    [
        (None, "state how far ahead"),
        ("3 parsecs", "unit='parsecs'"),
        (0, "above zero"),
        (-1.0, "≥ 0"),
        (1e-9, "only 0 of 10 series"),
    ],
)
def test_hopeless_horizons_are_refused(horizon: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        TIDESForecaster(horizon, **QUICK).fit(relaxing(10))


@pytest.mark.parametrize(("unit", "reach"), [("h", "1e-09 h"), (None, "1e-09")])
def test_a_horizon_that_nothing_reaches_is_named_in_its_unit(unit: str | None, reach: str) -> None:
    data = IrregularDataset(list(relaxing(10)), channels=("x",), unit=unit)
    with pytest.raises(DataError, match=f"have an observation within {reach} after another one; wanted at least two"):
        TIDESForecaster(1e-9, **QUICK).fit(data)


def test_hopeless_questions_are_refused(fitted: TIDESForecaster) -> None:
    fresh = relaxing(3)
    for at, message in (
        ("tomorrow", "wanted an offset"),
        ("2031-05-01", "times are numbers and not dates"),
        ([], "no time is asked"),
        ([[1.0], [2.0]], "2 rows of times for 3 series"),
        (float("nan"), "finite"),
        (True, "wanted an offset"),
        (np.timedelta64(6, "h"), "wanted an offset"),
    ):
        with pytest.raises(DataError, match=message):
            fitted.predict(fresh, at=at)
    with pytest.raises(NotFittedError):
        TIDESForecaster(1.0).predict(fresh)
    with pytest.raises(DataError, match="found 2 channels"):
        fitted.predict(np.zeros((3, 2, 5)))
    few = TIDESForecaster(3.0, **QUICK).fit(relaxing(10))
    with pytest.raises(DataError, match="conformal intervals need calibration series"):
        few.predict_interval(fresh, "+1h")
    assert few.predict_interval(fresh, "+1h", method="gaussian")[0].shape == (3, 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_nine_out_of_ten_values_lie_in_their_interval(seed: int) -> None:
    """One question for each of 600 fresh series, so that hits are independent: 90 % within three standard errors."""
    model = TIDESForecaster(3.0, hidden_size=16, state_size=8, depth=1, epochs=40, patience=10, random_state=seed).fit(
        relaxing(600, seed=100 + seed)
    )
    fresh = relaxing(600, seed=200 + seed)
    rng = np.random.default_rng(seed)
    known, at, truth = [], [], []
    for one in fresh:
        cut = int(rng.integers(5, len(one) - 1))
        ahead = np.flatnonzero((one.times > one.times[cut - 1]) & (one.times <= one.times[cut - 1] + 3.0))
        if len(ahead) == 0:
            continue
        row = int(rng.choice(ahead))
        known.append(one.replace(values=one.values[:cut], times=one.times[:cut], observed=one.observed[:cut]))
        at.append([one.times[row]])
        truth.append(one.values[row])
    assert len(known) >= 500
    questions = IrregularDataset(known, schema=fresh.schema)
    for method in ("gaussian", "conformal"):
        low, high = model.predict_interval(questions, at, 0.9, method=method)
        hits = (low[:, 0] <= truth) & (truth <= high[:, 0])
        assert abs(hits.mean() - 0.9) <= 3 * np.sqrt(0.09 / len(known)), f"{method}: {hits.mean():.3f}"


def test_a_folder_is_not_continued_for_another_horizon(tmp_path: Path) -> None:
    quick = {**FAST, "epochs": 1, "folder": tmp_path / "run"}
    first = TIDESForecaster(2.0, **quick).fit(relaxing(8))
    again = TIDESForecaster(2.0, **quick).fit(relaxing(8))
    np.testing.assert_array_equal(first.predict(relaxing(2)), again.predict(relaxing(2)))
    with pytest.raises(ConfigError, match="holds the run of other training series"):
        TIDESForecaster(4.0, **quick).fit(relaxing(8))


def one_recording(points: int = 600, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    hours = np.cumsum(rng.exponential(0.5, points))
    load = 50 + 10 * np.sin(2 * np.pi * hours / 12) + rng.normal(0, 1, points)
    return pd.DataFrame({"hours": hours, "load": load})


def test_one_long_series(tmp_path: Path) -> None:
    log = one_recording()
    model = TIDESForecaster("3h", cut="12h", time="hours", unit="h", **QUICK)
    with pytest.raises(DataError, match="id=… and time=…"):
        clone(model).set_params(cut=None).fit(log)
    model.fit(log)
    assert model.cut_ == 12.0
    # The latest pieces calibrate, those before them choose the epoch.
    assert model.series_ == {"training": 18, "validation": 4, "calibration": 5}
    assert model.backtest(log).questions.ids[-1] == f"0/{int((log.hours.max() - log.hours.min()) // 12)}"
    found = model.predict(log, at="+1h,+2h")
    # It learnt from half a day at most, and reads no more than that.
    end = log.hours.max()
    np.testing.assert_array_equal(found, model.predict(log[log.hours >= end - 12], at="+1h,+2h"))
    assert not np.array_equal(found, model.predict(log[log.hours >= end - 6], at="+1h,+2h"))
    before = log[(log.hours >= end - 42) & (log.hours <= end - 30)]
    np.testing.assert_array_equal(model.predict(log, at="-30h"), model.predict(before, at=end - 30))
    again = TIDESForecaster.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict(log, at="+1h,+2h"), found)


def test_long_series_of_many_keep_whole_series_apart() -> None:
    data = relaxing(24, points=40, span=20.0)
    model = TIDESForecaster("2h", cut=5, **QUICK).fit(data)
    counts = model.series_
    assert sum(counts.values()) > 3 * len(data)
    owners = [set(part.groups or ()) for part in split_off(pieces(data, 5), 0.2, 0, in_time=True) if part is not None]
    assert [len(found) for found in owners] == [19, 5]
    assert not owners[0] & owners[1]
    few = [part for part in split_off(pieces(data[:8], 5), 0.25, 0, in_time=True) if part is not None]
    assert [set(part.groups or ()) for part in few] == [set(range(8))] * 2
    with pytest.raises(DataError, match="cut: found 2 with horizon='2h'; wanted longer pieces"):
        TIDESForecaster("2h", cut=2, **QUICK).fit(data)
    with pytest.raises(DataError, match="needs at least two series"):
        TIDESForecaster("2h", cut=500, **QUICK).fit(data[:1])
