"""`History`: what one stream keeps so that a late observation can be put in its place."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tides.streaming.leaves import Leaves
from tides.streaming.profile import StaticRow


@dataclass
class Saved:
    """A state, the time of its newest observation (NaN: none yet) and the static covariates it was taken with."""

    leaves: Leaves
    last: float
    static: NDArray[np.float64]


@dataclass
class History:
    """An earlier state and everything observed since, at least `size` observations once there are as many.

    `middle` is the state after the first `size` of them: with 2·size observations it takes the place of `base`.
    """

    size: int
    base: Saved
    floor: float
    """Observations before this time cannot be put in their place."""
    times: list[float] = field(default_factory=list)
    values: list[NDArray[np.float64]] = field(default_factory=list)
    static: list[StaticRow | None] = field(default_factory=list)
    """What came with each observation; None: nothing."""
    middle: Saved | None = None

    def append(self, t: float, x: NDArray[np.float64], static: StaticRow | None, capture: Callable[[], Saved]) -> None:
        """The stream has taken this observation; `capture()` gives its state, which is asked for now and then."""
        self.times.append(t)
        self.values.append(x)
        self.static.append(static)
        if len(self.times) % self.size == 0:
            self.settle(capture())

    def settle(self, present: Saved) -> None:
        """The state after all observations kept, whose number is a multiple of `size`."""
        if self.middle is not None and len(self.times) >= 2 * self.size:
            self.base, self.floor = self.middle, self.middle.last
            del self.times[: self.size], self.values[: self.size], self.static[: self.size]
        self.middle = present

    def holds(self, t: float, x: NDArray[np.float64]) -> bool:
        """Whether this very observation was taken."""
        at = bisect_right(self.times, t)
        while at > 0 and self.times[at - 1] == t:
            at -= 1
            if np.array_equal(self.values[at], x, equal_nan=True):
                return True
        return False

    def following(self, t: float) -> float:
        """The time of the first observation after `t`, which is earlier than the newest."""
        return self.times[bisect_right(self.times, t)]

    def insert(self, t: float, x: NDArray[np.float64], static: StaticRow | None) -> None:
        """In the order of times, behind others of the same time; the states after it are no longer known."""
        at = bisect_right(self.times, t)
        first = self.static[0]
        if at == 0 and np.isnan(self.base.last) and first is not None:
            # Nothing was told before it: what came with the first one held for it as well.
            static = first if static is None else StaticRow(static.over(first.values), static.named | first.named)
        self.static.insert(at, static)
        self.times.insert(at, t)
        self.values.insert(at, x)
        self.middle = None

    def static_rows(self) -> NDArray[np.float64]:
        """The static covariates (n, …) that held for each observation: a later one replaces what it names."""
        rows, present = [], self.base.static
        for told in self.static:
            present = present if told is None else told.over(present)
            rows.append(present)
        return np.stack(rows)
