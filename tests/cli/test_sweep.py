"""`tides sweep` and the options that take what it chose."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("optuna")

from tests.cli.tables import ward
from tides import experiments
from tides.cli.main import app
from tides.errors import ConfigError
from tides.experiments import EXPERIMENTS
from tides.records import read_records

FILE = """
experiment = "physiome"
[settings]
datasets = ["embedded-calcium"]
[space]
"train.lr" = { low = 1e-6, high = 1e-3, log = true }
"""


def invoke(*words: str) -> str:
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(EXPERIMENTS, "physiome", "tests.experiments.sweep_stub")
    monkeypatch.chdir(tmp_path)
    Path("own.toml").write_text(FILE, encoding="utf-8")


@pytest.mark.usefixtures("stub")
def test_sweep_run_and_report() -> None:
    found = json.loads(invoke("sweep", "own.toml", "--trials", "2", "--json"))
    (one,) = found["sweeps"]
    assert found["folder"] == "runs/sweep"
    assert one["chosen"] == "runs/sweep/chosen/own.toml"
    text = invoke("sweep", "own.toml", "--trials", "2")
    assert f"best is trial {one['best']['trial']} with validation score {one['best']['value']:.4g}" in text
    ran = json.loads(invoke("run", "physiome", "--config", one["chosen"], "--json", "--workers", "1"))
    assert ran["computed"] == 1
    (record,) = Path("runs/physiome/records").glob("own-*.json")
    config = json.loads(record.read_text(encoding="utf-8"))["config"]
    assert config["train"]["lr"] == one["best"]["settings"]["train.lr"]
    assert config["folds"] == 5


@pytest.mark.usefixtures("stub")
def test_a_log_file_has_a_line_for_every_trial() -> None:
    result = CliRunner().invoke(app, ["sweep", "own.toml", "--trials", "2"])
    assert result.stderr.splitlines()[:3] == [f"own: {settled} of 2 trials" for settled in range(3)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["own.toml"], "--trials"),
        (["nope"], "nope: found no file of that name, wanted uea, physiome or a TOML file"),
        (["uea", "--datasets", "FOO"], "datasets: found 'FOO'"),
        (["own.toml", "--device", "tpu"], "device: found 'tpu'"),
        (["own.toml", "--trials", "0"], "--trials"),
        (["own.toml", "--trials", "1", "--protocol", "public"], "--protocol"),
        (["own.toml", "--trials", "1", "--sampler", "grid"], "--sampler"),
        (["own.toml", "--trials", "3", "--protocol", "published"], "--trials"),
        (["own.toml", "--protocol", "published", "--sampler", "tpe"], "--sampler"),
        (["own.toml", "--trials", "1", "--datasets", "HOD01"], "--datasets"),
        (["own.toml", "--trials", "1", "--storage", "nonsense"], "--storage"),
        (["own.toml", "--trials", "1", "--heartbeat", "0"], "--heartbeat"),
        (["missing.toml", "--trials", "1"], "missing.toml"),
    ],
)
@pytest.mark.usefixtures("stub")
def test_mistakes(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        invoke("sweep", *words)


@pytest.mark.usefixtures("stub")
def test_a_missing_library_is_named_once_and_not_for_every_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tides.experiments.sweep_study", raising=False)
    monkeypatch.delattr(experiments, "sweep_study", raising=False)
    monkeypatch.setitem(sys.modules, "optuna", None)
    result = CliRunner().invoke(app, ["sweep", "physiome", "--datasets", "HOD01,BER01", "--trials", "1"])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception) == 'sweeps need optuna: pip install "tides-ssm[sweep]"'


@pytest.mark.parametrize("option", ["--trials", "--heartbeat"])
@pytest.mark.usefixtures("stub")
def test_numbers_that_cannot_be_are_refused_before_anything_is_drawn(option: str) -> None:
    words = ["sweep", "own.toml", "--trials", "1", option, "0"]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, ConfigError)
    assert result.output == ""
    assert not Path("runs").exists()


@pytest.mark.usefixtures("stub")
def test_config_files_that_cannot_be_read_are_named() -> None:
    with pytest.raises(ConfigError, match="absent"):
        invoke("run", "physiome", "--config", "absent.toml")
    with pytest.raises(ConfigError, match="--variant"):
        invoke("run", "physiome", "--config", "own.toml", "--variant", "paper")


SMALL_PHYSIOME = {
    "instances": 30,
    "train.epochs": 12,
    "model.hidden_size": 8,
    "model.state_size": 4,
    "model.depth": 2,
    "model.rank": 2,
    "model.expand": 1.0,
}
SMALL_UEA = {
    "configuration.epochs": 3,
    "configuration.batch_size": 20,
    "configuration.hidden_size": 8,
    "configuration.depth": 1,
    "configuration.groups": 2,
    "configuration.state_multiple": 1,
    "configuration.rank": 4,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "dataset", "small"),
    [("physiome", "embedded-calcium", SMALL_PHYSIOME), ("uea", "embedded", SMALL_UEA)],
)
def test_the_published_protocol_from_the_search_to_the_chosen_file(
    experiment: str, dataset: str, small: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten small configurations of the paper's space are trained; `tides run` finds the same test errors again."""
    monkeypatch.chdir(tmp_path)
    fixed = [word for name, value in small.items() for word in ("--set", f"{name}={value}")]
    line = ["sweep", experiment, "--datasets", dataset, "--protocol", "published", *fixed, "--json"]
    (one,) = json.loads(invoke(*line))["sweeps"]
    (record,) = read_records(Path("runs/sweep/records"))
    rows = record.results["trials"]
    assert [row["trial"] for row in rows] == list(range(10))
    assert {row["state"] for row in rows} == {"complete"}
    assert len({json.dumps(row["drawn"], sort_keys=True) for row in rows}) == 10
    assert record.results["best"]["value"] == min(row["value"] for row in rows)

    invoke("run", experiment, "--config", one["chosen"], "--workers", "1")
    tested, found = [
        sorted(_test_numbers(experiment, folder)) for folder in (Path("runs/sweep/folds"), Path("runs") / experiment)
    ]
    assert len(tested) == 5
    assert found == pytest.approx(tested, rel=1e-6)
    assert record.results["folds"]["mean"] == pytest.approx(sum(tested) / 5)

    # The second call finds everything done.
    again = json.loads(invoke(*line))["sweeps"]
    assert again == [one]
    assert "five folds" in invoke("report", "sweep")
    assert dataset in invoke("report", experiment, "--in", "runs/sweep/folds")


def _test_numbers(experiment: str, folder: Path) -> list[float]:
    results = [record.results for record in read_records(folder / "records")]
    if experiment == "uea":
        return [one["test"]["accuracy"] for one in results]
    return [fold["test_mse"] for one in results for fold in one["folds"]]


@pytest.mark.slow
def test_train_takes_what_a_sweep_chose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (
        '[task]\nestimator = "classifier"\nseries = 30\n'
        "[settings]\nepochs = 2\nhidden_size = 8\nstate_size = 4\ndepth = 1\n"
        "[space]\nlr = {low = 1e-3, high = 1e-1, log = true}\ndropout = [0.0, 0.1]\n"
    )
    Path("classify.toml").write_text(text, encoding="utf-8")
    (one,) = json.loads(invoke("sweep", "classify.toml", "--trials", "3", "--json"))["sweeps"]
    columns = ["--id", "patient", "--time", "charttime", "--unit", "h", "--label", "died", "--static", "age,sex"]
    invoke("train", str(ward(tmp_path, 20)), *columns, "--config", one["chosen"], "--out", "model", "--json")
    found = json.loads(Path("model/estimator.json").read_text(encoding="utf-8"))
    for name, value in one["best"]["settings"].items():
        assert found["params"][name] == value
