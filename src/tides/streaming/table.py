"""`StreamTable`: which stream lives in which row, and what is known of it besides the model's state."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tides.errors import DataError

Key = Hashable
Floats = NDArray[np.float64]
# What is kept of every stream.
FIELDS = ("last", "newest", "count", "static", "told", "answers")


class StreamTable:
    """Rows by key: time and values of the newest observation, number of observations, static features, the last
    answer.
    """

    def __init__(self, capacity: int, channels: int, static: int, answer: int) -> None:
        self.last: Floats = np.full(capacity, np.nan)
        self.newest: Floats = np.full((capacity, channels), np.nan)
        self.count: NDArray[np.int64] = np.zeros(capacity, np.int64)
        self.static: Floats = np.full((capacity, static), np.nan)
        self.told: NDArray[np.bool_] = np.zeros(capacity, bool)
        """Whether static features were given."""
        self.answers: Floats = np.full((capacity, answer), np.nan)
        self._rows: dict[Key, int] = {}
        self._free = list(range(capacity - 1, -1, -1))

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: Key) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[Key]:
        return iter(self._rows)

    @property
    def capacity(self) -> int:
        return len(self.last)

    @property
    def is_full(self) -> bool:
        return not self._free

    def row(self, key: Key) -> int:
        """The row of a stream; −1 if there is no such stream."""
        try:
            return self._rows.get(key, -1)
        except TypeError:
            raise unusable_key(key) from None

    def rows(self, keys: Sequence[Key]) -> NDArray[np.int64]:
        find = self._rows.get
        return np.fromiter((find(key, -1) for key in keys), np.int64, len(keys))

    def require(self, key: Key) -> int:
        row = self.row(key)
        if row < 0:
            raise DataError("nothing has been observed yet" if key is None else f"key: no stream is called {key!r}")
        return row

    def add(self, key: Key) -> int:
        """A row for a new stream, fresh; there must be room."""
        key = _plain(key)
        row = self._free.pop()
        self._rows[key] = row
        self.told[row], self.static[row] = False, np.nan
        self.clear(row)
        return row

    def remove(self, key: Key) -> int:
        row = self._rows.pop(key)
        self._free.append(row)
        return row

    def clear(self, rows: Any) -> None:
        """Forget all observations in these rows; static features stay."""
        self.last[rows], self.newest[rows], self.count[rows], self.answers[rows] = np.nan, np.nan, 0, np.nan

    def get(self, rows: Any) -> dict[str, NDArray[Any]]:
        """A copy of everything known of these rows."""
        return {name: getattr(self, name)[rows].copy() for name in FIELDS}

    def put(self, rows: Any, fields: Mapping[str, NDArray[Any]]) -> None:
        """Put back what `get` returned."""
        for name in FIELDS:
            getattr(self, name)[rows] = fields[name]

    def grow(self, capacity: int) -> None:
        before = self.capacity
        for name in FIELDS:
            array = getattr(self, name)
            blank = np.nan if array.dtype == np.float64 else 0
            more = np.full((capacity - before, *array.shape[1:]), blank, dtype=array.dtype)
            setattr(self, name, np.concatenate([array, more]))
        self._free = [*range(capacity - 1, before - 1, -1), *self._free]


def check_new(keys: Iterable[Key]) -> None:
    """Raise for keys under which a stream could not be found again."""
    for key in keys:
        plain = _plain(key)
        if (isinstance(plain, float) and plain != plain) or plain not in {key}:
            raise unusable_key(key)


def _plain(key: Key) -> Key:
    return key.item() if isinstance(key, np.generic) else key


def are_different(keys: Sequence[Key]) -> bool:
    """Whether all keys are different."""
    try:
        return len(set(keys)) == len(keys)
    except TypeError:
        # A tuple looks hashable whatever is in it.
        raise unusable_key(next((key for key in keys if not isinstance(key, Hashable)), list(keys))) from None


def unusable_key(key: Any) -> DataError:
    return DataError(f"key: found {key!r}, wanted text or a whole number")


def same_rows(one: Floats, other: Floats) -> NDArray[np.bool_]:
    """Which rows hold the same measurements."""
    same: NDArray[np.bool_] = ((one == other) | (np.isnan(one) & np.isnan(other))).all(1)
    return same
