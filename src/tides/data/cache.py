"""Where data is kept on this machine, and how files get there without ever being half written."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tides.errors import DataError


def data_root(root: str | Path | None, room: str) -> Path:
    """The folder to read from: `root` as given, else the `room` of `$TIDES_DATA` or of the user's cache."""
    if root is None:
        return cache_root() / room
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise DataError(f"root={str(root)!r} is not a folder")
    return folder


def cache_root() -> Path:
    """`$TIDES_DATA`, or `tides` in this system's cache folder. The folder may not exist yet."""
    chosen = os.environ.get("TIDES_DATA")
    return Path(chosen).expanduser() if chosen else user_cache()


def user_cache() -> Path:
    """`tides` in the user's own cache folder."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "tides"


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold `path` alone among processes; a second process waits. The lock ends with the process that holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("a+b") as file:
        _acquire(file)
        try:
            yield
        finally:
            _release(file)


if sys.platform == "win32":
    import msvcrt
    import time

    def _acquire(file: IO[bytes]) -> None:
        while True:
            try:
                file.seek(0)
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
                return
            except OSError:
                time.sleep(0.2)

    def _release(file: IO[bytes]) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _acquire(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX)

    def _release(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)
