"""`tides train`, `evaluate` and `predict` on a small table, and what they say when something is wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from tests.cli.tables import ward
from tides.cli.main import app
from tides.errors import TidesError
from tides.estimators import load_estimator
from tides.experiments.sweep_target import EstimatorTarget
from tides.experiments.toml_text import to_toml

QUICK = ["--set", "epochs=4", "--set", "hidden_size=8", "--set", "state_size=4", "--set", "depth=1"]
COLUMNS = ["--id", "patient", "--time", "charttime", "--unit", "h"]
CLASSIFY = [*COLUMNS, "--label", "died", "--static", "age,sex", *QUICK]


def tides(*words: object) -> str:
    """What the command prints; its deliberate errors are raised."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, TidesError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ward")
    said = tides("train", ward(folder, 40), *CLASSIFY, "--out", folder / "model")
    assert "40 series" in said
    assert "TIDESClassifier" in said
    assert "accuracy" in said
    return folder / "model"


def test_training_leaves_a_model_a_record_and_a_page(model: Path) -> None:
    assert {"config.json", "model.safetensors", "estimator.json", "record.json"} <= {f.name for f in model.iterdir()}
    record = json.loads((model / "record.json").read_text())
    assert record["split"] == {"training": 26, "validation": 6, "test": 8}
    assert len(record["history"]) == 4
    page = (model / "report" / "index.html").read_text()
    assert page.count("data:image/png") == 4
    assert 'src="http' not in page


def test_training_again_finds_everything_done(model: Path) -> None:
    before = (model / "model.safetensors").read_bytes()
    found = json.loads(tides("train", ward(model.parent, 40), *CLASSIFY, "--out", model, "--json"))
    assert found["split"]["test"] == 8
    assert (model / "model.safetensors").read_bytes() == before
    with pytest.raises(TidesError, match="use another folder"):
        tides("train", ward(model.parent, 40), *CLASSIFY, "--set", "lr=0.5", "--out", model)


def test_evaluate(model: Path, tmp_path: Path) -> None:
    found = json.loads(tides("evaluate", model, ward(tmp_path, 20, seed=1), "--json"))
    assert found["series"] == 20
    assert found["metrics"]["accuracy"][0] > 0.5
    said = tides("evaluate", model, ward(tmp_path, 20, seed=1), "--out", tmp_path / "page")
    assert "accuracy" in said
    assert (tmp_path / "page" / "index.html").is_file()


@pytest.mark.parametrize("name", ["pred.parquet", "pred.CSV", "pred.feather"])
def test_predict(model: Path, tmp_path: Path, name: str) -> None:
    table = ward(tmp_path, 12, seed=2, name="new.parquet")
    pd.read_parquet(table).drop(columns="died").to_parquet(table)
    said = tides("predict", model, table, "--out", tmp_path / name)
    assert "12 rows for 12 series" in said
    read = {".parquet": pd.read_parquet, ".csv": pd.read_csv, ".feather": pd.read_feather}[Path(name).suffix.lower()]
    found = read(tmp_path / name)
    assert list(found.columns) == ["patient", "predicted", "p(0)", "p(1)"]
    assert found["patient"].tolist() == [f"p{i:02}" for i in range(12)]
    assert (found["p(0)"] + found["p(1)"]).round(9).eq(1).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--test", "0.01"], "--test 0.01: part 1 would be empty: .* or 0 to train on all"),
        (["--set", "batch_size=many"], "batch_size: found 'many'"),
        (["--set", "batch_size=0"], "batch_size: found 0"),
        (["--set", "validation=some"], "validation: found 'some'"),
        (["--set", "model=3"], "model: found 3"),
        (["--set", "training=3"], "training: found 3"),
        (["--set", "id=sex"], "id: wanted --id"),
        (["--set", "random_state=chance"], "random_state: found 'chance'"),
        (["--set", "class_weight=odd"], "class_weight"),
    ],
)
def test_arguments_that_cannot_work_are_named(tmp_path: Path, words: list[str], message: str) -> None:
    with pytest.raises(TidesError, match=message):
        tides("train", ward(tmp_path), *CLASSIFY, *words, "--out", tmp_path / "model")


