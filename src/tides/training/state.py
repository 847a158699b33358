"""The progress of a run: everything but tensors, in plain numbers that survive JSON exactly."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from tides.training.metrics import HIGHER_IS_BETTER

Row = dict[str, float | int | None]
"""One line of metrics; None where a metric is undefined."""

Stopped = Literal["epochs", "patience", "diverged"]
"""Why a run ended; `fit` raises where it diverges, a member of a population stops."""


@dataclass(frozen=True)
class FitResult:
    """The result of a finished run; the model holds the weights of `best_epoch`."""

    stopped: Stopped
    epochs: int
    steps: int
    best_epoch: int
    """Counted from 1; 0 if there is none, because a member of a population diverged in its first epoch."""
    best: Row
    """The metrics of the best epoch."""
    history: list[Row]
    seconds: float
    """Wall time, summed over interruptions."""
    folder: Path | None


@dataclass
class RunState:
    """Position, sums of the unfinished epoch, and what early stopping remembers."""

    epoch: int = 0
    """Epochs that are complete, validation included."""
    batch: int = 0
    """Batches of the unfinished epoch that are done."""
    step: int = 0
    loss_total: float = 0.0
    loss_weight: float = 0.0
    gradient_norm: float = 0.0
    """The largest of the unfinished epoch."""
    first_loss: float | None = None
    best_epoch: int = 0
    """Counted from 1; 0 before there is one."""
    best_value: float | None = None
    history: list[Row] = field(default_factory=list)
    seconds: float = 0.0
    stopped: Stopped | None = None

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        return cls(**content)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def close_epoch(self, row: Row, monitor: str, value: float | None) -> bool:
        """Record an epoch's metrics; true if it is the best so far. Without a value, the newest epoch counts as the
        best.
        """
        self.epoch, self.batch = self.epoch + 1, 0
        self.loss_total = self.loss_weight = self.gradient_norm = 0.0
        self.history.append(row)
        if value is not None and self.best_value is not None:
            better = value > self.best_value if monitor in HIGHER_IS_BETTER else value < self.best_value
            if not better:
                return False
        self.best_epoch, self.best_value = self.epoch, value
        return True

    def result(self, folder: Path | None) -> FitResult:
        """The result of a run that has stopped."""
        assert self.stopped is not None
        best = self.history[self.best_epoch - 1] if self.best_epoch else {}
        return FitResult(self.stopped, self.epoch, self.step, self.best_epoch, best, self.history, self.seconds, folder)
