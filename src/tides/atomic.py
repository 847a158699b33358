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
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files private; what is written here may be shared.
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename in (None, handle):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
