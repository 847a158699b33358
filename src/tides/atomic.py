"""Files that appear complete or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that appears under `path` complete or not at all, also after `kill -9`.

    Two processes may write the same path: each has a temporary file of its own and the last one to finish wins. Where
    the system refuses to write (a full disk), its error names `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    name: str | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files private; what is written here may be shared.
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException as error:
        if name is not None:
            Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and _is_ours(error, path):
            raise type(error)(error.errno, error.strerror, str(path)) from error
        raise


def require_folder(folder: Path) -> None:
    """Make `folder` and write into it, so that long work does not end in front of a closed door."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryFile(prefix=".tides.", dir=folder):
            pass
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(folder)) from error


def _is_ours(error: OSError, path: Path) -> bool:
    """An error of the temporary file, or of one that was open already; not of another file used on the way."""
    found = error.filename
    return not isinstance(found, str | bytes) or os.fsdecode(found).startswith(str(path.parent / f".{path.name}."))


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
