import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tides.cli.main import app
from tides.errors import ConfigError


def refused(*words: str) -> str:
    result = CliRunner().invoke(app, ["run", "fading-flash", "--quick", *words])
    assert isinstance(result.exception, ConfigError), result.output
    return str(result.exception)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--engine", "slurm"], "--engine: found 'slurm', wanted local or ray"),
        (
            ["--address", "auto", "--shared-files"],
            "--address, --shared-files: found --engine local, wanted --engine ray",
        ),
        (["--cpus", "2"], "--cpus: found --engine local, wanted --engine ray"),
        (["--streams", "2"], "--streams: wanted --device cuda with --engine local, and not --workers"),
        (
            ["--engine", "ray", "--device", "cuda:1"],
            "--device: found 'cuda:1', wanted cpu or cuda, because Ray chooses among the GPUs of a node",
        ),
        (
            ["--only", "SCP1"],
            "--only SCP1: no cell has such a label; there are task, paper-s5-seed0, paper-s5-seed1 and 10 more",
        ),
        (["--device", "gpu"], "device: found 'gpu', wanted cpu, cuda, cuda:1, ..."),
    ],
)
def test_options_that_do_not_go_together(words: list[str], reason: str) -> None:
    assert refused(*words) == reason


def test_a_model_that_is_named_twice_is_one_and_none_is_refused(tmp_path: Path) -> None:
    words = ["run", "physiome", "--quick", "--time-limit", "0", "--json", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, [*words, "--models", "tides,tides"])
    assert json.loads(result.stdout)["cells"] == 1
    spaced = CliRunner().invoke(app, [*words, "--models", "tides, s5,", "--only", "embedded-calcium*, HOD01"])
    assert json.loads(spaced.stdout)["cells"] == 2
    result = CliRunner().invoke(app, [*words, "--set", "models=[]"])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception) == "models: found nothing to run, wanted at least one cell"
    assert CliRunner().invoke(app, [*words, "--time-limit", "-5"]).exit_code == 2


@pytest.mark.slow
def test_a_run_on_ray_prints_one_json_object(tmp_path: Path) -> None:
    pytest.importorskip("tests.experiments.cluster_stub", reason="the extra `cluster` is not installed")
    words = ["run", "fading-flash", "--quick", "--only", "paper-s5*", "--out", str(tmp_path), "--json"]
    result = CliRunner().invoke(
        app, [*words, "--engine", "ray", "--address", "local", "--cpus", "0.5", "--workers", "2"]
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["computed"] == found["cells"] == len(os.listdir(tmp_path / "records")) > 0
    assert CliRunner().invoke(app, words).exit_code == 0
    assert json.loads(CliRunner().invoke(app, words).stdout)["cached"] == found["cells"]


def test_a_log_file_tells_how_far_a_run_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tides.cli.run._SECONDS_BETWEEN_LINES", 0.0)
    words = ["run", "physiome", "--variant", "recommended", "--quick", "--out", str(tmp_path), "--workers", "1"]
    words += ["--set", "train.epochs=2", "--set", "train.warmup_epochs=1", "--set", "instances=10"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "physiome: 0.50 of 1 cells after" in result.stderr
    assert "embedded-calcium-recommended-tides" in result.stderr
