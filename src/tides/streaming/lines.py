"""Lines of a source as they come, and lines of predictions that no kill leaves half written."""

import os
from collections.abc import Iterator
from pathlib import Path

# A longer line is no observation; it is skipped without being kept.
LONGEST_LINE = 1 << 20
_PIECE = 1 << 16


def read_lines(source: int, at_most: int) -> Iterator[list[bytes | None]]:
    """Whatever lines are there, at least one and at most so many at a time; None stands for one that is too long.

    A read returns as soon as anything is there, so that a single line is not kept waiting, and no more is read until
    these lines are dealt with: a source that is too fast has to wait.
    """
    rest, too_long = b"", False
    while True:
        piece = os.read(source, _PIECE)
        *whole, rest = (rest + piece).split(b"\n")
        if not piece and rest:
            whole, rest = [*whole, rest], b""
        lines: list[bytes | None] = list(whole)
        if too_long and lines:
            lines[0], too_long = None, False
        if len(rest) > LONGEST_LINE:
            rest, too_long = b"", True
        if too_long and not piece:
            lines = [*lines, None]
        for begin in range(0, len(lines), at_most):
            yield lines[begin : begin + at_most]
        if not piece:
            return


def repair_tail(path: Path) -> bytes | None:
    """Remove a half-written last line of a file; the last whole line, None where there is none."""
    if not path.exists():
        return None
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        window, tail = 0, b""
        while window < size and tail.count(b"\n") < 2:
            window = min(size, max(_PIECE, 2 * window))
            file.seek(size - window)
            tail = file.read(window)
        end = tail.rfind(b"\n") + 1
        file.truncate(size - len(tail) + end)
    lines = tail[:end].splitlines()
    return lines[-1] if lines else None
