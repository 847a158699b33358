"""`History`: what one stream keeps so that a late observation can be put in its place."""

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tides.streaming.leaves import Leaves


@dataclass
class Saved:
    """A state, and the time of its newest observation (NaN: none yet)."""

    leaves: Leaves
    last: float


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
    middle: Saved | None = None

    def append(self, t: float, x: NDArray[np.float64], capture: Any) -> None:
        """The stream has taken this observation; `capture()` gives its state, which is asked for now and then."""
        self.times.append(t)
        self.values.append(x)
        if len(self.times) % self.size == 0:
            self.settle(capture())

    def settle(self, present: Saved) -> None:
        """The state after all observations kept, whose number is a multiple of `size`."""
        if self.middle is not None and len(self.times) >= 2 * self.size:
            self.base, self.floor = self.middle, self.middle.last
            del self.times[: self.size], self.values[: self.size]
        self.middle = present

    def holds(self, t: float, x: NDArray[np.float64]) -> bool:
        """Whether this very observation was taken."""
        at = bisect_right(self.times, t)
        while at > 0 and self.times[at - 1] == t:
            at -= 1
            if np.array_equal(self.values[at], x, equal_nan=True):
                return True
        return False

    def insert(self, t: float, x: NDArray[np.float64]) -> None:
        """In the order of times, behind others of the same time; the states after it are no longer known."""
        at = bisect_right(self.times, t)
        self.times.insert(at, t)
        self.values.insert(at, x)
        self.middle = None
