"""`Journal`: observations on disk before they are taken in, so that a killed process loses none."""

import json
import os
from pathlib import Path
from typing import Any

from tides.errors import DataError


class Journal:
    """An append-only file of JSON lines: `[number, event]`, and `[number]` once it is answered up to there.

    Every append is one write of whole lines. A process killed inside it leaves a torn last line, which `read` removes:
    nobody has been told of it yet. With `sync` the lines also survive a loss of power.
    """

    def __init__(self, path: Path, *, sync: bool = False) -> None:
        self.path, self.sync = path, sync
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)

    def read(self) -> tuple[list[tuple[int, dict[str, Any]]], int]:
        """All events with their numbers, and up to which number they were answered."""
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            self._file.truncate(len(whole))
        events: list[tuple[int, dict[str, Any]]] = []
        answered = 0
        for position, line in enumerate(whole.splitlines(), start=1):
            try:
                number, *event = json.loads(line)
                if event:
                    events.append((int(number), dict(event[0])))
                else:
                    answered = max(answered, int(number))
            except (TypeError, ValueError) as error:
                raise DataError(f"{self.path}: line {position} is damaged: {error}") from None
        return events, answered

    def append(self, events: list[tuple[int, dict[str, Any]]]) -> None:
        """Write these events down."""
        self._write("".join(f"{json.dumps([number, event], separators=(',', ':'))}\n" for number, event in events))

    def mark(self, number: int) -> None:
        """Everything up to this number has been answered."""
        self._write(f"[{number}]\n")

    def clear(self) -> None:
        """Everything in it is part of a snapshot."""
        self._file.truncate(0)

    def close(self) -> None:
        self._file.close()

    def _write(self, text: str) -> None:
        rest, before = memoryview(text.encode()), self._file.seek(0, os.SEEK_END)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            # A full disk must not leave half a line for a later one to be joined to.
            self._file.truncate(before)
            raise
        if self.sync:
            os.fsync(self._file.fileno())
