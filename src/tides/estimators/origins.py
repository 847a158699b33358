"""Forecast questions from whole series: an origin, what was known then, and what was observed within the horizon."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tides.data.dataset import IrregularDataset
from tides.data.series import IrregularSeries
from tides.rounding import slack

# The most questions of one window. There are many origins, so every row is asked for sooner or later.
_MOST_QUERIES = 32
# Share of the past that is hidden and asked for when a model learns to look back.
_HIDDEN = 0.25

Draw = Callable[[int], int]
"""A random whole number from 0 up to, not including, the argument."""


class Backtest(NamedTuple):
    """Answers at random origins of series whose future is known; arrays are (m, c) over all asked times."""

    mean: NDArray[np.float64]
    spread: NDArray[np.float64]
    truth: NDArray[np.float64]
    scored: NDArray[np.bool_]
    questions: IrregularDataset

    @classmethod
    def of(cls, questions: IrregularDataset, answers: Sequence[tuple[NDArray[np.float64], ...]]) -> "Backtest":
        """From mean and spread (q, c) for each question."""
        mean, spread = (np.concatenate(part) for part in zip(*answers, strict=True))
        truth = np.concatenate([one.target for one in questions])
        scored = np.concatenate([one.target_observed for one in questions])
        return cls(mean, spread, truth, scored, questions)


@dataclass(frozen=True)
class Origins:
    """Cuts series at observed times: rows up to the origin are known, rows within `horizon` after it are asked for.

    With `smoothing` some of the past is hidden and asked for as well.
    """

    horizon: float
    targets: int
    """The first so many channels are asked for."""
    smoothing: bool = False

    def cuts(self, series: IrregularSeries) -> NDArray[np.int64]:
        """Possible numbers of known rows: those that leave something known and something to ask for."""
        times = series.times
        known = np.unique(np.searchsorted(times, times, side="right"))
        ends: NDArray[np.intp] = self._ends(times, known)
        asked = np.append(0, np.cumsum(series.observed[:, : self.targets].sum(axis=1)))
        seen = np.append(0, np.cumsum(series.observed.sum(axis=1)))
        return known[(asked[ends] > asked[known]) & (seen[known] > 0)].astype(np.int64)

    def _ends(self, times: NDArray[np.float64], known: Any) -> Any:
        """Numbers of rows up to the horizon after the last known one."""
        return np.searchsorted(times, times[known - 1] + self.horizon + slack(times), side="right")

    def fresh(self, series: IrregularSeries) -> IrregularSeries:
        """A question with a new origin at every call, drawn from torch's generator (which checkpoints keep)."""
        return self.question(series, lambda n: int(torch.randint(n, (1,))))

    def question(self, series: IrregularSeries, draw: Draw) -> IrregularSeries:
        """One question with a random origin."""
        cuts = self.cuts(series)
        known = int(cuts[draw(len(cuts))])
        future = np.arange(known, self._ends(series.times, known))
        future = future[series.observed[future, : self.targets].any(axis=1)]
        asked = np.sort(_some(future, min(len(future), _MOST_QUERIES), draw))
        past = np.arange(known)
        if self.smoothing and known > 1:
            hidden = _some(past, max(1, int(_HIDDEN * known)), draw)
            past = np.setdiff1d(past, hidden)
            asked = np.sort(np.concatenate([hidden, asked]))
        return series.replace(
            values=series.values[past],
            times=series.times[past],
            observed=series.observed[past],
            label=None,
            query_times=series.times[asked],
            target=series.values[asked, : self.targets],
            target_observed=series.observed[asked, : self.targets],
        )

    def fixed(self, data: IrregularDataset, per_series: int, seed: int) -> IrregularDataset:
        """Questions that stay the same: `per_series` of each series, grouped by it."""
        generator = np.random.default_rng(seed)
        windows = [
            self.question(one, lambda n: int(generator.integers(n))).replace(group=position)
            for position, one in enumerate(data)
            for _ in range(per_series)
        ]
        return IrregularDataset(windows, schema=data.schema)


def _some(rows: NDArray[np.int64], count: int, draw: Draw) -> NDArray[np.int64]:
    """This many different rows, by the first steps of a shuffle."""
    rows = rows.copy()
    for i in range(count):
        j = i + draw(len(rows) - i)
        rows[i], rows[j] = rows[j], rows[i]
    return rows[:count]


def ask_at(series: IrregularSeries, times: NDArray[np.float64], targets: int) -> IrregularSeries:
    """A question about these times with unknown answers."""
    blank = np.zeros((len(times), targets))
    return series.replace(query_times=times, target=blank, target_observed=blank > 0)


def latest(series: IrregularSeries, span: float | None, asked: NDArray[np.float64]) -> IrregularSeries:
    """What was observed within `span` before the end of the series, or before the earliest asked time; None: all."""
    if span is None:
        return series
    begin = min(series.times[-1], asked.min(initial=np.inf)) - span - slack(series.times)
    near = series.times >= begin
    return series.replace(values=series.values[near], times=series.times[near], observed=series.observed[near])


def join_static(series: IrregularSeries) -> IrregularSeries:
    """Static features as further channels, the same in every row; not observed where they were not recorded."""
    if series.static is None:
        return series
    rows = np.repeat(series.static[None], len(series), axis=0)
    return series.replace(
        values=np.hstack([series.values, np.nan_to_num(rows)]),
        observed=np.hstack([series.observed, ~np.isnan(rows)]),
        static=None,
    )
