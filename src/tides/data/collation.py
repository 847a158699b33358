"""From a list of series to one batch: padding at the end, masks kept, nothing dropped."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tides.data.batch import IrregularBatch
from tides.data.series import IrregularSeries, label_array
from tides.errors import DataError
from tides.functional.gaps import gaps_from_times

FirstGap = Literal["median", "start"] | float


def collate(
    series: Sequence[IrregularSeries], *, first_gap: FirstGap = "median", dtype: torch.dtype = torch.float32
) -> IrregularBatch:
    """Pad series at the end into an `IrregularBatch`; usable as a DataLoader's `collate_fn`.

    Gaps are formed in float64 and then cast to `dtype`. `first_gap` says how long before its first observation a series
    began: a number (pass `train.median_gap()` to train a model), "start" (each series' own `start`), or "median" (each
    series' own median gap above zero, 1.0 if it has none), so that no series depends on its neighbours in the batch.
    """
    if isinstance(series, IrregularSeries):
        raise DataError("collate: found one series, wanted several: [series]")
    members = list(series) if isinstance(series, Iterable) else [series]
    for position, one in enumerate(members):
        if not isinstance(one, IrregularSeries):
            raise DataError(f"collate: found {type(one).__name__} at position {position}, wanted IrregularSeries")
    if not members:
        raise DataError("collate: no series given")
    lengths = np.array([len(one) for one in members])
    for position, one in enumerate(members):
        if len(one) == 0:
            raise DataError(f"collate: {_name(one, position)} has no time step")
    widths = {one.values.shape[1] for one in members}
    if len(widths) > 1:
        raise DataError(f"collate: series have different numbers of channels: {sorted(widths)}")
    b, steps, c = len(members), int(lengths.max()), widths.pop()
    values, times = np.zeros((b, steps, c)), np.empty((b, steps))
    observed = np.zeros((b, steps, c), np.bool_)
    for row, one in enumerate(members):
        n = len(one)
        observed[row, :n] = one.observed
        np.copyto(values[row, :n], one.values, where=one.observed)
        times[row, :n] = one.times
        times[row, n:] = one.times[-1]
    valid = np.arange(steps) < lengths[:, None]
    gaps = gaps_from_times(torch.from_numpy(times), first=0.0, valid=torch.from_numpy(valid))
    for row, one in enumerate(members):
        gaps[row, 0] = _first_gap(one, row, first_gap)
    return IrregularBatch(
        values=_cast(values, dtype, members, "values"),
        times=torch.from_numpy(times),
        gaps=gaps.to(dtype),
        observed=torch.from_numpy(observed),
        valid=torch.from_numpy(valid),
        **_questions(members, dtype),
        **_statics(members, dtype),
        **_weights(members, dtype),
        ids=tuple(one.id for one in members),
    )


def _name(series: IrregularSeries, position: int) -> str:
    return f"series {position}" if series.id is None else f"series {series.id!r}"


def _first_gap(series: IrregularSeries, position: int, policy: FirstGap) -> float:
    if policy == "start":
        if series.start is None:
            raise DataError(f"first_gap='start', but {_name(series, position)} has no start")
        return float(series.times[0] - series.start)
    if policy == "median":
        positive = series.gaps[series.gaps > 0]
        return float(np.median(positive)) if len(positive) else 1.0
    try:
        if 0 <= policy < np.inf:
            return float(policy)
    except TypeError:
        pass
    raise DataError(f"first_gap: found {policy!r}, wanted 'median', 'start' or a number ≥ 0")


def _cast(array: NDArray[Any], dtype: torch.dtype, members: list[IrregularSeries], what: str) -> Tensor:
    tensor = torch.from_numpy(array).to(dtype)
    if not torch.isfinite(tensor).all():
        row = int((~torch.isfinite(tensor)).nonzero()[0, 0])
        known = np.isfinite(array[row]).all()
        problem = f"overflow {dtype}; scale the data first" if known else "are not finite"
        raise DataError(f"collate: {what} of {_name(members[row], row)} {problem}")
    return tensor


def _questions(members: list[IrregularSeries], dtype: torch.dtype) -> dict[str, Tensor]:
    """Labels or forecast queries, whichever the series carry; all series have them or none."""
    labelled = _have_all(members, "label", [one.label is not None for one in members])
    asked = _have_all(members, "forecast target", [one.target is not None for one in members])
    if labelled:
        labels = label_array([one.label for one in members])
        whole = labels.dtype == np.int64
        return {"targets": torch.from_numpy(labels) if whole else _cast(labels, dtype, members, "labels")}
    if not asked:
        return {}
    counts = np.array([len(one.query_times) for one in members])  # type: ignore[arg-type]
    b, q, c = len(members), int(counts.max()), members[0].target.shape[1]  # type: ignore[union-attr]
    times, targets = np.zeros((b, q)), np.zeros((b, q, c))
    observed = np.zeros((b, q, c), np.bool_)
    for row, one in enumerate(members):
        n = counts[row]
        assert one.target is not None
        assert one.target_observed is not None
        assert one.query_times is not None
        if one.target.shape[1] != c:
            raise DataError(f"collate: {_name(one, row)} has {one.target.shape[1]} target channels; wanted {c}")
        observed[row, :n] = one.target_observed
        np.copyto(targets[row, :n], one.target, where=one.target_observed)
        times[row, :n] = one.query_times
        times[row, n:] = one.query_times[-1] if n else one.times[-1]
    return {
        "targets": _cast(targets, dtype, members, "targets"),
        "target_observed": torch.from_numpy(observed),
        "query_times": torch.from_numpy(times),
        "query_valid": torch.from_numpy(np.arange(q) < counts[:, None]),
    }


def _have_all(members: list[IrregularSeries], what: str, has: list[bool]) -> bool:
    """Whether all series have it; an error if only some do."""
    if any(has) and not all(has):
        position = has.index(False)
        raise DataError(f"collate: {_name(members[position], position)} has no {what} while others have one")
    return all(has)


def _weights(members: list[IrregularSeries], dtype: torch.dtype) -> dict[str, Tensor]:
    weights = [one.weight for one in members if one.weight is not None]
    if not _have_all(members, "weight", [one.weight is not None for one in members]):
        return {}
    return {"weights": _cast(np.array(weights), dtype, members, "weights")}


def _statics(members: list[IrregularSeries], dtype: torch.dtype) -> dict[str, Tensor]:
    sizes = {None if one.static is None else len(one.static) for one in members}
    if len(sizes) > 1:
        raise DataError(f"collate: series have different numbers of static features: {sizes}")
    if sizes == {None}:
        return {}
    static = np.stack([one.static for one in members if one.static is not None])
    known = np.isfinite(static)
    return {
        "static": _cast(np.where(known, static, 0.0), dtype, members, "static features"),
        "static_observed": torch.from_numpy(known),
    }
