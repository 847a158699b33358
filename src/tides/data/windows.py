"""Forecast questions from plain series: what was seen before a cut, what is asked after it."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np

from tides.data.dataset import IrregularDataset
from tides.data.series import IrregularSeries
from tides.errors import DataError
from tides.rounding import slack
from tides.units import duration_in


def forecast_windows(
    data: IrregularDataset,
    *,
    cut: float | None = None,
    history: float | str | timedelta | None = None,
    horizon: float | str | timedelta | None = None,
    stride: float | str | timedelta | None = None,
) -> IrregularDataset:
    """Series with the future as their target: `query_times` and `target` are the steps after each cut.

    Either `cut`, a fraction of each series' duration, gives one window per series; or windows of `history` (time before
    the cut) move along each series by `stride` (default: the horizon). `horizon` limits how far ahead is asked. Lengths
    of time are numbers in the data set's unit, or durations such as "24h". Times are unchanged; labels are dropped.
    Windows without an observation before the cut, or without one after it, are left out. Windows of one series share
    its group, so splits keep them together.
    """
    if (cut is None) == (history is None):
        raise DataError("give either cut (a fraction) or history (a time span)")
    if cut is not None and not 0 < cut < 1:
        raise DataError(f"cut={cut}; wanted a fraction between 0 and 1")
    if history is not None and horizon is None:
        raise DataError("history needs a horizon: how far ahead each window asks")
    before, ahead = _span(history, data.unit, "history"), _span(horizon, data.unit, "horizon")
    step = _span(stride, data.unit, "stride")
    windows = []
    for position, series in enumerate(data):
        group = series.group if series.group is not None else series.id if series.id is not None else position
        near = slack(series.times)
        for begin, middle, end in _spans(series, cut, before, ahead, step):
            window = _window(series, begin - near, middle + near, end + near)
            if window is not None:
                windows.append(window.replace(group=group))
    return IrregularDataset(windows, schema=data.schema)


def _span(span: Any, unit: str | None, name: str) -> float | None:
    number = None if span is None else duration_in(span, unit, name)
    if number == 0:
        raise DataError(f"{name}={span!r}; wanted a time span above 0")
    return number


def _spans(
    series: IrregularSeries, cut: float | None, history: float | None, horizon: float | None, stride: float | None
) -> Iterator[tuple[float, float, float]]:
    """Begin, cut and end of each window, as times."""
    if len(series) == 0:
        return
    first, last = float(series.times[0]), float(series.times[-1])
    if cut is not None:
        middle = first + cut * (last - first)
        yield first, middle, np.inf if horizon is None else middle + horizon
        return
    assert history is not None
    assert horizon is not None
    # Counting windows instead of adding strides keeps the cuts free of accumulated rounding.
    for i in range(int(max(0.0, last - first - history) / (stride or horizon)) + 1):
        middle = first + history + i * (stride or horizon)
        yield middle - history, middle, middle + horizon


def _window(series: IrregularSeries, begin: float, middle: float, end: float) -> IrregularSeries | None:
    past = (series.times >= begin) & (series.times <= middle)
    future = (series.times > middle) & (series.times <= end)
    if not series.observed[past].any() or not series.observed[future].any():
        return None
    return series.replace(
        values=series.values[past],
        times=series.times[past],
        observed=series.observed[past],
        label=None,
        query_times=series.times[future],
        target=series.values[future],
        target_observed=series.observed[future],
    )
