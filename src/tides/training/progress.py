"""The bar of a training run: epoch, loss, metric, speed, remaining time."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

# Redrawing more often than this many times a second would cost small models their speed.
_REDRAWS = 4
# A log file shows no bar; it has a line now and then.
_SECONDS_BETWEEN_LINES = 30.0


@runtime_checkable
class EpochListener(Protocol):
    """A progress function that is also told the monitored metric at the end of every epoch; it may end the run by
    raising."""

    def __call__(self, fraction: float) -> None: ...

    def epoch(self, epoch: int, value: float) -> None:
        """Called at the end of epoch `epoch`, counted from 1."""


class ProgressBar:
    """Counts steps: draws a bar on stderr, or calls a function with the fraction of all steps done, or does neither."""

    def __init__(self, epochs: int, steps_per_epoch: int, monitor: str, show: bool | Callable[[float], None]) -> None:
        self._epochs, self._per_epoch, self._monitor = epochs, steps_per_epoch, monitor
        self._tell = None if isinstance(show, bool) else show
        console = Console(stderr=True)
        self._writes_lines = show is True and not (console.is_terminal or console.is_jupyter)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
            console=console,
            refresh_per_second=_REDRAWS,
            disable=show is not True,
        )
        self._task = self._bar.add_task("", total=epochs * steps_per_epoch, numbers="")
        self._loss = self._metric = self._speed = ""
        self._told = time.perf_counter()
        self._mark = (self._told, 0)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def step(self, step: int, series: int, loss: float) -> None:
        """Count one update on `series` series."""
        since, seen = self._mark
        now, seen = time.perf_counter(), seen + series
        self._mark = (since, seen)
        self._loss = f"loss {loss:.4g}"
        if now - since >= 1 / _REDRAWS:
            self._speed = f"{seen / (now - since):.0f} series/s"
            self._mark = (now, 0)
            self._show(step)

    def epoch(self, step: int, value: float | None) -> None:
        """Count an epoch, which ended with this value of the monitored metric."""
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
        if self._writes_lines and time.perf_counter() - self._told >= _SECONDS_BETWEEN_LINES:
            self._told = time.perf_counter()
            self._bar.console.print(f"epoch {epoch}/{self._epochs}  {numbers}", highlight=False, soft_wrap=True)
