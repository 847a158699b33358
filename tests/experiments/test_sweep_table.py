"""Sweeps over somebody's own table: what `tides train` keeps apart has no part in the choice."""

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("optuna")

from tests.cli.tables import ward
from tides.cli.main import app
from tides.errors import ConfigError, DataError
from tides.experiments import sweep_table
from tides.experiments.sweep import Options, file_sweep, run_sweep

SIZES = "epochs = 1\nhidden_size = 4\nstate_size = 4\ndepth = 1\n"


def written(folder: Path, estimator: str, table: str, settings: str = "") -> Path:
    path = folder / "own.toml"
    columns = f"path = 'visits.csv'\nid = 'patient'\ntime = 'charttime'\nunit = 'h'\n{table}"
    text = f"[task]\nestimator = '{estimator}'\nseed = 3\n[task.table]\n{columns}\n[settings]\n{SIZES}{settings}\n"
    path.write_text(text + "[space]\nlr = [0.02]\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("estimator", "table", "settings"),
    [
        ("classifier", "label = 'died'\nstatic = ['age', 'sex']\ntest = 0.3", ""),
        ("regressor", "label = 'age'\nchannels = ['hr', 'spo2']\ngroup = 'sex'\ntest = 0", ""),
        ("forecaster", "channels = ['hr']\nweight = 'age'", "horizon = '12h'"),
        ("forecaster", "channels = ['hr']\ncut = '20h'", "horizon = '6h'"),
    ],
)
def test_the_command_in_the_chosen_file_repeats_the_trial(
    estimator: str, table: str, settings: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ward(tmp_path, 40)
    sweep = file_sweep(written(tmp_path, estimator, table, settings), quick=False, settings=[], device="cpu")
    result = run_sweep(sweep, Options(1, f"sqlite:///{tmp_path}/sweep.db"), tmp_path)
    words = shlex.split(result.chosen.read_text(encoding="utf-8").splitlines()[0].removeprefix("# tides "))
    monkeypatch.chdir(result.chosen.parent)
    words[1] = str(tmp_path / words[1])
    answer = CliRunner().invoke(app, [*words, "--json"])
    assert answer.exit_code == 0, answer.output
    record = json.loads(Path("model/record.json").read_text(encoding="utf-8"))
    best = result.record.results["best"]
    assert best["settings"] == {"lr": 0.02}
    assert min(row["val_loss"] for row in record["history"]) == pytest.approx(best["value"], rel=1e-6)


def test_another_table_is_another_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, "classifier", "label = 'died'\nchannels = ['hr']")
    options = Options(1, f"sqlite:///{tmp_path}/sweep.db")
    ward(tmp_path, 30)
    run_sweep(file_sweep(path, quick=False, settings=[], device="cpu"), options, tmp_path)
    ward(tmp_path, 31)
    sweep_table._read.cache_clear()  # another process
    with pytest.raises(ConfigError, match="another space, setting, seed or data"):
        run_sweep(file_sweep(path, quick=False, settings=[], device="cpu"), options, tmp_path)


@pytest.mark.parametrize(
    ("estimator", "table", "settings", "error", "message"),
    [
        ("classifier", "", "", ConfigError, r"task\.table\.label: missing; a classifier needs"),
        (
            "classifier",
            "label = 'died'\ncut = '1d'",
            "",
            ConfigError,
            r"task\.table\.cut: found '1d', but",
        ),
        ("forecaster", "", "horizon = '6h'\ncut = '1d'", ConfigError, r"cut: says what stands in a table"),
        ("classifier", "label = 'dead'", "", DataError, "label='dead' is not a column"),
        ("classifier", "label = 'died'\ntest = 1", "", ConfigError, r"task\.table\.test: found 1"),
        ("classifier", "label = 'died'\nlabl = 'x'", "", ConfigError, r"task\.table\.labl: unknown field"),
        ("classifier", "label = 'died'", "unit = 'h'", ConfigError, r"unit: says what stands in a table"),
    ],
)
def test_mistakes_are_named_before_anything_is_tried(
    estimator: str,
    table: str,
    settings: str,
    error: type[Exception],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ward(tmp_path, 30)
    path = written(tmp_path, estimator, table, settings)
    with pytest.raises(error, match=message):
        run_sweep(
            file_sweep(path, quick=False, settings=[], device="cpu"),
            Options(1, f"sqlite:///{tmp_path}/sweep.db"),
            tmp_path,
        )
    assert not (tmp_path / "sweep.db").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("estimator = 'regressor'\n", "a regressor needs"),
        (
            "estimator = 'classifier'\nseries = 30\n[task.table]\npath = 'a.csv'\nid = 'a'\ntime = 'b'\nlabel = 'c'\n",
            r"task\.series: belongs to simulated cells",
        ),
        (
            "estimator = 'classifier'\n[task.table]\npath = 'a.csv'\nid = 'a'\ntime = 'b'\nlabel = 'c'\n",
            r"task\.table\.path: a\.csv: no such file",
        ),
    ],
)
def test_a_table_and_simulated_cells_are_told_apart(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(f"[task]\n{text}[space]\nlr = [0.02]\n", encoding="utf-8")
    result = CliRunner().invoke(app, ["sweep", str(path), "--trials", "1", "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, ConfigError)
    assert re.search(message, str(result.exception))
