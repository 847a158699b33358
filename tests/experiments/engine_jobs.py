"""Jobs for worker processes; this file imports nothing that takes long, as every worker imports it."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from tides.experiments import engines
from tides.experiments.engines import Progress


def enter_worker(messages: Any, threads: int) -> None:
    """What the engine does in a new worker, without torch."""
    engines._join_run(messages)


class Chatter:
    """Reports far more often than anybody reads."""

    def __call__(self, progress: Progress) -> str:
        for step in range(20_000):
            progress(step / 20_000)
        return "done"


class Silent:
    """Writes the number of its process into a folder, and then works for long without a report."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, progress: Progress) -> None:
        aside = self.folder / f"{os.getpid()}.aside"
        aside.touch()
        aside.rename(self.folder / str(os.getpid()))
        time.sleep(60)


class Note:
    """Writes its name into a folder when it begins; then waits for a file, or kills its worker."""

    def __init__(self, folder: Path, name: str, *, kill: bool = False, wait: bool = False) -> None:
        self.folder, self.name, self.kill, self.wait = folder, name, kill, wait

    def __call__(self, progress: Progress) -> str:
        (self.folder / self.name).touch()
        progress(0.5)
        if self.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        end = time.monotonic() + 20
        while self.wait and not (self.folder / "go").exists() and time.monotonic() < end:
            progress(0.5)
        return self.name
