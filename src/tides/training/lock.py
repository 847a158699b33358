"""A lock on the folder of a run, so that no two processes write one run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO

from tides.errors import TidesError
from tides.locking import lock_file

_NAME = ".lock"


@contextmanager
def locked(folder: Path | None) -> Iterator[None]:
    """Lock `folder` against other processes meanwhile; without a folder, nothing is locked."""
    if folder is None:
        yield
        return
    with held(folder / _NAME, f"{folder}: another process trains in this folder; wait for it, or use another"):
        yield


@contextmanager
def held(path: Path, refusal: str) -> Iterator[None]:
    """The lock in the file `path`, which is created if needed. The lock ends with the process, however it ends.

    Nothing is locked where nothing can be written, or where the system or disk has no locks.
    """
    with _take(path, refusal) or nullcontext():
        yield


def _take(path: Path, refusal: str) -> IO[bytes] | None:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = path.open("ab")
        except FileNotFoundError:
            # Whoever had the lock has removed the folder in the meantime.
            continue
        except OSError:
            # A finished run may be read without a lock; a run that has to write meets this error again.
            return None
        try:
            lock_file(file)
        except BlockingIOError:
            file.close()
            raise TidesError(refusal) from None
        except OSError:
            # A disk without locks.
            return file
        if _is_at(path, file):
            return file
        # Whoever had the lock has removed its file in the meantime.
        file.close()


def _is_at(path: Path, file: IO[bytes]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
