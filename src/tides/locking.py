"""A lock on an open file: it ends with the file, and with its process, however that ends."""

from typing import IO

try:
    import fcntl
except ImportError:  # not every system has it
    fcntl = None  # type: ignore[assignment]


def lock_file(file: IO[bytes]) -> None:
    """For this process alone; `BlockingIOError` where another one has it, and another `OSError` from disks that know no
    locks. Where the system has none, nothing is locked."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
