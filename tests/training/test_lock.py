"""One process trains in a folder, and the lock on it ends with the process."""

import errno
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.training.test_engine import Mean, config, run, series
from tides.errors import TidesError
from tides.training import Classification, fit
from tides.training.lock import locked

pytest.importorskip("fcntl")


def test_a_folder_in_which_another_process_trains_is_refused(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tides.training.lock import locked\n"
        "with locked(Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()"
    )
    words = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(TidesError, match=f"{tmp_path}: another process trains in this folder"):
            run(tmp_path)
        assert not (tmp_path / "checkpoint.json").exists()
        other.kill()
    _, result = run(tmp_path)
    assert result.stopped == "epochs"


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
