"""What one stream keeps of its past, so that a late observation finds its place or an old one counts no longer."""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tides.rounding import slack
from tides.streaming.leaves import Leaves
from tides.streaming.profile import StaticRow

Row = NDArray[np.float64]


def says_nothing_new(x: Row, known: Row) -> bool:
    """Whether every value of `x` is there already."""
    return bool((np.isnan(x) | (x == known)).all())


@dataclass
class Saved:
    """A state, the time of its newest observation (NaN: none yet) and the static covariates it was taken with."""

    leaves: Leaves
    last: float
    static: Row


@dataclass(kw_only=True)
class Past(ABC):
    """An earlier state and the observations since."""

    base: Saved
    floor: float
    """Observations before this time cannot be put in their place."""
    times: list[float] = field(default_factory=list)
    values: list[Row] = field(default_factory=list)
    static: list[StaticRow | None] = field(default_factory=list)
    """What came with each observation; None: nothing."""

    @property
    @abstractmethod
    def since(self) -> float:
        """The time before the first observation kept, from which its gap counts; NaN: it is the first of all."""

    @abstractmethod
    def append(self, t: float, x: Row, static: StaticRow | None) -> bool:
        """The stream has taken this observation; whether its state must be read again from `base`."""

    @abstractmethod
    def stops(self) -> list[int]:
        """After how many observations `reach` wants the state when all are read again; the last is after all."""

    @abstractmethod
    def reach(self, count: int, capture: Callable[[], Saved]) -> None:
        """The state after `count` observations, the number kept or one of `stops`, is `capture()`."""

    def copy(self) -> "Past":
        return replace(self, times=[*self.times], values=[*self.values], static=[*self.static])

    def holds(self, t: float, x: Row, *, partly: bool = False) -> bool:
        """Whether this very observation was taken; `partly`: or one at this time that says the same and more."""
        at = bisect_right(self.times, t)
        while at > 0 and self.times[at - 1] == t:
            at -= 1
            if np.array_equal(self.values[at], x, equal_nan=True) or (partly and says_nothing_new(x, self.values[at])):
                return True
        return False

    def merge(self, t: float, x: Row, static: StaticRow | None) -> bool:
        """Complete the observation at this time; False if none is kept. The states after it are no longer known."""
        at = bisect_right(self.times, t) - 1
        if at < 0 or self.times[at] != t:
            return False
        self.values[at] = np.where(np.isnan(x), self.values[at], x)
        before = self.static[at]
        if static is not None:
            merged = static if before is None else StaticRow(static.over(before.values), static.named | before.named)
            self.static[at] = merged
        return True

    def following(self, t: float) -> float:
        """The time of the first observation after `t`, which is earlier than the newest."""
        return self.times[bisect_right(self.times, t)]

    def insert(self, t: float, x: Row, static: StaticRow | None) -> None:
        """In the order of times, behind others of the same time; the states after it are no longer known."""
        at = bisect_right(self.times, t)
        first = self.static[0]
        if at == 0 and np.isnan(self.base.last) and first is not None:
            # Nothing was told before it: what came with the first one held for it as well.
            static = first if static is None else StaticRow(static.over(first.values), static.named | first.named)
        self.static.insert(at, static)
        self.times.insert(at, t)
        self.values.insert(at, x)

    def static_rows(self) -> NDArray[np.float64]:
        """The static covariates (n, …) that held for each observation: a later one replaces what it names."""
        return np.stack(self._static_until(len(self.static)))

    def _static_until(self, count: int) -> list[Row]:
        rows, present = [], self.base.static
        for told in self.static[:count]:
            present = present if told is None else told.over(present)
            rows.append(present)
        return rows

    def _forget(self, count: int, base: Saved) -> None:
        """Drop the first so many observations, behind which `base` is."""
        self.base = base
        del self.times[:count], self.values[:count], self.static[:count]


@dataclass(kw_only=True)
class History(Past):
    """At least `size` observations, once there are as many, to put late ones between.

    `middle` is the state after the first `size` of them: with 2·size observations it takes the place of `base`.
    """

    size: int
    middle: Saved | None = None

    @property
    def since(self) -> float:
        return self.base.last

    def append(self, t: float, x: Row, static: StaticRow | None) -> bool:
        self.times.append(t)
        self.values.append(x)
        self.static.append(static)
        return False

    def merge(self, t: float, x: Row, static: StaticRow | None) -> bool:
        merged = super().merge(t, x, static)
        if merged:
            self.middle = None
        return merged

    def insert(self, t: float, x: Row, static: StaticRow | None) -> None:
        super().insert(t, x, static)
        self.middle = None

    def stops(self) -> list[int]:
        return [*range(self.size, len(self.times), self.size), len(self.times)]

    def reach(self, count: int, capture: Callable[[], Saved]) -> None:
        if count % self.size:
            return
        if self.middle is not None and count >= 2 * self.size:
            self.floor = self.middle.last
            self._forget(self.size, self.middle)
        self.middle = capture()


@dataclass(kw_only=True)
class Window(Past):
    """All that counts for a model that answers from the last `span` of a series: what was observed within it.

    `base` is the state before any observation, with the time of the last one that was forgotten.
    """

    span: float

    @property
    def since(self) -> float:
        return float("nan")

    def append(self, t: float, x: Row, static: StaticRow | None) -> bool:
        self.times.append(t)
        self.values.append(x)
        self.static.append(static)
        return self._trim()

    def extended(self, times: NDArray[np.float64], values: NDArray[np.float64]) -> "Window":
        """The window after a stretch with which nothing was told."""
        longer = replace(
            self,
            times=[*self.times, *times.tolist()],
            values=[*self.values, *values.copy()],
            static=[*self.static, *[None] * len(times)],
        )
        longer._trim()
        return longer

    def _trim(self) -> bool:
        """Forget what no longer counts; whether anything was forgotten."""
        ends = np.array([self.times[0], self.times[-1]])
        self.floor = max(self.floor, self.times[-1] - self.span - slack(ends))
        count = bisect_left(self.times, self.floor)
        if count:
            static = self._static_until(count)[-1]
            self._forget(count, Saved(self.base.leaves, self.times[count - 1], static))
        return count > 0

    def stops(self) -> list[int]:
        return [len(self.times)]

    def reach(self, count: int, capture: Callable[[], Saved]) -> None:
        """Nothing is kept of it: the next one may be of other observations."""
