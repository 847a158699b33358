"""Cells: the unit of work that an experiment declares and that is never computed twice.

An experiment is a module with

    cells(config) -> list[Cell]              what a configuration asks for
    run(cell, context) -> Record             one of them
    run_stack(cells, context) -> [Record]    optional: cells of one `stack`, trained side by side

A cell's id is the hash of its resolved configuration and its record is written atomically, so a run that was
killed at any moment continues where it stopped when it is started again.
"""

import multiprocessing
import os
import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tides.errors import ConfigError, TidesError
from tides.experiments import EXPERIMENTS
from tides.records import Record, cell_id, environment, read_record, timestamp, write_record


@dataclass(frozen=True)
class Cell:
    """One result to be computed: `config` holds everything it depends on, the seed included."""

    experiment: str
    label: str
    """Short and readable; names the file together with the id."""
    config: dict[str, Any]
    quick: bool = False
    stack: str | None = None
    """Cells with the same stack may be trained side by side; None stands alone."""

    @property
    def id(self) -> str:
        return cell_id(self.config)

    def path(self, folder: Path) -> Path:
        """Where this cell's record belongs."""
        safe = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in self.label)
        return folder / "records" / f"{safe}-{self.id}.json"

    def record(self, results: dict[str, Any], seconds: float) -> Record:
        """The finished record of this cell."""
        return Record(self.experiment, self.id, self.config, results, seconds, self.quick, environment(), timestamp())


@dataclass(frozen=True)
class Context:
    """What the surroundings give to a running cell; nothing in here may change its result."""

    device: str = "cpu"
    progress: Callable[[float], None] = lambda fraction: None
    """To be called now and then with the fraction of the work that is done."""


@dataclass(frozen=True)
class Outcome:
    """What a call of `run_cells` did."""

    cached: int
    computed: int
    failed: dict[str, str]
    seconds: float


Watch = Callable[[float, list[str]], None]
"""Called with the number of cells done (fractional) and the labels of the stacks at work."""


def find(experiment: str) -> Any:
    """The module of an experiment by its name."""
    if experiment not in EXPERIMENTS:
        raise ConfigError(f"experiment: found {experiment!r}, known are {', '.join(EXPERIMENTS)}")
    return import_module(EXPERIMENTS[experiment])


def pending(cells: Sequence[Cell], folder: Path) -> list[Cell]:
    """The cells without a complete record. A damaged record raises: nothing is overwritten silently."""
    missing = []
    for cell in cells:
        path = cell.path(folder)
        if not path.exists():
            missing.append(cell)
        else:
            read_record(path)
    return missing


def run_cells(
    cells: Sequence[Cell],
    folder: Path,
    *,
    device: str = "cpu",
    workers: int = 1,
    watch: Watch = lambda done, labels: None,
) -> Outcome:
    """Compute what is missing. A failing stack does not stop the others; failures are returned by label."""
    start = time.perf_counter()
    todo = pending(cells, folder)
    stacks: dict[str, list[Cell]] = {}
    for cell in todo:
        stacks.setdefault(cell.stack or cell.id, []).append(cell)
    board = _Board(stacks, len(cells) - len(todo), watch)
    if workers > 1 and len(stacks) > 1:
        failed = _run_parallel(stacks, folder, device, min(workers, len(stacks)), board)
    else:
        failed = _run_here(stacks, folder, device, board)
    lost = sum(len(stacks[name]) for name in failed)
    messages = {stacks[name][0].stack or stacks[name][0].label: text for name, text in failed.items()}
    return Outcome(len(cells) - len(todo), len(todo) - lost, messages, time.perf_counter() - start)


class _Board:
    """Adds up the fractions that the stacks report."""

    def __init__(self, stacks: dict[str, list[Cell]], done: int, watch: Watch) -> None:
        self._stacks, self._done, self._watch = stacks, done, watch
        self._fractions: dict[str, float] = {}
        watch(done, [])

    def post(self, name: str, fraction: float) -> None:
        self._fractions[name] = fraction
        done = self._done + sum(part * len(self._stacks[key]) for key, part in self._fractions.items())
        active = [self._stacks[key][0].stack or self._stacks[key][0].label for key in self._fractions]
        self._watch(done, [n for n, part in zip(active, self._fractions.values(), strict=True) if part < 1])


def _run_here(stacks: dict[str, list[Cell]], folder: Path, device: str, board: _Board) -> dict[str, str]:
    failed = {}
    for name, cells in stacks.items():
        try:
            _run_stack(cells, folder, Context(device, lambda part, name=name: board.post(name, part)))  # type: ignore[misc]
        except TidesError as error:
            failed[name] = str(error)
        board.post(name, 1.0)
    return failed


def _run_stack(cells: list[Cell], folder: Path, context: Context) -> None:
    module = find(cells[0].experiment)
    records = module.run_stack(cells, context) if len(cells) > 1 else [module.run(cells[0], context)]
    for cell, record in zip(cells, records, strict=True):
        write_record(cell.path(folder), record)


# The queue through which a worker process reports; set once when the process starts.
_messages: Any = None


def _run_parallel(
    stacks: dict[str, list[Cell]], folder: Path, device: str, workers: int, board: _Board
) -> dict[str, str]:
    # Spawned, not forked: torch's thread pools do not survive a fork.
    spawn = multiprocessing.get_context("spawn")
    messages: Any = spawn.Queue()
    threads = max(1, available_cpus() // workers)
    with ProcessPoolExecutor(workers, spawn, _enter_worker, (messages, threads)) as pool:
        futures = {name: pool.submit(_work, name, cells, folder, device) for name, cells in stacks.items()}
        while not all(future.done() for future in futures.values()):
            try:
                board.post(*messages.get(timeout=0.1))
            except queue.Empty:
                continue
        for name in stacks:
            board.post(name, 1.0)
        return {name: text for name, future in futures.items() if (text := _failure(future))}


def _failure(future: Future[None]) -> str | None:
    try:
        future.result()
    except TidesError as error:
        return str(error)
    except BrokenProcessPool:
        return "its worker process was killed (out of memory?); run the same command again to continue"
    return None


def _enter_worker(messages: Any, threads: int) -> None:
    import torch

    global _messages
    _messages = messages
    torch.set_num_threads(threads)


def _work(name: str, cells: list[Cell], folder: Path, device: str) -> None:
    parent = multiprocessing.parent_process()

    def progress(fraction: float) -> None:
        # The run was killed: nobody waits for this result, and a new run may already compute it.
        if parent is not None and not parent.is_alive():
            os._exit(1)
        _messages.put((name, fraction))

    _run_stack(cells, folder, Context(device, progress))
    _messages.put((name, 1.0))


def available_cpus() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
