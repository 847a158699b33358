"""Training, validation and test sets that share no group, keep class proportions, or follow the calendar."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tides.data.clock import read_dates
from tides.data.counts import require_whole
from tides.data.dataset import IrregularDataset
from tides.data.series import IrregularSeries
from tides.errors import DataError
from tides.rounding import slack


def split(
    data: IrregularDataset,
    fractions: Sequence[float] = (0.7, 0.15, 0.15),
    *,
    seed: int = 0,
    stratify: bool | None = None,
    groups: Sequence[Any] | None = None,
) -> tuple[IrregularDataset, ...]:
    """Random parts of about these sizes; the series of one group always stay together.

    `groups` defaults to the data set's own. With `stratify` (the default if labels are classes), every part gets its
    share of every class, as far as groups allow.
    """
    shares = np.asarray(fractions, np.float64)
    if len(shares) == 0 or not (shares > 0).all() or not np.isclose(shares.sum(), 1.0):
        raise DataError(f"fractions={list(fractions)}; wanted numbers above 0 that add up to 1")
    part = _deal(data, shares, seed, stratify, groups)
    return tuple(data[part == i] for i in range(len(shares)))


def folds(
    data: IrregularDataset,
    k: int = 5,
    *,
    seed: int = 0,
    stratify: bool | None = None,
    groups: Sequence[Any] | None = None,
) -> Iterator[tuple[IrregularDataset, IrregularDataset]]:
    """Cross-validation: k pairs (train, held out), under the same rules as `split`."""
    if k < 2:
        raise DataError(f"k={k}; wanted at least 2 folds")
    part = _deal(data, np.full(k, 1.0 / k), seed, stratify, groups)
    return ((data[part != i], data[part == i]) for i in range(k))


def temporal_split(
    data: IrregularDataset, at: Sequence[Any], *, straddle: Literal["drop", "cut"] = "drop"
) -> tuple[IrregularDataset, ...]:
    """Parts before, between and after the times `at`: train on the past, test on the future.

    `at` holds numbers in the data set's unit, or dates if its times were dates; if those had a zone, a date without one
    is in UTC. A series that crosses a boundary with its observations or query times is left out, or with
    `straddle="cut"` divided there. Series with a label or a question cannot be cut, since both pieces would carry it. A
    group keeps only its earliest part, unless its series are cut.
    """
    edges = _edges(at, data)
    if straddle not in ("drop", "cut"):
        raise DataError(f"straddle={straddle!r}; wanted 'drop' or 'cut'")
    if straddle == "cut" and any(one.label is not None or one.target is not None for one in data):
        raise DataError("straddle='cut' would put pieces with the same label or target on both sides; use 'drop'")
    if straddle == "cut":
        pieces = [_pieces(one, edges) for one in data]
        return tuple(
            IrregularDataset([piece[i] for piece in pieces if len(piece[i])], schema=data.schema)
            for i in range(len(edges) + 1)
        )
    begin, end = _extents(data)
    first, last = (np.searchsorted(edges, moments, side="right") for moments in (begin, end))
    inside = (first == last) & ~np.isnan(begin)
    if data.groups is not None:
        earliest: dict[Any, int] = {}
        for group, part in zip(data.groups, first, strict=True):
            earliest[group] = min(part, earliest.get(group, part))
        own = [group is None or earliest[group] == p for group, p in zip(data.groups, first, strict=True)]
        inside &= np.array(own, np.bool_)
    return tuple(data[inside & (first == i)] for i in range(len(edges) + 1))


def _extents(data: IrregularDataset) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The first and last time of each series, questions included; NaN if it has no step."""
    asks = len(data) > 0 and data[0].query_times is not None
    # Questions need the whole series; without them its times suffice, which is cheaper.
    clocks = [_moments(one) for one in data] if asks else [data.times(i) for i in range(len(data))]
    ends = [(clock[0], clock[-1]) if len(clock) else (np.nan, np.nan) for clock in clocks]
    begin, end = np.array(ends, np.float64).reshape(-1, 2).T
    return begin, end