def test_a_model_that_cannot_be_scored_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise TidesError("series 'p00': the answer is not finite")

    monkeypatch.setattr("tides.estimators.scorecard.scorecard", fail)
    with pytest.raises(TidesError, match=r"p00.* The model is in .*model, without a score"):
        tides("train", ward(tmp_path), *CLASSIFY, "--set", "epochs=1", "--out", tmp_path / "model")
    assert "12 rows" in tides("predict", tmp_path / "model", ward(tmp_path, 12), "--out", tmp_path / "answers.csv")


def test_predictions_of_counted_times_carry_the_numbers_of_the_table(tmp_path: Path) -> None:
    frame = pd.read_csv(ward(tmp_path), parse_dates=["charttime"])[["patient", "charttime", "hr"]]
    hours = (frame["charttime"] - frame["charttime"].min()).dt.total_seconds() / 3600
    frame["charttime"] = 1_700_000_000_000_000_001 + (100 * hours).astype("int64")
    frame.to_csv(tmp_path / "counts.csv", index=False)
    roles = ["--id", "patient", "--time", "charttime", "--horizon", "800", *QUICK, "--set", "epochs=1", "--test", "0"]
    tides("train", tmp_path / "counts.csv", *roles, "--out", tmp_path / "model")
    tides("predict", tmp_path / "model", tmp_path / "counts.csv", "--at", "+7", "--out", tmp_path / "out.csv")
    last = frame.groupby("patient")["charttime"].max() + 7
    assert pd.read_csv(tmp_path / "out.csv")["charttime"].tolist() == last.tolist()


