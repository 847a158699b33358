"""One irregularly sampled, partly observed series."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tides.errors import DataError, ShapeError

Label = int | float | NDArray[Any]


@dataclass(frozen=True, eq=False)
class IrregularSeries:
    """Values (l, c) at non-decreasing times (l,), with a mask of what was observed (l, c).

    `observed` defaults to "not NaN"; `values` are never read where it is false. Times are float64 in the data set's
    unit. A series carries either a `label` (a class index, a number, or a vector of numbers) or a forecast question:
    `target` (q, c) at `query_times` (q,), scored where `target_observed` (q, c).

    `start` is when the clock began (admission, switch-on) and gives the first gap with `first_gap="start"`. `group`
    keeps related series (stays of one patient) on one side of a split. `weight` is how much the series counts in losses
    and metrics; either all series of a data set have one or none.
    """

    values: NDArray[np.floating[Any]]
    times: NDArray[np.float64]
    observed: NDArray[np.bool_] = None  # type: ignore[assignment]  # filled in below
    label: Label | None = None
    static: NDArray[np.float64] | None = None
    query_times: NDArray[np.float64] | None = None
    target: NDArray[np.floating[Any]] | None = None
    target_observed: NDArray[np.bool_] | None = None
    id: Any = None
    group: Any = None
    start: float | None = None
    weight: float | None = None

    def __post_init__(self) -> None:
        name = "series" if self.id is None else f"series {self.id!r}"
        values = _floats(self.values, f"{name}: values")
        if values.ndim != 2:
            raise ShapeError(f"{name}: values have shape {values.shape}; wanted (l, c): times by channels")
        times = _times(self.times, f"{name}: times")
        if len(times) != len(values):
            raise ShapeError(f"{name}: {len(times)} times for {len(values)} rows of values")
        if self.start is not None:
            _check_start(self.start, times, name)
        if self.weight is not None:
            _set(self, "weight", _weight(self.weight, name))
        _set(self, "values", values)
        _set(self, "times", times)
        _set(self, "observed", _mask(values, self.observed, name, "values"))
        if self.static is not None:
            _set(self, "static", _static(self.static, name))
        if self.target is None and self.query_times is None:
            return
        if self.target is None or self.query_times is None:
            raise DataError(f"{name}: a forecast question needs both query_times and target")
        if self.label is not None:
            raise DataError(f"{name}: has a label and a forecast target; a series carries one of them")
        target = _floats(self.target, f"{name}: target")
        queries = _times(self.query_times, f"{name}: query_times")
        if target.ndim != 2 or len(target) != len(queries):
            raise ShapeError(f"{name}: target has shape {target.shape}; wanted ({len(queries)}, c)")
        _set(self, "target", target)
        _set(self, "query_times", queries)
        _set(self, "target_observed", _mask(target, self.target_observed, name, "target"))

    def __len__(self) -> int:
        return len(self.times)

    @property
    def gaps(self) -> NDArray[np.float64]:
        """t_k - t_{k-1} for k >= 1, in float64."""
        return np.diff(self.times)

    def replace(self, **changes: Any) -> "IrregularSeries":
        """A copy with some fields changed (validated again)."""
        return replace(self, **changes)


def _set(series: IrregularSeries, field: str, value: Any) -> None:
    object.__setattr__(series, field, value)


def _floats(values: ArrayLike, what: str) -> NDArray[np.floating[Any]]:
    try:
        array = unmasked(values)
        refuse_dates(array, what)
        return array if array.dtype in (np.float32, np.float64) else real(array)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} are not numbers: {error}") from None


def unmasked(values: Any) -> NDArray[Any]:
    """An array with NaN under its mask, if it has one; `np.asarray` would read the values under the mask."""
    if not isinstance(values, np.ma.MaskedArray) or values.mask is np.ma.nomask:
        return np.asarray(values)
    kind = values.dtype if values.dtype.kind in "fc" else np.float64
    filled: NDArray[Any] = np.ma.filled(values.astype(kind), np.nan)
    return filled


def real(array: NDArray[Any]) -> NDArray[np.float64]:
    """As float64; complex numbers are refused, since numpy would drop their imaginary part."""
    if array.dtype.kind == "c":
        raise TypeError("they are complex")
    return array.astype(np.float64, copy=False)


def refuse_dates(times: Any, what: str) -> None:
    """Refuse dates and durations: numpy would count them in whatever resolution they happen to have."""
    kind = np.asarray(times).dtype
    if kind.kind in "mM":
        raise DataError(
            f"{what} are {kind}; wanted numbers in one unit, such as (t - t0) / np.timedelta64(1, 'h'); tables and "
            "estimators read dates themselves"
        )


def label_array(labels: Sequence[Any]) -> NDArray[Any]:
    """The labels of several series: class indices (int64) where all are whole numbers, else numbers (float64)."""
    whole = all(isinstance(label, (bool, int, np.bool_, np.integer)) for label in labels)
    try:
        return np.asarray(labels, np.int64 if whole else np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"labels: wanted class indices 0, 1, 2, … or numbers of one shape: {error}") from None


def _check_start(start: Any, times: NDArray[np.float64], name: str) -> None:
    if not isinstance(start, Real) or not np.isfinite(float(start)):
        raise DataError(f"{name}: start is {start!r}; wanted a finite number, a time like those of the series")
    if len(times) and not float(start) <= times[0]:
        raise DataError(f"{name}: start {start} lies after the first time {times[0]}")


def _weight(weight: Any, name: str) -> float:
    if not isinstance(weight, (Real, np.bool_)) or not 0 <= float(weight) < np.inf:
        raise DataError(f"{name}: its weight is {weight!r}; wanted a finite number ≥ 0")
    return float(weight)


def _static(static: ArrayLike, name: str) -> NDArray[np.float64]:
    features = np.atleast_1d(_floats(static, f"{name}: static features")).astype(np.float64)
    if features.ndim != 1:
        raise ShapeError(f"{name}: static features have shape {features.shape}; wanted one axis")
    return features


def _times(times: ArrayLike, what: str) -> NDArray[np.float64]:
    refuse_dates(times, what)
    try:
        array = real(unmasked(times))
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} are not numbers: {error}") from None
    if array.ndim != 1:
        raise ShapeError(f"{what} have shape {array.shape}; wanted one axis")
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array))[0])
        raise DataError(f"{what}: row {row} is {array[row]}; times must be finite")
    falls = array[1:] < array[:-1]
    if falls.any():
        row = int(np.flatnonzero(falls)[0]) + 1
        raise DataError(f"{what}: row {row} is {array[row]}, earlier than {array[row - 1]} before it; sort the rows")
    return array


def _mask(values: NDArray[np.floating[Any]], observed: ArrayLike | None, name: str, what: str) -> NDArray[np.bool_]:
    if observed is None:
        mask: NDArray[np.bool_] = ~np.isnan(values)
    else:
        mask = np.asarray(observed)
        if mask.dtype != np.bool_ or mask.shape != values.shape:
            raise ShapeError(
                f"{name}: the observed mask of {what} is {mask.dtype} {mask.shape}; wanted bool {values.shape}"
            )
    wrong = mask & ~np.isfinite(values)
    if wrong.any():
        row, channel = (int(i) for i in np.argwhere(wrong)[0])
        raise DataError(
            f"{name}: {what} at row {row}, channel {channel} are {values[row, channel]} but count as observed"
        )
    return mask
