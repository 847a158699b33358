"""`StreamPolicy`: what happens to observations that come late, twice or after a long silence."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tides.errors import ConfigError
from tides.fields import require

Late = Literal["reject", "ignore", "replay"]
Duplicate = Literal["reject", "ignore", "take"]
Status = Literal["taken", "reset", "replayed", "ignored", "rejected"]


@dataclass(frozen=True, kw_only=True)
class StreamPolicy:
    """What to do with observations that do not come in the order of their times."""

    late: Late = "reject"
    """Earlier than the newest one: `reject` with the reason, `ignore`, or `replay`: go back to an earlier state of the
    stream, put the observation in its place and take in again what came after it."""
    duplicate: Duplicate = "ignore"
    """Same time and same values as the newest one, or under `replay` as any that is still kept. Other values at the
    same time are news and are taken, with a gap of zero."""
    reset_after: Any = None
    """A silence longer than this (a number in the model's unit, "24h", a timedelta) starts the stream anew; nothing is
    replayed from before it."""
    history: int = 64
    """`replay` reaches back over at least this many observations; half of what is kept."""

    def __post_init__(self) -> None:
        require(self, ("late",), lambda value: value in ("reject", "ignore", "replay"), "reject, ignore or replay")
        require(self, ("duplicate",), lambda value: value in ("reject", "ignore", "take"), "reject, ignore or take")
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
