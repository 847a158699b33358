"""Compiled code on disk: younger than every source it was made from, and never mistaken for that of another signature.

Who waits for the compiler is told so.
"""

import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from numba import njit
from numba.core import event


def compiler(fastmath: set[str]) -> Any:
    """A decorator that compiles, and keeps the code on disk where there is room for it."""
    kept = _is_kept()
    decorate = njit(cache=kept, nogil=True, error_model="numpy", fastmath=fastmath)

    def compiled(function: Callable[..., Any]) -> Any:
        dispatcher = decorate(function)
        if kept:
            _name_apart(dispatcher)
        return dispatcher

    return compiled


def _name_apart(dispatcher: Any) -> None:
    """Give every piece of code on disk a name that no other process chooses.

    numba counts a function's files. Two processes that compile it for two signatures at once choose the same number,
    and then read the code of one signature as that of the other.
    """
    file = dispatcher._cache._cache_file
    counted = file._data_name
    file._data_name = lambda number: f"{counted(number).removesuffix('.nbc')}-{uuid4().hex[:16]}.nbc"


@cache
def _is_kept() -> bool:
    """Whether a folder beside the sources, or in the user's cache, can be written: in a container often none can."""
    try:
        njit(cache=True)(_probe)
    except RuntimeError:
        warnings.warn(
            "compiled code cannot be cached, so every process compiles for about a minute: neither the installation "
            "nor the user's cache is writable; set NUMBA_CACHE_DIR to a folder that is",
            stacklevel=1,
        )
        return False
    return True


def _probe() -> None:
    """Never called, and so never compiled."""


def drop_stale(folder: Path) -> None:
    """Forget code that is older than any source of the folder.

    numba compares it with the file of the function itself, not with those of the functions that were compiled into it.
    """
    newest = max(source.stat().st_mtime for source in folder.glob("*.py"))
    for code in (folder / "__pycache__").glob("*.nb[ci]"):
        # Another process may have done so already, or the folder may belong to somebody else, who keeps it in order.
        with suppress(OSError):
            if code.stat().st_mtime < newest:
                code.unlink()


class Announcement(event.Listener):
    """Says once in a process, to a person at a terminal or a notebook, that what takes so long is the compiler."""

    def __init__(self) -> None:
        self._said = False

    def on_start(self, event: event.Event) -> None:
        """Code begins to be compiled that no cache has."""
        ours = event.data["dispatcher"].py_func.__module__.startswith("tides.")
        if ours and not self._said and (sys.stderr.isatty() or "ipykernel" in sys.modules):
            self._said = True
            print("tides: compiling for the processor, once on this machine; about a minute …", file=sys.stderr)

    def on_end(self, event: event.Event) -> None:
        """Nothing to say."""


def announce_compilation() -> None:
    """From now on."""
    event.register("numba:compile", Announcement())  # type: ignore[no-untyped-call]
