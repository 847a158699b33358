"""Data sets from arrays: aeon collections, lists of ragged arrays, PyPOTS dictionaries."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tides.data.attributes import LabelKind, encode_labels
from tides.data.dataset import IrregularDataset
from tides.data.schema import Schema
from tides.data.series import IrregularSeries, real, refuse_dates, unmasked
from tides.data.sources import shown
from tides.errors import DataError

Layout = Literal["channels-first", "time-first"]
STEPS = "step"
"""The unit of series without times of their own."""


def from_arrays(
    X: Any,
    times: Any = None,
    y: Any = None,
    *,
    layout: Layout | None = None,
    channels: Sequence[str] | None = None,
    unit: str | None = None,
    groups: Sequence[Any] | None = None,
    weights: Sequence[float] | None = None,
    label_kind: LabelKind = "auto",
    class_names: Sequence[str] | None = None,
) -> IrregularDataset:
    """A data set from arrays; NaN is missing.

    `X` is an aeon collection, i.e. an array (cases, channels, length) or a list of arrays (channels, length_i); an
    array (cases, length) of one channel; or a PyPOTS dictionary with "X" (cases, steps, features) and optionally "y".
    `layout="time-first"` reads (cases, length, channels) and (length_i, channels) instead; it is the default for
    dictionaries.

    `times` is one vector for all cases (length,) or one array per case; without it, times are 0, 1, 2, …. `y` holds one
    label per case: classes or numbers by the rule of `from_long`, or rows of numbers. `groups` and `weights` have one
    entry per case, too.
    """
    if isinstance(X, Mapping):
        layout = layout or "time-first"
        if "X" not in X:
            raise DataError(f"X is a dictionary with keys {shown(sorted(map(str, X)))}; wanted 'X' (and 'y')")
        if y is None:
            y = X.get("y")
        X = X["X"]
    if layout not in (None, "channels-first", "time-first"):
        raise DataError(f"layout={layout!r}; wanted 'channels-first' or 'time-first'")
    values = _cases(X, layout or "channels-first")
    if not values:
        raise DataError("X holds no case")
    if layout is None:
        _doubt_layout(values)
    clocks = _clocks(times, values)
    labels, names = _labels(y, len(values), label_kind, class_names)
    members, counts = (
        _by_place(given, name, len(values)) for name, given in (("groups", groups), ("weights", weights))
    )
    series = [
        IrregularSeries(
            one,
            clocks[i],
            label=None if labels is None else labels[i].item() if labels.ndim == 1 else labels[i],
            id=i,
            group=members[i],
            weight=counts[i],
        )
        for i, one in enumerate(values)
    ]
    if channels is None:
        channels = [f"channel_{i}" for i in range(values[0].shape[1])]
    if unit is None and times is None:
        unit = STEPS
    return IrregularDataset(series, schema=Schema(tuple(channels), unit, class_names=names))


def _by_place(given: Sequence[Any] | None, name: str, cases: int) -> list[Any]:
    """One entry per case, by position (`given[0]` of a pandas Series would be the entry labelled 0); None without
    any.
    """
    entries = [None] * cases if given is None else list(given)
    if len(entries) != cases:
        raise DataError(f"{len(entries)} {name} for {cases} cases")
    return entries


def _cases(X: Any, layout: Layout) -> list[NDArray[np.floating[Any]]]:
    """One (length, channels) array per case."""
    if hasattr(X, "ndim") or not isinstance(X, (list, tuple)):
        block = _floats(X, "X")
        if block.ndim == 2:
            return list(block[:, :, None])
        if block.ndim != 3:
            raise DataError(f"X has shape {block.shape}; wanted (cases, channels, length), a list of 2-D arrays, …")
        return list(block if layout == "time-first" else block.transpose(0, 2, 1))
    cases = []
    for i, one in enumerate(X):
        case = _floats(one, f"X[{i}]")
        if case.ndim == 1:
            case = case[None, :] if layout == "channels-first" else case[:, None]
        if case.ndim != 2:
            raise DataError(f"X[{i}] has shape {case.shape}; wanted two axes")
        cases.append(case if layout == "time-first" else case.T)
    widths = sorted({case.shape[1] for case in cases})
    if len(widths) > 1:
        other = "channels-first" if layout == "time-first" else "time-first"
        raise DataError(f"X: cases have {widths} channels under layout={layout!r}; did you mean layout={other!r}?")
    return cases


def _doubt_layout(cases: list[NDArray[Any]]) -> None:
    """Warn if the layout may be wrong: many libraries put time before channels, so a few long channels look like many
    short ones.
    """
    steps, channels = max(len(one) for one in cases), cases[0].shape[1]
    if channels > steps:
        warnings.warn(
            f"X: read {channels} channels of at most {steps} steps; state layout='time-first' if it is the other way "
            "round, layout='channels-first' if not",
            stacklevel=3,
        )


def _floats(array: Any, what: str) -> NDArray[np.floating[Any]]:
    try:
        found = unmasked(array)
        return found if found.dtype in (np.float32, np.float64) else real(found)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} does not hold numbers: {error}") from None


def _clocks(times: Any, values: list[NDArray[Any]]) -> list[NDArray[np.float64]]:
    if times is None:
        return [np.arange(len(one), dtype=np.float64) for one in values]
    if not hasattr(times, "__len__") or getattr(times, "ndim", 1) == 0:
        raise DataError(f"times: found {times!r}, wanted one vector for all cases, or one for each")
    # The first by place: times[0] of a pandas Series is the one that is called 0.
    shared = np.ndim(next(iter(times), 0)) == 0
    clocks = [_clock(times)] * len(values) if shared else [_clock(one) for one in times]
    if len(clocks) != len(values):
        raise DataError(f"times for {len(clocks)} cases; X has {len(values)}")
    for i, (clock, one) in enumerate(zip(clocks, values, strict=True)):
        if clock.shape != (len(one),):
            raise DataError(
                f"times of case {i} have shape {clock.shape}; its values have {len(one)} steps and {one.shape[1]} "
                "channels (see layout=)"
            )
    return clocks


def _clock(times: Any) -> NDArray[np.float64]:
    refuse_dates(times, "times")
    return _floats(times, "times").astype(np.float64, copy=False)


def _labels(
    y: Any, cases: int, kind: LabelKind, class_names: Sequence[str] | None
) -> tuple[NDArray[Any] | None, tuple[str, ...] | None]:
    if y is None:
        return None, None if class_names is None else tuple(class_names)
    labels = np.asarray(y)
    if labels.ndim == 0:
        raise DataError(f"y: found {y!r}, wanted one label per case")
    if len(labels) != cases:
        raise DataError(f"y has {len(labels)} labels; X has {cases} cases")
    if labels.ndim == 2:
        return _floats(labels, "y"), None
    if labels.ndim != 1:
        raise DataError(f"y has shape {labels.shape}; wanted one label or one row of numbers per case")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise DataError(f"y[{int(np.argmin(np.isfinite(labels)))}] is not finite")
    distinct, codes = np.unique(labels, return_inverse=True)
    fixed = None if class_names is None else tuple(class_names)
    return encode_labels(distinct.tolist(), codes, "y", kind=kind, class_names=fixed)
