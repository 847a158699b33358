"""Files that appear whole or not at all."""

import errno
import os
from pathlib import Path

import pytest

from tides.atomic import atomic_write, require_folder


def _fail_half_way(path: Path) -> None:
    with atomic_write(path) as file:
        file.write(b"half")
        raise RuntimeError("stop")


def test_write_is_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.bin"
    with atomic_write(path) as file:
        file.write(b"first")
        assert not path.exists()
    assert path.read_bytes() == b"first"
    with pytest.raises(RuntimeError, match="stop"):
        _fail_half_way(path)
    assert path.read_bytes() == b"first"
    assert [p.name for p in path.parent.iterdir()] == ["file.bin"]


@pytest.mark.skipif(os.name != "posix", reason="permissions are a POSIX notion")
def test_files_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with atomic_write(tmp_path / "file") as file:
            file.write(b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


def test_other_threads_files_keep_their_permissions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The umask belongs to the process: whoever looks at it changes it for a moment, for everybody."""
    monkeypatch.setattr(os, "umask", None)
    with atomic_write(tmp_path / "file") as file:
        file.write(b"x")
    assert (tmp_path / "file").read_bytes() == b"x"


def test_refusals_name_the_file_and_not_a_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    with pytest.raises(IsADirectoryError) as caught, atomic_write(path):
        pass
    assert caught.value.filename == str(path)
    long = tmp_path / ("x" * 250)
    with pytest.raises(OSError, match="too long") as refused, atomic_write(long):
        pass
    assert refused.value.filename == str(long)
    with pytest.raises(FileNotFoundError) as other, atomic_write(tmp_path / "file"):
        (tmp_path / "absent").read_bytes()
    assert other.value.filename == str(tmp_path / "absent")


def test_a_full_disk_is_named_by_the_file_that_was_wanted(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text("before")
    with pytest.raises(OSError, match="No space left") as caught, atomic_write(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.filename == str(path)
    assert path.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == ["model.json"]


def test_a_folder_is_tried_before_it_is_needed(tmp_path: Path) -> None:
    require_folder(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        require_folder(tmp_path / "file")