def test_predict_looks_at_the_door_before_it_works(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tides.cli.own_table.estimator_of", lambda *args, **kwargs: pytest.fail("it began to work"))
    (tmp_path / "file").touch()
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(TidesError, match="is a folder"):
        tides("predict", model, ward(tmp_path), "--out", tmp_path / "folder.csv")
    result = CliRunner().invoke(
        app, ["predict", str(model), str(ward(tmp_path)), "--out", str(tmp_path / "file" / "a.csv")]
    )
    assert isinstance(result.exception, OSError)


def test_predict_keeps_columns_that_are_named_like_answers(tmp_path: Path) -> None:
    table = ward(tmp_path)
    frame = pd.read_csv(table).rename(columns={"patient": "predicted"})
    frame.to_csv(table, index=False)
    roles = ["--id", "predicted", "--time", "charttime", "--label", "died", "--static", "age,sex"]
    tides("train", table, *roles, *QUICK, "--set", "epochs=1", "--test", "0", "--out", tmp_path / "model")
    tides("predict", tmp_path / "model", table, "--out", tmp_path / "out.csv")
    found = pd.read_csv(tmp_path / "out.csv")
    assert list(found.columns) == ["predicted", "predicted_", "p(0)", "p(1)"]
    assert found["predicted"].tolist() == sorted(frame["predicted"].unique())


def test_forecasts_of_any_century_keep_their_dates(tmp_path: Path) -> None:
    frame = pd.read_csv(ward(tmp_path))
    frame["charttime"] = frame["charttime"].str.replace("2031", "1500").str[:19]
    table = tmp_path / "old.csv"
    frame[["patient", "charttime", "hr"]].to_csv(table, index=False)
    roles = [*COLUMNS, "--horizon", "6h", *QUICK, "--set", "epochs=1", "--test", "0"]
    tides("train", table, *roles, "--out", tmp_path / "model")
    tides("predict", tmp_path / "model", table, "--at", "+2h", "--out", tmp_path / "out.csv")
    last = frame.groupby("patient")["charttime"].max().astype("datetime64[us]") + pd.Timedelta(hours=2)
    found = pd.read_csv(tmp_path / "out.csv")["charttime"].str[:26].astype("datetime64[us]")
    assert (abs(found.to_numpy() - last.to_numpy()) <= pd.Timedelta(microseconds=1)).all()
    with pytest.raises(TidesError, match="between the years 1 and 9999"):
        tides("predict", tmp_path / "model", table, "--at", "+1e12h", "--out", tmp_path / "out.csv")


def test_forecast(tmp_path: Path) -> None:
    table = ward(tmp_path, 40)
    forecast = [*COLUMNS, "--task", "forecast", "--horizon", "24h", "--label", "died", "--static", "age,sex", *QUICK]
    said = tides("train", table, *forecast, "--out", tmp_path / "model")
    assert "mse of the last value" in said
    assert (tmp_path / "model" / "report" / "forecasts.png").is_file()
    tides("predict", tmp_path / "model", table, "--at", "+6h,+12h,+24h", "--out", tmp_path / "pred.parquet")
    found = pd.read_parquet(tmp_path / "pred.parquet")
    assert len(found) == 40 * 3 * 2
    assert list(found.columns) == ["patient", "charttime", "channel", "mean", "low", "high"]
    last = pd.read_csv(table, parse_dates=["charttime"]).groupby("patient")["charttime"].max()
    asked = found[found["patient"] == "p03"]["charttime"].unique()
    wanted = [last["p03"] + pd.Timedelta(hours=h) for h in (6, 12, 24)]
    assert all(abs(a - b) < pd.Timedelta(milliseconds=1) for a, b in zip(asked, wanted, strict=True))
    assert (found["low"] < found["mean"]).all()
    said = tides("predict", tmp_path / "model", table, "--coverage", "0.99", "--out", tmp_path / "wide.parquet")
    assert "calibration series support at most" in said
    assert (pd.read_parquet(tmp_path / "wide.parquet")["low"] < found["low"].min()).any()
    for at, words in (("+24h,+25h", "40 of 80 asked times lie beyond the horizon of 24 h: nothing was learnt"),
                      ("2031-04-30", "40 of 40 asked times lie before the first observation")):  # fmt: skip
        assert words in tides("predict", tmp_path / "model", table, "--at", at, "--out", tmp_path / "far.parquet")
    assert "asked times" not in tides("predict", tmp_path / "model", table, "--out", tmp_path / "near.parquet")
    with pytest.raises(TidesError, match="coverage: found 7"):
        tides("predict", tmp_path / "model", table, "--coverage", "7", "--out", tmp_path / "wide.parquet")
    _check_zones(tmp_path / "model", table, found)
    pd.read_csv(table).drop(columns="died").to_csv(table, index=False)
    scored = json.loads(tides("evaluate", tmp_path / "model", table, "--json"))
    assert scored["metrics"]["mse"][0] > 0


def _check_zones(model: Path, table: Path, without: pd.DataFrame) -> None:
    """Dates with a zone are answered with the same instants in that zone."""
    frame = pd.read_csv(table, parse_dates=["charttime"])
    frame["charttime"] = frame["charttime"].dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin")
    for name, zone in {"zoned.parquet": "Europe/Berlin", "zoned.csv": "UTC"}.items():
        path, out = table.with_name(name), table.with_name(f"answers-{name}")
        frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path, index=False)
        tides("predict", model, path, "--at", "+6h,+12h,+24h", "--out", out)
        answers = pd.read_csv(out, parse_dates=["charttime"]) if out.suffix == ".csv" else pd.read_parquet(out)
        assert str(answers["charttime"].dt.tz) == zone
        assert (answers["charttime"].dt.tz_convert("UTC").dt.tz_localize(None) == without["charttime"]).all()
        tides("predict", model, path, "--at", "2031-05-04T00:00", "--out", out)
        answers = pd.read_csv(out, parse_dates=["charttime"]) if out.suffix == ".csv" else pd.read_parquet(out)
        assert (answers["charttime"] == pd.Timestamp("2031-05-04", tz=zone)).all()


