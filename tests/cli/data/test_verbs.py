"""`tides data list`, `get` and `verify` on a small data folder."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tides.cli import main
from tides.data import physiome
from tides.data.physiome import facts
from tides.errors import DataError


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main.app(["data", *words], prog_name="tides")
    return int(end.value.code or 0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIDES_DATA", str(tmp_path))
    for room in ("uea", "physiome/trajectories"):
        (tmp_path / room).mkdir(parents=True)
    rng = np.random.default_rng(0)
    raw = rng.normal(size=(2000, 100, 2))
    physiome.save_trajectories(tmp_path / "physiome/trajectories/DUP01.npz", physiome.standardise("DUP01", raw, 0.1))
    x = rng.normal(size=(4, 1, 5))
    np.savez(tmp_path / "uea/Heartbeat_TRAIN_only.npz", X_train=x, y_train=np.arange(4))
    return tmp_path


def test_list(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "--json") == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["Heartbeat"]["state"] == "incomplete"
    assert rows["EigenWorms"]["state"] == "absent"
    assert rows["physiome"]["state"] == "1 of 50 systems as trajectories"
    assert all(row["licence"] and row["source"] for row in rows.values())
    assert run("list") == 0
    text = capsys.readouterr().out
    assert str(folder) in text
    assert "ODC-By" in text


def test_verify(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify") == 0
    text = capsys.readouterr().out
    assert "ok  physiome/DUP01.npz: 2000 trajectories, 2 channels" in text
    assert "incomplete: the official test cases" in text
    x = np.zeros((3, 6, 896))
    halves = {f"{key}_{part}": v for part in ("train", "test") for key, v in (("X", x), ("y", np.arange(3)))}
    np.savez(folder / "uea/SelfRegulationSCP1.npz", **halves)
    with zipfile.ZipFile(folder / "physiome/final.zip", "w") as archive:
        archive.writestr(f"final/{facts.system('HOD01').model}/0/train.pt", b"")
    (folder / "physiome/final.zip.md5").write_text("0" * 32 + "  final.zip\n")
    assert run("verify", "--json") == 1
    checks = {(c["dataset"], c["file"]): c for c in json.loads(capsys.readouterr().out)}
    assert "wanted (561, 6, 896, 2)" in checks["SelfRegulationSCP1", "SelfRegulationSCP1.npz"]["detail"]
    assert "checksum" in checks["physiome", "final.zip"]["detail"]
    (folder / "physiome/final.zip.md5").unlink()
    assert run("verify", "physiome") == 1
    assert "1 of 250 folds; no checksum kept" in capsys.readouterr().out


def test_verify_without_data(folder: Path) -> None:
    with pytest.raises(DataError, match="nothing of EigenWorms in"):
        main.app(["data", "verify", "EW"], prog_name="tides", standalone_mode=False)


def test_get_says_what_to_do(folder: Path) -> None:
    with pytest.raises(DataError, match="download it from https://physionet"):
        main.app(["data", "get", "physionet2012"], prog_name="tides", standalone_mode=False)
    script = "import sys; from tides.cli.main import main; sys.modules['aeon.datasets'] = None; main()"
    result = subprocess.run(
        [sys.executable, "-c", script, "data", "get", "EW"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "EigenWorms.npz" in result.stderr


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom tides.cli.main import app\n"
        "for verb in ('list', 'get', 'verify'):\n"
        "    try: app(['data', verb, '--help'], prog_name='tides')\n"
        "    except SystemExit: pass\n"
        "assert not {'torch', 'numpy', 'pandas'} & set(sys.modules), sorted(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
