"""Files that appear complete or not at all."""

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import IO


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that appears under `path` complete or not at all, also after `kill -9`.

    Two processes may write the same path: each has a temporary file of its own and the last one to finish wins. Where
    the system refuses to write (a full disk), its error names `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not by `tempfile`, whose files are readable by their owner alone.
    aside = path.parent / f"{_prefix(path)}{secrets.token_hex(8)}.tmp"
    try:
        with aside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException as error:
        with suppress(OSError):
            aside.unlink()
        if isinstance(error, OSError) and error.errno is not None and _is_ours(error, path):
            raise type(error)(error.errno, error.strerror, str(path)) from error
        raise


def remove_leftovers(path: Path) -> None:
    """Remove what processes that were killed left of `path`, which nobody may be writing now."""
    for aside in path.parent.glob(f"{escape(_prefix(path))}*.tmp"):
        aside.unlink(missing_ok=True)


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
    return not isinstance(found, str | bytes) or os.fsdecode(found).startswith(str(path.parent / _prefix(path)))


def _prefix(path: Path) -> str:
    return f".{path.name}."