def test_the_table_is_not_overwritten_by_its_answers(model: Path, tmp_path: Path) -> None:
    table = ward(tmp_path)
    before = table.read_bytes()
    with pytest.raises(TidesError, match="is the table itself"):
        tides("predict", model, table, "--out", tmp_path / "." / "visits.csv")
    assert table.read_bytes() == before


def test_arguments_from_a_file(tmp_path: Path) -> None:
    """The file that a sweep writes; --set goes on top of it, in the same grammar."""
    target = EstimatorTarget("classifier", "calcium", 12, 7, {"epochs": 2, "model.rank": 2, "hidden_size": 8})
    command, arguments = target.chosen({"lr": 0.02, "depth": 1, "state_size": 4})
    assert command.startswith("tides train")
    own = tmp_path / "chosen.toml"
    own.write_text(to_toml(arguments), encoding="utf-8")
    line = ["train", ward(tmp_path, 16), *COLUMNS, "--label", "died", "--static", "age,sex", "--config", own]
    more = ["--set", "depth=2", "--set", "model.hold=preceding", "--set", "model.step_init=[0.01, 1.0]"]
    more += ["--set", "training={monitor = 'accuracy'}", "--set", "class_weight={0 = 1.0, 1 = 3.0}"]
    tides(*line, *more, "--out", tmp_path / "model", "--json")
    found = json.loads((tmp_path / "model" / "estimator.json").read_text())["params"]
    wanted = {"lr": 0.02, "depth": 2, "epochs": 2, "hidden_size": 8, "training": {"monitor": "accuracy"}}
    wanted |= {"model": {"rank": 2, "hold": "preceding", "step_init": [0.01, 1.0]}}
    assert {name: found[name] for name in wanted} == wanted
    for text, message in (("hiden_size = 8", "did you mean 'hidden_size'"), ("epochs =", r"--config .*chosen.toml")):
        own.write_text(text, encoding="utf-8")
        with pytest.raises(TidesError, match=message):
            tides(*line, "--out", tmp_path / "other")
    with pytest.raises(TidesError, match=r"--config .*absent.toml"):
        tides(*line[:-1], tmp_path / "absent.toml", "--out", tmp_path / "other")


