"""`tides sweep` and the options that take what it chose."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("optuna")

from tides.cli.main import app
from tides.errors import ConfigError
from tides.experiments import EXPERIMENTS

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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["own.toml"], "--trials"),
        (["own.toml", "--trials", "0"], "--trials"),
        (["own.toml", "--trials", "1", "--protocol", "public"], "--protocol"),
        (["own.toml", "--trials", "1", "--sampler", "grid"], "--sampler"),
        (["own.toml", "--trials", "3", "--protocol", "published"], "--trials"),
        (["own.toml", "--protocol", "published", "--sampler", "tpe"], "--sampler"),
        (["own.toml", "--trials", "1", "--datasets", "HOD01"], "--datasets"),
        (["own.toml", "--trials", "1", "--storage", "nonsense"], "--storage"),
        (["missing.toml", "--trials", "1"], "missing.toml"),
    ],
)
@pytest.mark.usefixtures("stub")
def test_mistakes(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        invoke("sweep", *words)


@pytest.mark.usefixtures("stub")
def test_config_files_that_cannot_be_read_are_named() -> None:
    with pytest.raises(ConfigError, match="absent"):
        invoke("run", "physiome", "--config", "absent.toml")
    with pytest.raises(ConfigError, match="--variant"):
        invoke("run", "physiome", "--config", "own.toml", "--variant", "paper")
