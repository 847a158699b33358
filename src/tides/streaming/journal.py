"""`Journal`: observations on disk before they are taken in, so that a killed process loses none."""

import json
import os
from pathlib import Path
from typing import Any
from zlib import crc32

from tides.errors import DataError


class Journal:
    """An append-only file of lines: `[number, event]` as JSON, and `[number]` once everything up to it was answered.

    Each line ends with a blank and its checksum. Every append is one write of whole lines. A process killed during a
    write leaves a torn last line, which `read` removes: nobody has been told of it yet. With `sync`, the lines also
    survive a power failure. A line that the disk has changed raises `DataError`.
    """

    def __init__(self, path: Path, *, sync: bool = False) -> None:
        self.path, self.sync = path, sync
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._sync_folder()

    def read(self) -> tuple[list[tuple[int, dict[str, Any]]], int]:
        """All events with their numbers, and the number up to which they were answered."""
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            self._file.truncate(len(whole))
        events: list[tuple[int, dict[str, Any]]] = []
        answered = 0
        for position, line in enumerate(whole.splitlines(), start=1):
            try:
                number, *event = json.loads(_checked(line))
                if event:
                    events.append((int(number), dict(event[0])))
                else:
                    answered = max(answered, int(number))
            except (TypeError, ValueError) as error:
                raise DataError(f"{self.path}: line {position} is damaged: {error}") from None
        return events, answered

    def append(self, events: list[tuple[int, dict[str, Any]]]) -> None:
        """Write these events down."""
        self._write("".join(_line([number, event]) for number, event in events))

    def mark(self, number: int) -> None:
        """Note that everything up to this number has been answered."""
        self._write(_line([number]))

    def clear(self) -> None:
        """Empty the journal, once a snapshot in the same folder contains everything in it."""
        self._sync_folder()
        self._file.truncate(0)

    def close(self) -> None:
        self._file.close()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def _sync_folder(self) -> None:
        """Make the names of new files survive a power failure, too."""
        if self.sync and os.name == "posix":  # others cannot open folders
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _write(self, text: str) -> None:
        rest, before = memoryview(text.encode()), self._file.seek(0, os.SEEK_END)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
            if self.sync:
                os.fsync(self._file.fileno())
        except OSError:
            # On a full disk, remove what was written: half a line would join the next, a whole one would count twice.
            self._file.truncate(before)
            raise


def _line(content: list[Any]) -> str:
    text = json.dumps(content, separators=(",", ":"))
    return f"{text} {crc32(text.encode()):08x}\n"


def _checked(line: bytes) -> bytes:
    """The content of a line; `ValueError` if it differs from what was written."""
    if line.endswith(b"]"):  # earlier versions wrote no checksums
        return line
    text, _, found = line.rpartition(b" ")
    wanted = f"{crc32(text):08x}".encode()
    if found != wanted:
        raise ValueError("it differs from its checksum")
    return text
