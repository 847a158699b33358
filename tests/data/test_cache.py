"""The data folder: where it is, and who may change it."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tides.data import cache
from tides.errors import DataError


def test_environment_variable_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIDES_DATA", str(tmp_path / "mine"))
    assert cache.data_root(None, "uea") == tmp_path / "mine" / "uea"
    assert cache.data_root(tmp_path, "uea") == tmp_path


@pytest.mark.parametrize(
    ("platform", "variable", "folder"),
    [
        ("linux", "XDG_CACHE_HOME", "tides"),
        ("win32", "LOCALAPPDATA", "tides"),
        ("darwin", "HOME", "Library/Caches/tides"),
    ],
)
def test_user_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, platform: str, variable: str, folder: str) -> None:
    monkeypatch.delenv("TIDES_DATA", raising=False)
    monkeypatch.setattr(cache.sys, "platform", platform)
    monkeypatch.setenv(variable, str(tmp_path))
    assert cache.cache_root() == tmp_path / folder


def test_missing_root_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="gone' is not a folder"):
        cache.data_root(tmp_path / "gone", "uea")


def test_lock_keeps_two_processes_apart(tmp_path: Path) -> None:
    """Each process adds to a counter a hundred times, reading and writing as two steps."""
    (tmp_path / "count").write_text("0")
    script = textwrap.dedent(
        f"""
        from pathlib import Path
        from tides.data import cache
        path = Path({str(tmp_path / "count")!r})
        for _ in range(100):
            with cache.lock(path):
                path.write_text(str(int(path.read_text()) + 1))
        """
    )
    workers = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(2)]
    assert [worker.wait(timeout=60) for worker in workers] == [0, 0]
    assert (tmp_path / "count").read_text() == "200"
