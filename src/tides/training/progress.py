"""The bar of a training run: epoch, loss, metric, speed, remaining time."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

# Redrawing more often than this many times a second would cost small models their speed.
_REDRAWS = 4


@runtime_checkable
class EpochListener(Protocol):
    """A progress function that is also told the monitored metric at the end of every epoch; it may end the run by
    raising."""

    def __call__(self, fraction: float) -> None: ...

    def epoch(self, epoch: int, value: float) -> None:
        """Epoch `epoch`, counted from 1, is closed."""


class ProgressBar:
    """Counts steps; drawn, or told to a function as the fraction of all steps that are done, or neither."""

    def __init__(self, epochs: int, steps_per_epoch: int, monitor: str, show: bool | Callable[[float], None]) -> None:
        self._epochs, self._per_epoch, self._monitor = epochs, steps_per_epoch, monitor
        self._tell = None if isinstance(show, bool) else show
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
            refresh_per_second=_REDRAWS,
            disable=show is not True,
        )
        self._task = self._bar.add_task("", total=epochs * steps_per_epoch, numbers="")
        self._loss = self._metric = self._speed = ""
        self._mark = (time.perf_counter(), 0)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def step(self, step: int, series: int, loss: float) -> None:
        """One update on `series` series is done."""
        since, seen = self._mark
        now, seen = time.perf_counter(), seen + series
        self._mark = (since, seen)
        self._loss = f"loss {loss:.4g}"
        if now - since >= 1 / _REDRAWS:
            self._speed = f"{seen / (now - since):.0f} series/s"
            self._mark = (now, 0)
            self._show(step)

    def epoch(self, step: int, value: float | None) -> None:
        """An epoch is closed with this value of the monitored metric."""
        if value is not None:
            self._metric = f"val {self._monitor} {value:.4g}"
            if isinstance(self._tell, EpochListener):
                self._tell.epoch(step // self._per_epoch, value)
        self._show(step)

    def _show(self, step: int) -> None:
        if self._tell is not None:
            self._tell(step / (self._epochs * self._per_epoch))
        epoch = min(step // self._per_epoch + 1, self._epochs)
        numbers = "  ".join(filter(None, (self._loss, self._metric, self._speed)))
        self._bar.update(self._task, completed=step, description=f"epoch {epoch}/{self._epochs}", numbers=numbers)
