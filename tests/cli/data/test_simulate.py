"""`tides data simulate` and `tides data jgd` on small CellML models."""

import json
from pathlib import Path

import pytest

from tests.data.physiome.models import oscillator
from tides.cli import main
from tides.data.physiome import search
from tides.data.physiome.integrate import Spread
from tides.errors import ConfigError, DataError

pytest.importorskip("libcellml", reason="libCellML is not installed")
pytest.importorskip("numba", reason="numba is not installed")


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main.app(["data", *words], prog_name="tides")
    return int(end.value.code or 0)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TIDES_DATA", str(tmp_path / "data"))
    path = tmp_path / "models" / "spring.cellml"
    path.parent.mkdir()
    path.write_text(oscillator())
    return path


def test_simulate_a_file(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spread = ("--duration", "3", "--d-states", "0.1", "--d-constants", "0.1")
    words = ("simulate", str(model), "-n", "5", *spread, "--workers", "1")
    assert run(*words) == 0
    assert "1 of 1 models" in capsys.readouterr().out
    assert (tmp_path / "data" / "simulated" / "spring.npz").is_file()
    assert run(*words, "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["reused"]


def test_a_model_that_fails_sets_the_exit_code(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model.write_text("<model")
    spread = ("--duration", "3", "--d-states", "0.1", "--d-constants", "0.1")
    assert run("simulate", str(model), "-n", "5", *spread, "--workers", "1") == 1
    assert "FAILED  spring.cellml: not well-formed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("physiome",), "--cellml"),
        (("physiome", "--cellml", "absent"), "--cellml: found absent, wanted a folder of CellML files"),
        (("physiome", "--cellml", ".", "--against", "absent"), "--against: found absent, wanted a folder"),
        (("physiome", "--cellml", ".", "--duration", "3"), "--duration"),
        (("spring.cellml", "--models", "HOD01"), "--models"),
        (("spring.cellml",), "duration, d_states, d_constants"),
        (("absent.cellml",), "absent.cellml: no such file"),
    ],
)
def test_options_that_do_not_fit(
    words: tuple[str, ...], message: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    with pytest.raises(ConfigError, match=message):
        main.app(["data", "simulate", *words], standalone_mode=False)


def test_jgd_of_a_folder(model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "spreads", lambda: (Spread(1.0, 0.1, 0.05), Spread(3.3, 0.3, 0.1)))
    (model.parent / "broken.cellml").write_text("<model")
    assert run("jgd", str(model.parent), "-n", "4", "--workers", "1", "--top", "1") == 0
    text = capsys.readouterr().out
    assert "spring" in text
    assert "broken: broken.cellml: not well-formed" in text
    assert run("jgd", str(model.parent), "-n", "4", "--workers", "1", "--json") == 0
    first, second = json.loads(capsys.readouterr().out)
    assert first["name"] == "spring"
    assert first["jgd"] > 0
    assert first["duration"] in (1.0, 3.3)
    assert second["jgd"] is None
    model.unlink()
    with pytest.raises(DataError, match=r"none of 1 models could be scored; the first one: broken\.cellml: not well"):
        run("jgd", str(model.parent), "-n", "4", "--workers", "1")
    assert "broken" in capsys.readouterr().out
