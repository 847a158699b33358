"""Cells: the unit of work that an experiment declares and that is never computed twice.

An experiment is a module with

    cells(config) -> list[Cell]              what a configuration asks for
    run(cell, context) -> Record             one of them
    run_stack(cells, context) -> [Record]    optional: cells of one `stack`, trained side by side
    obstacle(cell) -> str | None             optional: why a cell cannot run here, such as data that is not at hand

A cell's id is the hash of its resolved configuration and its record is written atomically, so a run that was
killed at any moment continues where it stopped when it is started again.
"""

import math
import multiprocessing
import os
import queue
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field, replace
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
    scratch: Path | None = None
    """A folder of this cell alone for what an interrupted one continues from; removed once its record is written."""


@dataclass(frozen=True)
class Outcome:
    """What a call of `run_cells` did."""

    cached: int
    computed: int
    failed: dict[str, str]
    seconds: float
    unavailable: dict[str, str] = field(default_factory=dict)
    """Stacks that cannot run on this machine, with the reason; no record was written for them."""
    postponed: int = 0
    """Cells that were not started because the time was up."""


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
    time_limit: float | None = None,
    watch: Watch = lambda done, labels: None,
) -> Outcome:
    """Compute what is missing. A failing stack does not stop the others; failures are returned by label.

    Once `time_limit` seconds have passed no further stack is started; the next call continues there.
    """
    start = time.perf_counter()
    deadline = math.inf if time_limit is None else start + time_limit
    todo = pending(cells, folder)
    stacks: dict[str, list[Cell]] = {}
    unavailable: dict[str, str] = {}
    for cell in todo:
        reason = _obstacle(cell)
        if reason is None:
            stacks.setdefault(cell.stack or cell.id, []).append(cell)
        else:
            unavailable[cell.stack or cell.label] = reason
    board = _Board(stacks, len(cells) - len(todo), watch)
    if workers > 1 and len(stacks) > 1:
        done = _run_parallel(stacks, folder, device, min(workers, len(stacks)), board, deadline)
    else:
        done = _run_here(stacks, folder, device, board, deadline)
    messages = {stacks[name][0].stack or stacks[name][0].label: text for name, text in done.items() if text}
    return Outcome(
        cached=len(cells) - len(todo),
        computed=sum(len(stacks[name]) for name, text in done.items() if not text),
        failed=messages,
        seconds=time.perf_counter() - start,
        unavailable=unavailable,
        postponed=sum(len(group) for name, group in stacks.items() if name not in done),
    )


def _obstacle(cell: Cell) -> str | None:
    ask: Callable[[Cell], str | None] | None = getattr(find(cell.experiment), "obstacle", None)
    return None if ask is None else ask(cell)


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


def _run_here(
    stacks: dict[str, list[Cell]], folder: Path, device: str, board: _Board, deadline: float
) -> dict[str, str | None]:
    """What became of each stack that was started: None, or the message of its failure."""
    done: dict[str, str | None] = {}
    for name, cells in stacks.items():
        if time.perf_counter() >= deadline:
            break
        done[name] = None
        try:
            _run_stack(cells, folder, Context(device, lambda part, name=name: board.post(name, part)))  # type: ignore[misc]
        except TidesError as error:
            done[name] = str(error)
        board.post(name, 1.0)
    return done


def _run_stack(cells: list[Cell], folder: Path, context: Context) -> None:
    module = find(cells[0].experiment)
    scratch = folder / "unfinished" / cells[0].id
    context = replace(context, scratch=scratch)
    records = module.run_stack(cells, context) if len(cells) > 1 else [module.run(cells[0], context)]
    for cell, record in zip(cells, records, strict=True):
        write_record(cell.path(folder), record)
    shutil.rmtree(scratch, ignore_errors=True)
    with suppress(OSError):
        scratch.parent.rmdir()


# The queue through which a worker process reports; set once when the process starts.
_messages: Any = None


def _run_parallel(
    stacks: dict[str, list[Cell]], folder: Path, device: str, workers: int, board: _Board, deadline: float
) -> dict[str, str | None]:
    # Spawned, not forked: torch's thread pools do not survive a fork.
    spawn = multiprocessing.get_context("spawn")
    messages: Any = spawn.Queue()
    threads = max(1, available_cpus() // workers)
    with ProcessPoolExecutor(workers, spawn, _enter_worker, (messages, threads)) as pool:
        futures = {name: pool.submit(_work, name, cells, folder, device) for name, cells in stacks.items()}
        while not all(future.done() for future in futures.values()):
            if time.perf_counter() >= deadline:
                for future in futures.values():
                    future.cancel()
            try:
                board.post(*messages.get(timeout=0.1))
            except queue.Empty:
                continue
        started = {name: future for name, future in futures.items() if not future.cancelled()}
        for name in started:
            board.post(name, 1.0)
        return {name: _failure(future) for name, future in started.items()}


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
