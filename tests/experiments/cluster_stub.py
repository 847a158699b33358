"""An experiment for tests on a Ray cluster: cells write down when they begin and end, and wait to be let through.

Unpickling a `StubCell` imports this module, so that workers know the experiment too. Tests import it before Ray, which
reads once whether a token is needed: this one is made up here, and no file is left in the home folder.
"""

import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = os.environ.get("RAY_AUTH_TOKEN") or uuid.uuid4().hex

import ray

from tides.errors import Diverged
from tides.experiments import EXPERIMENTS
from tides.experiments.runner import Cell, Context
from tides.records import Record

EXPERIMENTS["stub"] = __name__


class StubCell(Cell):
    """A cell of this experiment."""


@dataclass(frozen=True)
class Event:
    """One line of the log."""

    what: str
    seed: int
    pid: int
    node: str
    scratch: str


def make(seeds: Sequence[int], place: Path, stack: str | None = None, **more: object) -> list[Cell]:
    return [StubCell("stub", f"seed{s}", {"seed": s, "place": str(place), **more}, stack=stack) for s in seeds]


def obstacle(cell: Cell) -> str | None:
    wanted = cell.config.get("data")
    return None if wanted is None or wanted == os.environ.get("TIDES_DATA") else f"no data in {wanted}"


def run(cell: Cell, context: Context) -> Record:
    return run_stack([cell], context)[0]


def run_stack(cells: Sequence[Cell], context: Context) -> list[Record]:
    place = Path(cells[0].config["place"])
    for cell in cells:
        _write(place, "begin", cell, context)
        if cell.config["seed"] == 13:
            raise Diverged("the loss became NaN")
        if cell.config["seed"] == 14:
            raise ZeroDivisionError("a defect")
    context.progress(0.25)
    while not (place / "open").exists() and not (place / cells[0].label).exists():
        time.sleep(0.02)
    for cell in cells:
        _write(place, "end", cell, context)
    return [cell.record({"square": cell.config["seed"] ** 2}, 0.0) for cell in cells]


def _write(place: Path, what: str, cell: Cell, context: Context) -> None:
    node = ray.get_runtime_context().get_node_id()
    line = f"{what} {cell.config['seed']} {os.getpid()} {node} {context.scratch}\n"
    # One write to a file that is opened for appending: lines of several processes do not mix.
    handle = os.open(place / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(handle, line.encode())
    os.close(handle)


def events(place: Path) -> list[Event]:
    log = place / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [Event(what, int(s), int(pid), node, scratch) for what, s, pid, node, scratch in map(str.split, lines)]


def count(place: Path, what: str) -> Counter[int]:
    """How often each seed began or ended."""
    return Counter(event.seed for event in events(place) if event.what == what)


def wait_for(condition: Callable[[], object], what: str, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s for {what}")
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Whether the process runs; one that is dead and not yet buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
