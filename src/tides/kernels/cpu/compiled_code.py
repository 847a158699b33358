"""Compiled code on disk: it must be younger than every source it was made from."""

from contextlib import suppress
from pathlib import Path


def drop_stale(folder: Path) -> None:
    """Forget code that is older than any source of the folder.

    numba compares it with the file of the function itself, not with those of the functions that were compiled into it.
    """
    newest = max(source.stat().st_mtime for source in folder.glob("*.py"))
    for index in (folder / "__pycache__").glob("*.nbi"):
        # Another process may have done so already, or the folder may belong to somebody else, who keeps it in order.
        with suppress(OSError):
            if index.stat().st_mtime < newest:
                index.unlink()
