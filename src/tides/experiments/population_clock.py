"""Wall time and memory of a population's cell."""

import gc
import time
from typing import Any

import torch


class Clock:
    """Wall time of the phases of a cell."""

    def __init__(self, device: torch.device) -> None:
        self.laps: dict[str, float] = {}
        self._device, self._since, self._worked = device, time.perf_counter(), time.process_time()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._since = now - self._since, now

    def account(self) -> dict[str, Any]:
        """Device, memory and times for a record."""
        on_gpu = self._device.type == "cuda"
        return {
            "device": torch.cuda.get_device_name(self._device) if on_gpu else self._device.type,
            "peak_memory": torch.cuda.max_memory_allocated(self._device) if on_gpu else None,
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
