"""A list of irregular series that knows its channels, its time unit and its classes."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tides.data.fingerprint import fingerprint
from tides.data.schema import Schema
from tides.data.series import IrregularSeries, Label, label_array
from tides.data.store import Entries, ListStore, MappedStore, SeriesStore
from tides.errors import DataError

# Statistics are gathered in pieces of about this many entries, so that a table on disk is never read whole.
_PIECE = 1 << 20


class IrregularDataset(Sequence[IrregularSeries]):
    """List-like: `ds[3]` is a series; `ds[:8]`, `ds[[4, 1]]` and `ds[mask]` are data sets on the same data.

    Build one with `from_long`, `from_wide` or `from_arrays`, or from existing series:
    `IrregularDataset(series, channels=("hr", "spo2"), unit="h", class_names=("home", "died"))`.
    """

    def __init__(
        self,
        series: Sequence[IrregularSeries] | SeriesStore,
        *,
        channels: Sequence[str] | None = None,
        unit: str | None = None,
        class_names: Sequence[str] | None = None,
        schema: Schema | None = None,
        _index: NDArray[np.int64] | None = None,
    ) -> None:
        store = ListStore(series) if isinstance(series, Sequence) else series
        if schema is None:
            classes = None if class_names is None else tuple(class_names)
            schema = Schema(_channel_names(store, channels), unit, class_names=classes)
        elif channels is not None or unit is not None or class_names is not None:
            raise DataError("give either a schema or channels, unit and class_names, not both")
        self._store = store
        self._index = np.arange(len(store)) if _index is None else _index
        self.schema = schema
        if isinstance(store, ListStore) and _index is None:
            _check_widths(store, len(schema.channels))

    def __len__(self) -> int:
        return len(self._index)

    @overload
    def __getitem__(self, key: int) -> IrregularSeries: ...
    @overload
    def __getitem__(self, key: slice | ArrayLike) -> "IrregularDataset": ...
    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple) and len(key) == 2 and key[1] is Ellipsis:
            key = key[0]
        if isinstance(key, (int, np.integer)):
            return self._store.series(int(self._index[key]))
        if not isinstance(key, slice):
            key = np.asarray(key)
            if key.size == 0:
                key = key.astype(np.int64)
        return IrregularDataset(self._store, schema=self.schema, _index=self._index[key])

    @property
    def shape(self) -> tuple[int]:
        """(n,). With it, scikit-learn indexes the data set like an array (`data[rows, ...]`), and the parts are data
        sets.
        """
        return (len(self),)

    def __iter__(self) -> Iterator[IrregularSeries]:
        return (self._store.series(int(i)) for i in self._index)

    def __repr__(self) -> str:
        return f"IrregularDataset({len(self)} series, {len(self.channels)} channels, unit {self.unit!r})"

    @property
    def channels(self) -> tuple[str, ...]:
        return self.schema.channels

    @property
    def unit(self) -> str | None:
        return self.schema.unit

    @property
    def class_names(self) -> tuple[str, ...] | None:
        return self.schema.class_names

    @property
    def static_names(self) -> tuple[str, ...]:
        return self.schema.static_names

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Steps of each series; those before the transform in a mapped data set."""
        return np.array([self._store.length(int(i)) for i in self._index], np.int64)

    @property
    def ids(self) -> list[Any]:
        return [self._store.id(int(i)) for i in self._index]

    @property
    def labels(self) -> NDArray[Any] | None:
        """Class indices (int64) or numbers (float64), one per series; None if no series has one."""
        labels = self._all_or_none("label", [self._store.label(int(i)) for i in self._index])
        return None if labels is None else label_array(labels)

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Whether each series has a label (n,); NaN counts as none."""
        return np.array([_says_something(self._store.label(int(i))) for i in self._index], np.bool_)

    @property
    def weights(self) -> NDArray[np.float64] | None:
        """How much each series counts (n,); None if no series has a weight."""
        weights = self._all_or_none("weight", [self._store.weight(int(i)) for i in self._index])
        return None if weights is None else np.array(weights, np.float64)

    def _all_or_none(self, what: str, found: list[Any]) -> list[Any] | None:
        if all(one is None for one in found):
            return None
        lacking = next((position for position, one in enumerate(found) if one is None), None)
        if lacking is not None:
            raise DataError(f"series {self.ids[lacking]!r} has no {what} while others have one")
        return found

    @property
    def groups(self) -> list[Any] | None:
        """The group of each series; None if no series has one."""
        groups = [self._store.group(int(i)) for i in self._index]
        return None if all(group is None for group in groups) else groups

    @property
    def static(self) -> NDArray[np.float64] | None:
        """Static features (n, s), NaN where missing."""
        rows = [row for i in self._index if (row := self._store.static(int(i))) is not None]
        return np.stack(rows) if rows else None

    def map(self, transform: Callable[[IrregularSeries], IrregularSeries]) -> "IrregularDataset":
        """The same series through `transform`, which is applied at every access."""
        return IrregularDataset(MappedStore(self._store, transform), schema=self.schema, _index=self._index)

    def fingerprint(self) -> str:
        """A hash text that differs if channels, unit, series or anything in them differs (in a mapped set: before the
        map).
        """
        return fingerprint(self._store, self._index, self.schema)

    def times(self, position: int) -> NDArray[np.float64]:
        """Times of one series, without building its values."""
        return self._store.times(int(self._index[position]))

    def entries(self) -> Iterator[Entries]:
        """Channel and value of every observed entry, in pieces, without touching cells that were not observed."""
        channels: list[NDArray[Any]] = []
        values: list[NDArray[Any]] = []
        held = 0
        for first, last in self._runs():
            channel, value = self._store.entries(first, last)
            channels.append(channel)
            values.append(value)
            held += len(value)
            if held >= _PIECE:
                yield np.concatenate(channels), np.concatenate(values)
                channels, values, held = [], [], 0
        if held:
            yield np.concatenate(channels), np.concatenate(values)

    def _runs(self) -> Iterator[tuple[int, int]]:
        """Ranges of neighbours in the store, up to a piece of cells each: they are read together."""
        if len(self) == 0:
            return
        piece = np.cumsum(self.lengths * max(1, len(self.channels))) // _PIECE
        begins = np.flatnonzero((np.diff(self._index) != 1) | (np.diff(piece) != 0)) + 1
        for begin, end in pairwise([0, *begins.tolist(), len(self)]):
            yield int(self._index[begin]), int(self._index[end - 1]) + 1

    def median_gap(self) -> float:
        """Median of the gaps above zero within series; 1.0 if no series has such a gap.

        Take it from the training data: it is a model's unit of time and its default first gap.
        """
        gaps = [np.diff(self._store.times(int(i))) for i in self._index]
        positive = np.concatenate(gaps) if gaps else np.empty(0)
        positive = positive[positive > 0]
        return float(np.median(positive)) if len(positive) else 1.0


def _channel_names(store: SeriesStore, channels: Sequence[str] | None) -> tuple[str, ...]:
    if channels is not None:
        return tuple(channels)
    if len(store) == 0:
        raise DataError("an empty data set needs channels=: their names cannot be read from a series")
    return tuple(f"channel_{i}" for i in range(store.series(0).values.shape[1]))


def _says_something(label: Label | None) -> bool:
    found = np.asarray(label)
    return label is not None and not (found.dtype.kind == "f" and np.isnan(found).all())


def _check_widths(store: ListStore, width: int) -> None:
    for i in range(len(store)):
        found = store.series(i).values.shape[1]
        if found != width:
            raise DataError(f"series {i} (id {store.id(i)!r}) has {found} channels; the data set has {width}")