def _moments(series: IrregularSeries) -> NDArray[np.float64]:
    """Times of observations and of targets."""
    asked = series.query_times
    return series.times if asked is None else np.union1d(series.times, asked)


def _edges(at: Any, data: IrregularDataset) -> NDArray[np.float64]:
    """Boundaries in the data set's time."""
    if isinstance(at, str) or np.ndim(at) != 1 or len(at) == 0:
        raise DataError(f"at: found {at!r}, wanted a list of increasing times")
    numbers = np.asarray(at).dtype.kind in "iuf"
    edges = np.asarray(at, np.float64) if numbers else read_dates(at, data.schema, "at")
    if not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
        raise DataError(f"at: found {list(at)}, wanted increasing times")
    # A time at a boundary is after it, even if the table rounded that date differently.
    return edges - slack(edges)


def _pieces(series: IrregularSeries, edges: NDArray[np.float64]) -> list[IrregularSeries]:
    bounds = [0, *np.searchsorted(series.times, edges, side="left").tolist(), len(series)]
    return [
        series.replace(values=series.values[a:b], times=series.times[a:b], observed=series.observed[a:b], start=None)
        for a, b in pairwise(bounds)
    ]


def _deal(
    data: IrregularDataset,
    shares: NDArray[np.float64],
    seed: int,
    stratify: bool | None,
    groups: Sequence[Any] | None,
) -> NDArray[np.int64]:
    """The part of each series: units (groups) in random order, largest first, to the part that lacks them most."""
    require_whole("seed", seed, 0)
    unit = _units(data, groups)
    counts = _class_counts(data, unit, stratify)  # (units, classes)
    totals = counts.sum(axis=0)
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(counts))
    order = order[np.argsort(-counts[order].sum(axis=1), kind="stable")]
    need = shares[:, None] * totals  # (parts, classes): what each part still lacks
    part_of_unit = np.empty(len(counts), np.int64)
    for one in order:
        lack = need @ (counts[one] / np.maximum(totals, 1))
        best = int(np.lexsort((-need.sum(axis=1), -lack))[0])
        part_of_unit[one] = best
        need[best] -= counts[one]
    missing = sorted(set(range(len(shares))) - set(part_of_unit.tolist()))
    if missing:
        classes = f", {counts.shape[1]} classes in proportion" if counts.shape[1] > 1 else ""
        raise DataError(
            f"part {missing[0]} would be empty: {len(counts)} series or groups for {len(shares)} parts{classes}"
        )
    return part_of_unit[unit]


def _units(data: IrregularDataset, groups: Sequence[Any] | None) -> NDArray[np.int64]:
    """A number for each group; a series without a group is a group of its own."""
    found = data.groups if groups is None else list(groups)
    if found is None:
        return np.arange(len(data))
    if len(found) != len(data):
        raise DataError(f"{len(found)} groups for {len(data)} series")
    number: dict[Any, int] = {}
    keys = [("alone", i) if group is None else ("group", group) for i, group in enumerate(found)]
    return np.array([number.setdefault(key, len(number)) for key in keys], np.int64)


def _class_counts(data: IrregularDataset, unit: NDArray[np.int64], stratify: bool | None) -> NDArray[np.float64]:
    labels = data.labels if stratify is not False else None
    classes = labels is not None and labels.ndim == 1 and labels.dtype == np.int64
    if stratify and not classes:
        raise DataError("stratify=True needs class labels")
    # Labels need not be small or start at 0: one column for each that occurs.
    kind = np.unique(labels, return_inverse=True)[1] if classes and labels is not None else np.zeros(len(data), np.intp)
    counts = np.zeros((int(unit.max()) + 1 if len(unit) else 0, int(kind.max()) + 1 if len(kind) else 1))
    np.add.at(counts, (unit, kind), 1)
    return counts
