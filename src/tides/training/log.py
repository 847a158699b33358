"""Metrics as they come: one JSON line per epoch and, if it is installed, TensorBoard."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tides.training.state import Row

METRICS = "metrics.jsonl"


class MetricsLog:
    """`metrics.jsonl` in the run's folder; without a folder, nothing. Equal runs write equal bytes, so wall times are
    left out.
    """

    def __init__(self, folder: Path | None, history: Sequence[Row]) -> None:
        """Start from the epochs in the checkpoint; lines written after it are written again."""
        self.path: Path | None = None
        self._board: Any = None
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / METRICS
        partial = self.path.with_suffix(".partial")
        partial.write_text("".join(map(_line, history)), encoding="utf-8")
        os.replace(partial, self.path)
        self._board = _tensorboard(folder, len(history))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._board is not None:
            self._board.close()

    def write(self, row: Row) -> None:
        """Append one epoch."""
        if self.path is None:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(row))
        if self._board is not None:
            for name, value in row.items():
                if value is not None and name != "epoch":
                    self._board.add_scalar(name, value, row["epoch"])


def _line(row: Row) -> str:
    return json.dumps(row, allow_nan=False) + "\n"


def _tensorboard(folder: Path, epochs: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(folder / "tensorboard", purge_step=epochs + 1)
