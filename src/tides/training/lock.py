"""A lock on the folder of a run, so that no two processes write one run."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tides.errors import TidesError
from tides.locking import lock_file

_NAME = ".lock"


@contextmanager
def locked(folder: Path | None) -> Iterator[None]:
    """Whoever else asks for `folder` meanwhile is refused. The lock ends with the process, however it ends.

    Nothing is locked where nothing can be written, and where system or disk know no locks.
    """
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    try:
        file = (folder / _NAME).open("ab")
    except OSError:
        # A finished run may be read from anywhere; whoever has to write meets this error again.
        yield
        return
    with file:
        try:
            lock_file(file)
        except BlockingIOError:
            raise TidesError(f"{folder}: another process trains in this folder; wait for it, or use another") from None
        except OSError:
            # A disk without locks.
            pass
        yield