def test_regression(tmp_path: Path) -> None:
    table = ward(tmp_path, 30)
    frame = pd.read_csv(table)
    frame["stay"] = 3.5 + 2.25 * frame["died"] + frame["age"] / 7
    frame.drop(columns="died").to_csv(table, index=False)
    said = tides("train", table, *COLUMNS, "--label", "stay", "--channels", "hr,spo2", *QUICK, "--out", tmp_path / "m")
    assert "TIDESRegressor" in said
    assert "r2" in said
    tides("predict", tmp_path / "m", table, "--out", tmp_path / "pred.csv")
    assert list(pd.read_csv(tmp_path / "pred.csv").columns) == ["patient", "predicted"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--id", "pateint", "--time", "charttime", "--label", "died"], r"id='pateint' is not a column; did you mean"),
        ([*COLUMNS], "--horizon: a forecast needs one"),
        ([*COLUMNS, "--task", "classify"], "--label: --task classify needs"),
        ([*COLUMNS, "--task", "sort"], "--task: found 'sort'"),
        ([*CLASSIFY, "--set", "hiden_size=3"], "did you mean 'hidden_size'"),
        ([*COLUMNS, "--label", "died", "--set", "fast"], "wanted name=value"),
        ([*COLUMNS, "--label", "died", "--set", 'model={"rank": 2}'], "--set model=.*: not a TOML value"),
        ([*COLUMNS, "--label", "died", "--test", "2"], "--test: found 2"),
        ([*CLASSIFY, "--device", "cuda:99"], "device: found 'cuda:99', but torch sees"),
        (
            [*COLUMNS, "--label", "died"],
            "column 'sex', row 0: found 'm' and further on 'f'; wanted a number: columns without another role are "
            "channels",
        ),
        ([*CLASSIFY, "--horizon", "3h"], "--horizon: belongs to --task forecast, found classify"),
        ([*CLASSIFY, "--smoothing"], "--smoothing: belongs to --task forecast, found classify"),
        ([*CLASSIFY, "--task", "regress", "--balanced"], "--balanced: belongs to --task classify, found regress"),
    ],
)
def test_mistakes_on_the_command_line(words: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(TidesError, match=message) as caught:
        tides("train", ward(tmp_path, 8), *words, "--out", tmp_path / "model")
    assert "\n" not in str(caught.value)


def test_an_undefined_metric_is_null(model: Path, tmp_path: Path) -> None:
    table = ward(tmp_path)
    frame = pd.read_csv(table)
    frame[frame["died"] == 1].to_csv(table, index=False)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    found = json.loads(tides("evaluate", model, table, "--json"), parse_constant=refuse)
    assert found["metrics"]["auroc"] == [None, None, None]


def test_unknown_channels_of_long_tables_are_named(tmp_path: Path) -> None:
    wide = pd.read_csv(ward(tmp_path))
    rows = wide.melt(["patient", "charttime", "age", "sex", "died"], ["hr", "spo2"], "item", "value").dropna()
    rows.to_csv(tmp_path / "long.csv", index=False)
    words = [*COLUMNS, "--label", "died", "--static", "age,sex", "--channel", "item", "--value", "value", *QUICK]
    tides("train", tmp_path / "long.csv", *words, "--set", "epochs=1", "--out", tmp_path / "model")
    rows.replace("hr", "pulse").to_csv(tmp_path / "long.csv", index=False)
    ask = ["predict", tmp_path / "model", tmp_path / "long.csv", "--out", tmp_path / "answers.csv"]
    with pytest.raises(TidesError, match=r"column 'item': channel 'pulse' .*--ignore-new"):
        tides(*ask)
    assert "30 rows" in tides(*ask, "--ignore-new")


def test_mistakes_in_tables(model: Path, tmp_path: Path) -> None:
    table = ward(tmp_path, 8)
    frame = pd.read_csv(table)

    def fails(changed: pd.DataFrame, verb: list[object], message: str) -> None:
        changed.to_csv(tmp_path / "changed.csv", index=False)
        words = [tmp_path / "changed.csv" if word == "TABLE" else word for word in verb]
        with pytest.raises(TidesError, match=message) as caught:
            tides(*words)
        assert "\n" not in str(caught.value)

    train: list[object] = ["train", "TABLE", *CLASSIFY, "--out", tmp_path / "model"]
    fails(frame.assign(died=0), train, "label 'died': all 6 series have one class, 0")
    fails(frame.assign(charttime="monday"), train, "found 'monday'; wanted a number or an ISO 8601 date")
    day = frame.assign(charttime="2031-05-01")
    fails(day, train, "has channel 'spo2' twice at the same 'charttime'|has channel 'hr' twice")
    fails(day, [*train, "--duplicates", "mean"], "column 'charttime': every series has a single time")
    predict: list[object] = ["predict", model, "TABLE", "--out", tmp_path / "pred.csv"]
    fails(
        frame.assign(lactate=1.0),
        predict,
        "column 'lactate' is new; the model was trained on 'hr', 'spo2'.*--ignore-new",
    )
    fails(frame.drop(columns="hr"), predict, "channels='hr' is not a column")
    strange = frame.assign(sex=frame["sex"].where(frame["patient"] != frame["patient"].iloc[0], "x"))
    fails(strange, predict, r"column 'sex', row 0: category 'x' of patient .* is not among 'f', 'm' .*--ignore-new")
    strange.to_csv(tmp_path / "strange.csv", index=False)
    out = tmp_path / "pred.csv"
    with pytest.warns(UserWarning, match=r"1 of 8 series have a category that the model does not know \('x'\)"):
        assert "rows for" in tides("predict", model, tmp_path / "strange.csv", "--out", out, "--ignore-new")
    fails(frame, [*predict, "--at", "+6h"], "answers once for each series")
    fails(frame, [*predict, "--coverage", "0.5"], "--coverage: .* answers without intervals")
    fails(frame, ["predict", tmp_path, "TABLE", "--out", tmp_path / "pred.csv"], r"has no estimator\.json")
    fails(frame, ["predict", model, "TABLE", "--out", tmp_path / "pred.xls"], "wanted a name that ends in")
    with pytest.raises(TidesError, match="no such file"):
        tides("predict", model, tmp_path / "nothing.csv", "--out", tmp_path / "pred.csv")
    frame.assign(lactate=1.0).to_csv(table, index=False)
    assert "8 rows" in tides("predict", model, table, "--out", tmp_path / "pred.csv", "--ignore-new")


@pytest.mark.slow
def test_a_killed_training_continues(tmp_path: Path) -> None:
    table = ward(tmp_path, 40)
    settings = ["--set", "epochs=60", "--set", "patience=60", "--set", "training.checkpoint_seconds=0"]
    words = ["train", str(table), *CLASSIFY, *settings]
    command = [sys.executable, "-m", "tides.cli.main", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run([*command, "--out", str(whole)], check=True, capture_output=True, env=environment)
    kills = 0
    for _ in range(30):
        process = subprocess.Popen(
            [*command, "--out", str(killed)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
        )
        log = killed / "training" / "metrics.jsonl"
        lines = len(log.read_text().splitlines()) if log.exists() else 0
        while process.poll() is None:
            time.sleep(0.05)
            if kills < 3 and log.exists() and len(log.read_text().splitlines()) >= lines + 8:
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
        if process.wait() == 0:
            break
    assert kills == 3
    assert (killed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_weights_of_series(tmp_path: Path) -> None:
    table = ward(tmp_path, 40)
    frame = pd.read_csv(table)
    frame["w"] = 1.0 + (frame["died"] == 1) * 2.0
    frame["v"] = 4.0 - frame["w"]
    frame.to_csv(table, index=False)
    roles = [*CLASSIFY, "--channels", "hr,spo2"]
    said = tides("train", table, *roles, "--weight", "w", "--out", tmp_path / "model")
    assert "8 series that were kept apart, weighed by 'w':" in said
    estimator = load_estimator(tmp_path / "model")
    assert estimator.weight == "w"
    plain, weighed, other = (
        json.loads(tides("evaluate", tmp_path / "model", table, *words, "--json"))["metrics"]["nll"][0]
        for words in ([], ["--weight", "w"], ["--weight", "v"])
    )
    probabilities = estimator.predict_proba(table)  # type: ignore[attr-defined]
    died = frame.groupby("patient")["died"].first().to_numpy()
    nll = -np.log(probabilities[np.arange(40), died])
    assert [plain, weighed, other] == pytest.approx(
        [nll.mean(), np.average(nll, weights=1 + 2 * died), np.average(nll, weights=3 - 2 * died)], rel=1e-6
    )
    assert "visits.csv: 40 series, weighed by 'v'" in tides("evaluate", tmp_path / "model", table, "--weight", "v")
    assert "visits.csv: 40 series\n" in tides("evaluate", tmp_path / "model", table)
    assert "They count by their weights." in (tmp_path / "model" / "report" / "index.html").read_text()
    assert "40 rows" in tides("predict", tmp_path / "model", table, "--out", tmp_path / "answers.csv")
    with pytest.raises(TidesError, match="weight='weigth' is not a column"):
        tides("train", table, *roles, "--weight", "weigth", "--out", tmp_path / "other")
    with pytest.raises(TidesError, match="weight: wanted --weight, its own option"):
        tides("train", table, *roles, "--set", "weight=w", "--out", tmp_path / "other")


@pytest.mark.slow
def test_weights_and_forecasts(tmp_path: Path) -> None:
    table = ward(tmp_path)
    frame = pd.read_csv(table)
    frame.assign(w=2.0 * (frame["died"] == 1)).to_csv(table, index=False)
    roles = [*COLUMNS, "--label", "died", "--static", "age,sex", "--weight", "w", *QUICK]
    said = tides("train", table, *roles, "--task", "forecast", "--horizon", "24h", "--out", tmp_path / "model")
    assert "weighed" not in said
    parts = json.loads((tmp_path / "model" / "record.json").read_text())["split"]
    assert sum(parts.values()) == 30
    assert f"{parts['test']} test, {parts['left out']} left out; " in said
    with pytest.raises(TidesError, match="--weight: forecasts count all series the same"):
        tides("evaluate", tmp_path / "model", table, "--weight", "w")


def test_patients_without_a_label(tmp_path: Path) -> None:
    table = ward(tmp_path)
    frame = pd.read_csv(table)
    frame["died"] = frame["died"].where(~frame["patient"].isin(["p03", "p07"]))
    frame.to_csv(table, index=False)
    with pytest.raises(TidesError, match=r"2 of 30 series without a label: 'p03', 'p07'; .*unlabelled='drop'"):
        tides("train", table, *CLASSIFY, "--out", tmp_path / "model")
    with pytest.warns(UserWarning, match="2 of 30 series without a label: 'p03', 'p07'; left out"):
        said = tides("train", table, *CLASSIFY, "--unlabelled", "drop", "--out", tmp_path / "model")
    assert "28 series" in said
    with pytest.warns(UserWarning, match="left out"):
        assert "28 series" in tides("evaluate", tmp_path / "model", table)
    with pytest.raises(TidesError, match=r"2 of 30 series without a label: .*--unlabelled drop"):
        tides("evaluate", tmp_path / "model", table, "--unlabelled", "error")
    assert "30 rows" in tides("predict", tmp_path / "model", table, "--out", tmp_path / "answers.csv")


def test_what_describe_would_notice_is_said_before_training(tmp_path: Path) -> None:
    table = ward(tmp_path)
    frame = pd.read_csv(table)
    frame["hr"] = frame["hr"].fillna(-999.0)
    frame.assign(one=1.0).to_csv(table, index=False)
    notes = json.loads(tides("data", "describe", table, *COLUMNS, "--label", "died", "--static", "age,sex", "--json"))
    assert any("is -999 or from" in note for note in notes["notes"])
    assert any("constant: one" in note for note in notes["notes"])
    words = [str(word) for word in ("train", table, *CLASSIFY, "--out", tmp_path / "model", "--json")]
    result = CliRunner().invoke(app, words)
    assert result.stderr.splitlines() == [f"tides: note: {note}" for note in notes["notes"]]
    assert json.loads(result.stdout)["notes"] == notes["notes"]
    assert json.loads((tmp_path / "model" / "record.json").read_text())["notes"] == notes["notes"]


def test_one_long_series(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    hours = np.cumsum(rng.exponential(0.5, 800))
    load = 50 + 10 * np.sin(2 * np.pi * hours / 12) + rng.normal(0, 1, 800)
    when = pd.Timestamp("2031-01-01") + pd.to_timedelta(np.round(3600 * hours), unit="s")
    table = tmp_path / "pump.csv"
    pd.DataFrame({"when": when, "load": load}).drop_duplicates("when").to_csv(table, index=False)
    roles = ["--time", "when", "--unit", "h", "--horizon", "3h"]
    with pytest.raises(TidesError, match=r"--id: wanted the column that names the series; .* needs --cut"):
        tides("train", table, *roles, *QUICK, "--out", tmp_path / "model")
    said = tides("train", table, *roles, "--cut", "12h", *QUICK, "--out", tmp_path / "model")
    assert "pump.csv: 1 series" in said
    assert "on 7 pieces, the latest of each series, that were kept apart" in said
    assert json.loads(tides("evaluate", tmp_path / "model", table, "--json"))["series"] > 30
    tides("predict", tmp_path / "model", table, "--at", "+1h", "--out", tmp_path / "answers.csv")
    answers = pd.read_csv(tmp_path / "answers.csv")
    assert list(answers.columns) == ["when", "channel", "mean", "low", "high"]
    assert pd.Timestamp(answers["when"][0]) - when[-1] == pd.Timedelta("1h")
    assert "1 series" in tides("data", "describe", table, "--time", "when")
