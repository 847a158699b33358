"""Tables larger than memory: rows are distributed to files by series, each file fits, and the result stays on disk."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tides.data.pivot import Rows

# A series lives in one part only, so parts can be sorted one after the other; memory needs one part at a time.
_PARTS = 64


class RowSpill:
    """Rows on disk, distributed into parts by series."""

    def __init__(self, folder: Path, columns: int, code_names: list[str], *, long: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rows-", dir=folder))
        self._long = long
        self._names = code_names
        self._columns = columns
        self._dtype: np.dtype[Any] | None = None
        self._rows = 0

    def add(self, rows: Rows) -> None:
        """Distribute the next rows of the table."""
        record = self._record(rows)
        self._rows += len(record)
        part = rows.key % _PARTS
        for number in np.unique(part):
            with self._path(int(number)).open("ab") as file:
                record[part == number].tofile(file)

    def parts(self) -> Iterator[Rows]:
        """The rows part by part; each file is removed once it has been read."""
        for number in range(_PARTS):
            path = self._path(number)
            if not path.exists():
                continue
            assert self._dtype is not None
            record = np.fromfile(path, self._dtype)
            path.unlink()
            yield Rows(
                key=record["key"],
                time=record["time"],
                values=[record["values"][:, i] for i in range(self._columns)],
                codes={name: record[f"code {name}"] for name in self._names},
                channel=record["channel"] if self._long else None,
                numbers=record["row"],
            )
        self.folder.rmdir()

    def _record(self, rows: Rows) -> NDArray[Any]:
        fields: dict[str, NDArray[Any]] = {"key": rows.key, "time": rows.time}
        if rows.channel is not None:
            fields["channel"] = rows.channel
        fields["row"] = np.arange(self._rows, self._rows + len(rows.key)) if rows.numbers is None else rows.numbers
        fields |= {f"code {name}": rows.codes[name] for name in self._names}
        if self._dtype is None:
            # Ids of later files may be wider than those of the first one.
            plain: list[Any] = [(name, np.int64 if name == "key" else array.dtype) for name, array in fields.items()]
            self._dtype = np.dtype([*plain, ("values", np.float64, (self._columns,))])
        record = np.empty(len(rows.key), self._dtype)
        for name, array in fields.items():
            record[name] = array
        for i, column in enumerate(rows.values):
            record["values"][:, i] = column
        return record

    def _path(self, number: int) -> Path:
        return self.folder / f"part-{number:02d}"


class DiskArray:
    """An array that grows on disk and is then read through a memory map."""

    def __init__(self, path: Path, dtype: DTypeLike, width: int | None = None) -> None:
        self._path = path
        self._dtype = np.dtype(dtype)
        self._width = width
        self.length = 0

    def append(self, array: NDArray[Any]) -> None:
        with self._path.open("ab") as file:
            np.ascontiguousarray(array, self._dtype).tofile(file)
        self.length += len(array)

    def open(self) -> NDArray[Any]:
        shape = (self.length,) if self._width is None else (self.length, self._width)
        if 0 in shape:
            return np.empty(shape, self._dtype)
        return np.memmap(self._path, self._dtype, mode="r", shape=shape)
