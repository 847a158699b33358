"""Compiled code is that of its sources and of its signature, and who waits for the compiler is told."""

import os
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the cpu backend needs numba")

from numba import njit
from numba.core.event import Event, EventStatus

from tides.kernels.cpu import compiled_code
from tides.kernels.cpu.compiled_code import Announcement, compiler, drop_stale


def test_code_older_than_any_source_is_forgotten(tmp_path: Path) -> None:
    cache = tmp_path / "__pycache__"
    cache.mkdir()
    ages = {"caller.py": 10, "called.py": 30}
    ages |= {
        f"__pycache__/{name}": age for name, age in (("old.nbi", 20), ("old.nbc", 20), ("new.nbi", 40), ("new.nbc", 40))
    }
    for name, age in ages.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (age, age))
    drop_stale(tmp_path)
    assert {path.name for path in cache.iterdir()} == {"new.nbi", "new.nbc"}


def test_no_compiled_code_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "source.py").touch()
    drop_stale(tmp_path)


def doubled(x: int) -> int:
    return 2 * x


def test_where_no_folder_can_be_written_code_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.core.caching.CompileResultCacheImpl._locator_classes", [])
    compiled_code._is_kept.cache_clear()
    try:
        with pytest.warns(UserWarning, match="NUMBA_CACHE_DIR"):
            twice = compiler(set())(doubled)
        assert twice(3) == 6
    finally:
        compiled_code._is_kept.cache_clear()


def test_processes_that_keep_code_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each looks before the other has written; the slower one then writes last."""
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    slow, quick, later = (compiler(set())(doubled) for _ in range(3))
    files, waiting = slow._cache._cache_file, []
    write = files._save_data
    monkeypatch.setattr(files, "_save_data", lambda *arguments: waiting.append(arguments))
    monkeypatch.setattr(quick._cache._cache_file, "_load_index", dict)
    assert slow(3) == 6
    assert quick(3.5) == 7.0
    [arguments] = waiting
    write(*arguments)
    assert later(3.5) == 7.0
    assert list(later.stats.cache_hits) == [later.signatures[0]]


@pytest.mark.parametrize(
    ("module", "person", "lines"), [("tides.made_up", True, 1), ("tides.made_up", False, 0), ("elsewhere", True, 0)]
)
def test_a_person_is_told_once_who_waits(
    module: str, person: bool, lines: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doubled, "__module__", module)
    monkeypatch.setattr("sys.stderr.isatty", lambda: person)
    begins = Event("numba:compile", EventStatus.START, {"dispatcher": njit(doubled)})
    announcement = Announcement()
    for _ in range(2):
        announcement.notify(begins)
    assert capsys.readouterr().err.count("compiling") == lines
