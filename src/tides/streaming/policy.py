"""`StreamPolicy`: what happens to observations that come late, twice, after a long silence, or several at one time."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tides.errors import ConfigError
from tides.fields import require

Late = Literal["reject", "ignore", "replay"]
Duplicate = Literal["reject", "ignore", "take"]
SameTime = Literal["step", "merge"]
Status = Literal["taken", "merged", "reset", "replayed", "ignored", "rejected"]


@dataclass(frozen=True, kw_only=True)
class StreamPolicy:
    """What to do with observations that come late, twice, after a long silence, or several at one time."""

    late: Late = "reject"
    """Earlier than the newest one: `reject` with the reason, `ignore`, or `replay`: go back to an earlier state of the
    stream, put the observation in its place and take in again what came after it."""
    duplicate: Duplicate = "ignore"
    """Same time and same values as the newest one, or under `replay` as any that is still kept."""
    same_time: SameTime = "step"
    """Other values at the time of an observation: a `step` of their own, with a gap of zero, or `merge`: they complete
    that observation, as rows of a table that have one time do; a value that comes again replaces the earlier one."""
    reset_after: Any = None
    """A silence longer than this (a number in the model's unit, "24h", a timedelta) starts the stream anew; nothing is
    replayed from before it."""
    history: int = 64
    """`replay` reaches back over at least this many observations; half of what is kept."""

    def __post_init__(self) -> None:
        require(self, ("late",), lambda value: value in ("reject", "ignore", "replay"), "reject, ignore or replay")
        require(self, ("duplicate",), lambda value: value in ("reject", "ignore", "take"), "reject, ignore or take")
        require(self, ("same_time",), lambda value: value in ("step", "merge"), "step or merge")
        if isinstance(self.history, bool) or not isinstance(self.history, int) or self.history < 1:
            raise ConfigError(f"history: found {self.history!r}, wanted an integer ≥ 1")


@dataclass(frozen=True)
class Answers:
    """The answers of `step_many` to n observations."""

    values: NDArray[np.float64]
    """(n, …): the task's answer for the stream as it is after each observation; NaN where it was rejected and the
    stream has seen nothing."""
    spreads: NDArray[np.float64] | None
    """Standard deviations beside the values of a forecaster that predicts them; None otherwise."""
    status: list[Status]
    reasons: dict[int, str]
    """Why an observation was ignored or rejected, by its position."""

    def __len__(self) -> int:
        return len(self.status)
