"""One process trains in a folder, and the lock on it ends with the process."""

import errno
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from tests.training.test_engine import Mean, config, run, series
from tests.training.test_lanes import SETTINGS, member, problem
from tides.errors import TidesError
from tides.locking import lock_file
from tides.training import Classification, fit, fit_population, lock
from tides.training.lanes import fit_side_by_side
from tides.training.lock import locked

pytest.importorskip("fcntl")


@contextmanager
def another_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that trains there, as far as its lock tells."""
    code = (
        "import sys; from pathlib import Path; from tides.training.lock import locked\n"
        "with locked(Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()"
    )
    words = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        yield other


def test_a_folder_in_which_another_process_trains_is_refused(tmp_path: Path) -> None:
    with another_process(tmp_path) as other:
        with pytest.raises(TidesError, match=f"{tmp_path}: another process trains in this folder"):
            run(tmp_path)
        assert not (tmp_path / "checkpoint.json").exists()
        other.kill()
    _, result = run(tmp_path)
    assert result.stopped == "epochs"


def test_populations_and_lanes_are_refused_too(tmp_path: Path) -> None:
    _, resident = problem()
    alone = fit_side_by_side([member(1, resident)], SETTINGS.replace(epochs=1, patience=None), folder=tmp_path)
    assert alone[0].folder is not None
    with locked(alone[0].folder), pytest.raises(TidesError, match="another process trains in this folder"):
        fit_side_by_side([member(1, resident)], SETTINGS.replace(epochs=1, patience=None), folder=tmp_path)
    # Other models in the same folder are none of its business.
    with locked(alone[0].folder):
        fit_side_by_side([member(2, resident)], SETTINGS.replace(epochs=1, patience=None), folder=tmp_path)
    pair = (series(8), series(4, 1))
    with locked(tmp_path), pytest.raises(TidesError, match=f"{tmp_path}: another process trains in this folder"):
        fit_population([Mean()], Classification(), [pair], config(), folder=tmp_path, progress=False)
    fit_population([Mean()], Classification(), [pair], config(epochs=1), folder=tmp_path, progress=False)


def test_a_lock_whose_file_is_removed_meanwhile_is_taken_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits in front of the old file must not believe that it has the lock."""
    tries = 0

    def remove_first(file: IO[bytes]) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            (tmp_path / ".lock").unlink()
        lock_file(file)

    monkeypatch.setattr(lock, "lock_file", remove_first)
    with locked(tmp_path):
        assert tries == 2
        with pytest.raises(TidesError, match="another process"), locked(tmp_path):
            pass


def test_a_run_that_failed_leaves_its_folder_open(tmp_path: Path) -> None:
    def interrupt(fraction: float) -> None:
        raise KeyboardInterrupt

    # The exception, and with it everything of the first run, is still there when the second one begins.
    with pytest.raises(KeyboardInterrupt):
        fit(Mean(), Classification(), (series(24), None), config(), folder=tmp_path, progress=interrupt)
    fit(Mean(), Classification(), (series(24), None), config(), folder=tmp_path, progress=False)


def test_a_finished_run_is_read_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, first = run(tmp_path)
    plain = Path.open

    def open_to_read(self: Path, mode: str = "r", **options: Any) -> Any:
        if "r" not in mode:
            raise PermissionError(errno.EROFS, "Read-only file system", str(self))
        return plain(self, mode, **options)

    monkeypatch.setattr(Path, "open", open_to_read)
    _, again = run(tmp_path)
    assert again.history == first.history


def test_without_a_folder_nothing_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with locked(None), locked(None):
        assert list(tmp_path.iterdir()) == []
