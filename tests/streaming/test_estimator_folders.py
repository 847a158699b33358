"""Folders that estimators write are streamed as the estimators predict: names, dates, static columns, spreads."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
pd = pytest.importorskip("pandas")

import tides  # noqa: E402
from tides.errors import DataError  # noqa: E402
from tides.estimators import TIDESClassifier, TIDESForecaster, TIDESRegressor  # noqa: E402
from tides.streaming import StreamSession  # noqa: E402

SMALL = {"hidden_size": 4, "state_size": 4, "depth": 1, "epochs": 1, "random_state": 0}


def table(series: int = 24) -> "pd.DataFrame":
    generator = np.random.default_rng(0)
    rows = []
    for patient in range(series):
        hours = np.cumsum(generator.exponential(2.0, 8))
        for hour in hours:
            hr, spo2 = generator.normal(80, 5), generator.normal(96, 1)
            rows.append(
                {
                    "patient": patient,
                    "charttime": pd.Timestamp("2031-05-01") + pd.Timedelta(hours=float(hour)),
                    "hr": hr,
                    "spo2": spo2 if generator.random() < 0.7 else np.nan,
                    "age": 40 + patient,
                    "sex": "f" if patient % 2 else "m",
                    "died": patient % 3 == 0,
                }
            )
    return pd.DataFrame(rows)


def test_class_probabilities(tmp_path: Path) -> None:
    frame = table()
    estimator = TIDESClassifier(
        id="patient", time="charttime", label="died", static=["age", "sex"], unit="h", **SMALL
    ).fit(frame)
    wanted = dict(zip(estimator.to_dataset(frame).ids, estimator.predict_proba(frame), strict=True))
    session = StreamSession.load(estimator.save(tmp_path))
    assert session.profile.classes == ("False", "True")
    for row in frame.itertuples():
        static = {"age": row.age, "sex": row.sex}
        found = session.step(row.charttime, {"hr": row.hr, "spo2": row.spo2}, key=row.patient, static=static)
        if row.patient == 3:
            last = found
    for patient in (0, 3, 23):
        np.testing.assert_allclose(session.answer(patient), wanted[patient], atol=1e-5)
    np.testing.assert_allclose(last, wanted[3], atol=1e-5)


def test_forecasts_and_their_spread(tmp_path: Path) -> None:
    frame = table()
    estimator = TIDESForecaster(
        horizon="6h", id="patient", time="charttime", channels=["hr", "spo2"], static=["age", "sex"], unit="h", **SMALL
    ).fit(frame)
    asked = ["+30min", "+6h"]
    wanted = dict(zip(estimator.to_dataset(frame).ids, estimator.predict(frame, at=asked), strict=True))
    session = StreamSession.load(estimator.save(tmp_path), at=["30min", "6h"])
    assert session.channels == 2
    one = frame[frame.patient == 5]
    static = {"age": 45, "sex": "f"}
    found = session.catch_up(one.charttime, one[["hr", "spo2"]], key=5, static=static)
    np.testing.assert_allclose(found, wanted[5], rtol=1e-4)
    later = one.charttime.iloc[-1] + pd.Timedelta(hours=6)
    np.testing.assert_allclose(session.peek(later, key=5), wanted[5][1], rtol=1e-4)
    answers = session.step_many([5], [later], [[80.0, np.nan]])
    assert answers.values.shape == (1, 2, 2)
    assert answers.spreads is not None
    low, high = estimator.predict_interval(frame, asked, coverage=0.9, method="gaussian")
    fresh = StreamSession.load(tmp_path, at=["30min", "6h"])
    fresh.catch_up(one.charttime[:-1], one[["hr", "spo2"]][:-1], key=5, static=static)
    again = fresh.step_many([5], one.charttime[-1:], one[["hr", "spo2"]][-1:])
    assert again.spreads is not None
    place = estimator.to_dataset(frame).ids.index(5)
    np.testing.assert_allclose(again.spreads[0] * 1.6448536 * 2, (high - low)[place], rtol=1e-3)


@pytest.mark.parametrize("static", [None, ["age", "sex"]], ids=["series", "static"])
@pytest.mark.parametrize("make", [TIDESClassifier, TIDESRegressor, TIDESForecaster])
def test_what_estimators_make_by_default_is_compiled(make: Any, static: list[str] | None, tmp_path: Path) -> None:
    pytest.importorskip("numba")
    label = {
        TIDESClassifier: {"label": "died"},
        TIDESRegressor: {"label": "weight"},
        TIDESForecaster: {"horizon": "6h"},
    }
    named = {"id": "patient", "time": "charttime", "channels": ["hr", "spo2"], "static": static, **label[make]}
    estimator = make(unit="h", **named, **SMALL)
    estimator.fit(table().assign(weight=lambda frame: 50.0 + frame.patient))
    known = None if static is None else {"age": 45, "sex": "f"}
    answers = []
    for compiled in (True, False):
        session = StreamSession.load(estimator.save(tmp_path), compiled=compiled)
        session.catch_up(["2031-05-01", "2031-05-02"], [[80.0, 96.0], [90.0, np.nan]], key="a", static=known)
        answers.append([session.step("2031-05-03", {"spo2": 93.0}, key="a"), session.peek("+6h", key="a")])
    np.testing.assert_allclose(answers[0], answers[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("hold", ["following", "preceding"])
def test_forecasts_of_a_long_series_come_from_its_last_stretch(hold: str, tmp_path: Path) -> None:
    """As `predict` on the same history: the stream runs for weeks, the model has learnt from two days."""
    generator = np.random.default_rng(0)
    hours = np.cumsum(generator.exponential(1.0, 500))
    log = pd.DataFrame({"when": pd.Timestamp("2031-05-01") + pd.to_timedelta(hours, unit="h").round("s")})
    log["load"] = 50 + 10 * np.sin(2 * np.pi * hours / 24) + generator.normal(0, 1, 500)
    model = TIDESForecaster("12h", cut="2d", time="when", unit="h", model={"hold": hold}, **SMALL).fit(log[:400])
    session = StreamSession.load(model.save(tmp_path), at=["1h", "12h"])
    for begin, end in ((0, 450), (450, 451), (451, 480), (480, 500)):
        found = session.catch_up(log.when[begin:end], log[["load"]][begin:end])
        np.testing.assert_allclose(found, model.predict(log[:end], at="+1h,+12h")[0], rtol=1e-5)
    np.testing.assert_allclose(session.peek(["+1h", "+12h"]), found, rtol=1e-6)
    low, high = model.predict_interval(log, "+1h,+12h", coverage=0.9, method="gaussian")
    again = StreamSession.load(tmp_path, at=["1h", "12h"])
    again.catch_up(log.when[:499], log[["load"]][:499])
    spreads = again.step_many([None], log.when[499:], log[["load"]][499:]).spreads
    assert spreads is not None
    np.testing.assert_allclose(spreads[0] * 1.6448536 * 2, (high - low)[0], rtol=1e-4)


def test_a_long_table_row_by_row(tmp_path: Path) -> None:
    """Its rows of one time are one step; so are their observations, where they are merged."""
    frame = table()
    frame["charttime"] = frame.charttime.dt.floor("30min")
    rows = frame.melt(["patient", "charttime", "died"], ["hr", "spo2"], "item", "value").dropna()
    rows = rows.drop_duplicates(["patient", "charttime", "item"])
    names = {"id": "patient", "time": "charttime", "channel": "item", "value": "value", "label": "died"}
    model = TIDESClassifier(**names, unit="h", **SMALL).fit(rows)
    folder = model.save(tmp_path)
    merged, separate = StreamSession.load(folder, same_time="merge"), StreamSession.load(folder)
    for row in rows.sort_values("charttime", kind="stable").itertuples():
        for session in (merged, separate):
            session.step(row.charttime, {row.item: row.value}, key=row.patient)
    wanted = model.predict_proba(rows)
    found, other = (
        np.array([session.answer(key) for key in model.to_dataset(rows).ids]) for session in (merged, separate)
    )
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert np.abs(other - wanted).max() > 1e-3


def test_facts_that_no_estimator_has_written(tmp_path: Path) -> None:
    tides.save(tides.SequenceClassifier(tides.TIDESConfig(input_size=1, depth=1), 2), tmp_path)
    (tmp_path / "estimator.json").write_text("null")
    with pytest.raises(DataError, match=r"estimator\.json: found NoneType"):
        StreamSession.load(tmp_path)
