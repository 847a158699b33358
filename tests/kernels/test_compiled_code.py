"""Compiled code that is older than a source is not used."""

import os
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the cpu backend needs numba")

from tides.kernels.cpu.compiled_code import drop_stale


def test_code_older_than_any_source_is_forgotten(tmp_path: Path) -> None:
    cache = tmp_path / "__pycache__"
    cache.mkdir()
    ages = {"caller.py": 10, "called.py": 30, "__pycache__/old.nbi": 20, "__pycache__/new.nbi": 40}
    for name, age in ages.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (age, age))
    drop_stale(tmp_path)
    assert [path.name for path in cache.iterdir()] == ["new.nbi"]


def test_no_compiled_code_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "source.py").touch()
    drop_stale(tmp_path)
