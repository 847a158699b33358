"""Wall time and memory of a population's cell."""

import gc
import time
from typing import Any, TypeVar

import torch

from tides.turns import Turns

T = TypeVar("T")


class Clock:
    """Wall time of the phases of a cell."""

    def __init__(self, device: torch.device) -> None:
        self.laps: dict[str, float] = {}
        self._device, self._since, self._worked = device, time.perf_counter(), time.process_time()
        self._alone = True
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._since = now - self._since, now

    def outside(self, turns: Turns[T]) -> Turns[T]:
        """Pass turns on. Shared time is divided among the cells, so that the times of cells side by side add up."""
        sharers: int | None = None
        while True:
            resumed = time.perf_counter()
            try:
                turns.send(sharers)
            except StopIteration as end:
                result: T = end.value
                return result
            worked = time.process_time()
            sharers = yield
            self._worked += time.process_time() - worked
            if sharers is not None and sharers > 1:
                self._since += (time.perf_counter() - resumed) * (1 - 1 / sharers)
                self._alone = False

    def account(self) -> dict[str, Any]:
        """Device, memory and times for a record."""
        on_gpu = self._device.type == "cuda"
        return {
            "device": torch.cuda.get_device_name(self._device) if on_gpu else self._device.type,
            # Beside others it would be theirs, too.
            "peak_memory": torch.cuda.max_memory_allocated(self._device) if on_gpu and self._alone else None,
            "seconds": self.laps,
            # Of this process alone; unlike wall time, other work on the machine does not lengthen it.
            "processor_seconds": time.process_time() - self._worked,
        }


def release_memory(device: torch.device) -> None:
    """Free what a finished population held on a GPU, its graphs included."""
    if device.type == "cuda":
        # The graphs' memory is free for the next cell only when nothing refers to them any more.
        gc.collect()
        torch.cuda.empty_cache()
