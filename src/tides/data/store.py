"""Where the series of a data set live: a list, flat arrays (dense or sparse, in memory or on disk), or a transform."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tides.data.series import IrregularSeries, Label

Entries = tuple[NDArray[np.integer[Any]], NDArray[np.floating[Any]]]


class SeriesStore(Protocol):
    """Series by position, and the cheap questions a data set asks without building them."""

    def __len__(self) -> int: ...
    def series(self, i: int) -> IrregularSeries: ...
    def length(self, i: int) -> int: ...
    def times(self, i: int) -> NDArray[np.float64]: ...
    def entries(self, first: int, last: int) -> Entries:
        """Channel and value of every observed entry of series first to last - 1, in no particular order."""

    def label(self, i: int) -> Label | None: ...
    def static(self, i: int) -> NDArray[np.float64] | None: ...
    def id(self, i: int) -> Any: ...
    def group(self, i: int) -> Any: ...
    def weight(self, i: int) -> float | None: ...


class ListStore:
    """Series that exist one by one."""

    def __init__(self, series: Sequence[IrregularSeries]) -> None:
        self._series = list(series)

    def __len__(self) -> int:
        return len(self._series)

    def series(self, i: int) -> IrregularSeries:
        return self._series[i]

    def length(self, i: int) -> int:
        return len(self._series[i])

    def times(self, i: int) -> NDArray[np.float64]:
        return self._series[i].times

    def entries(self, first: int, last: int) -> Entries:
        return _joined_entries(self._series[first:last])

    def label(self, i: int) -> Label | None:
        return self._series[i].label

    def static(self, i: int) -> NDArray[np.float64] | None:
        return self._series[i].static

    def id(self, i: int) -> Any:
        return self._series[i].id

    def group(self, i: int) -> Any:
        return self._series[i].group

    def weight(self, i: int) -> float | None:
        return self._series[i].weight


class MappedStore:
    """Another store seen through `transform`, applied anew at every access (scaling, random drop)."""

    def __init__(self, source: SeriesStore, transform: Callable[[IrregularSeries], IrregularSeries]) -> None:
        self.source = source
        self.transform = transform

    def __len__(self) -> int:
        return len(self.source)

    def series(self, i: int) -> IrregularSeries:
        return self.transform(self.source.series(i))

    def length(self, i: int) -> int:
        return self.source.length(i)

    def times(self, i: int) -> NDArray[np.float64]:
        return self.series(i).times

    def entries(self, first: int, last: int) -> Entries:
        return _joined_entries([self.series(i) for i in range(first, last)])

    def label(self, i: int) -> Label | None:
        return self.series(i).label

    def static(self, i: int) -> NDArray[np.float64] | None:
        return self.series(i).static

    def id(self, i: int) -> Any:
        return self.source.id(i)

    def group(self, i: int) -> Any:
        return self.source.group(i)

    def weight(self, i: int) -> float | None:
        return self.series(i).weight


@dataclass(frozen=True, eq=False)
class DenseCells:
    """Every cell of every step: values (n, c), NaN where nothing was observed."""

    values: NDArray[np.floating[Any]]

    def rows(self, first: int, last: int) -> NDArray[np.floating[Any]]:
        return self.values[first:last]

    def entries(self, first: int, last: int) -> Entries:
        rows = self.values[first:last]
        return _dense_entries(rows, ~np.isnan(rows))


@dataclass(frozen=True, eq=False)
class SparseCells:
    """Only the observed entries, step by step: entries of step i are `bounds[i]:bounds[i+1]`."""

    bounds: NDArray[np.integer[Any]]
    channel: NDArray[np.integer[Any]]
    value: NDArray[np.floating[Any]]
    n_channels: int

    def rows(self, first: int, last: int) -> NDArray[np.floating[Any]]:
        rows = np.full((last - first, self.n_channels), np.nan, self.value.dtype)
        begin, end = self.bounds[first], self.bounds[last]
        step = np.repeat(np.arange(last - first), np.diff(self.bounds[first : last + 1]))
        rows[step, self.channel[begin:end]] = self.value[begin:end]
        return rows

    def entries(self, first: int, last: int) -> Entries:
        begin, end = self.bounds[first], self.bounds[last]
        return self.channel[begin:end], self.value[begin:end]


@dataclass(frozen=True, eq=False)
class FlatStore:
    """All series end to end: steps of series i are `bounds[i]:bounds[i+1]`. Arrays may be memory maps."""

    bounds: NDArray[np.int64]
    step_times: NDArray[np.float64]
    cells: DenseCells | SparseCells
    ids: NDArray[Any]
    labels: NDArray[Any] | None = None
    statics: NDArray[np.float64] | None = None
    groups: NDArray[Any] | None = None
    weights: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def series(self, i: int) -> IrregularSeries:
        first, last = int(self.bounds[i]), int(self.bounds[i + 1])
        return IrregularSeries(
            values=self.cells.rows(first, last),
            times=self.step_times[first:last],
            label=self.label(i),
            static=self.static(i),
            id=self.id(i),
            group=self.group(i),
            weight=self.weight(i),
        )

    def length(self, i: int) -> int:
        return int(self.bounds[i + 1] - self.bounds[i])

    def times(self, i: int) -> NDArray[np.float64]:
        return self.step_times[self.bounds[i] : self.bounds[i + 1]]

    def entries(self, first: int, last: int) -> Entries:
        return self.cells.entries(int(self.bounds[first]), int(self.bounds[last]))

    def label(self, i: int) -> Label | None:
        if self.labels is None:
            return None
        label: Label = self.labels[i].item() if self.labels.ndim == 1 else self.labels[i]
        return label

    def static(self, i: int) -> NDArray[np.float64] | None:
        return None if self.statics is None else self.statics[i]

    def id(self, i: int) -> Any:
        return _plain(self.ids[i])

    def group(self, i: int) -> Any:
        return None if self.groups is None else _plain(self.groups[i])

    def weight(self, i: int) -> float | None:
        return None if self.weights is None else float(self.weights[i])


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _joined_entries(series: Sequence[IrregularSeries]) -> Entries:
    channels, values = zip(*(_dense_entries(one.values, one.observed) for one in series), strict=True)
    return np.concatenate(channels), np.concatenate(values)


def _dense_entries(values: NDArray[np.floating[Any]], observed: NDArray[np.bool_]) -> Entries:
    step, channel = np.nonzero(observed)
    return channel, values[step, channel]
