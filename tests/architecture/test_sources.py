"""What every file of the project owes its reader."""

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src" / "tides").rglob("*.py"))
LONGEST = 400
# Put together here, so that this file does not contain them.
MACHINE_PATHS = ["/" + folder + "/" for folder in ("work", "root", "home", "tmp", "Users", "mnt")]


def tracked_files() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not done.stdout:
        pytest.skip("not a git checkout, so there are no tracked files to look at")
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_files_stay_short() -> None:
    assert len(SOURCES) > 50
    lengths = {str(p.relative_to(ROOT)): len(p.read_text(encoding="utf-8").splitlines()) for p in SOURCES}
    assert {name: n for name, n in lengths.items() if n > LONGEST} == {}


def test_files_are_named_after_what_they_hold() -> None:
    forbidden = {"utils", "util", "helpers", "helper", "misc", "common", "stuff"}
    assert [p for p in [*SOURCES, *(ROOT / "tests").rglob("*.py")] if p.stem in forbidden] == []


def test_every_module_begins_by_saying_what_it_is() -> None:
    silent = [p for p in SOURCES if ast.get_docstring(ast.parse(p.read_text(encoding="utf-8"))) is None]
    assert silent == []


def test_no_tracked_file_names_a_place_on_somebodys_machine() -> None:
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {place}" for place in MACHINE_PATHS if place in text]
    assert found == []


def test_no_model_or_data_file_is_pickled() -> None:
    names = [path.name for path in tracked_files()]
    assert [n for n in names if n.endswith((".pkl", ".pickle", ".pt", ".pth", ".npz", ".npy"))] == []


def test_nothing_unpickles() -> None:
    """The one exception is the restricted reader of the published Physiome archive."""
    allowed = {"archive.py"}
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        if path.name not in allowed:
            assert "pickle.load" not in text, path
            assert "torch.load(" not in text, path
