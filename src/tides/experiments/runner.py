"""Cells: the unit of work that an experiment declares and that is never computed twice.

An experiment is a module with

    cells(config) -> list[Cell]              what a configuration asks for
    run(cell, context) -> Record             one of them
    run_stack(cells, context) -> [Record]    optional: cells of one `stack`, trained side by side
    turns(cell, context) -> Turns[Record]    optional: `run` in turns, so that cells share a GPU
    stack_turns(cells, context) -> Turns     optional: `run_stack` in turns
    obstacle(cell) -> str | None             optional: why a cell cannot run here, such as data that is not at hand

A cell's id is the hash of its resolved configuration and its record is written atomically, so a run that was
killed at any moment continues where it stopped when it is started again. An engine decides where cells are computed;
their records come back and are written here. Several runs may share a folder: a stack is computed by one of them.
"""

import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from tides.atomic import require_folder
from tides.errors import ConfigError, TidesError
from tides.experiments import EXPERIMENTS
from tides.experiments.engines import Engine, Failure, Processes, Progress
from tides.records import Record, cell_id, environment, read_record, timestamp, write_record
from tides.training.lock import held
from tides.turns import Turns, finished


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
    """The environment of a running cell; nothing in it may change the result."""

    device: str = "cpu"
    progress: Progress = lambda fraction: None
    scratch: Path | None = None
    """A folder of this cell alone for what an interrupted one continues from; removed once its record is written."""


@dataclass(frozen=True)
class Outcome:
    """The result of a call of `run_cells`."""

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


def plan(module: Any, config: Mapping[str, Any], *, variant: str, quick: bool) -> list[Cell]:
    """The cells of a configuration, each once, even if a name occurs twice; at least one."""
    found: list[Cell] = module.cells(config, variant=variant, quick=quick)
    if not found:
        empty = [name for name, value in config.items() if value == []]
        raise ConfigError(f"{', '.join(empty) or 'settings'}: found nothing to run, wanted at least one cell")
    return list({cell.id: cell for cell in found}.values())


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
    engine: Engine = Processes(),  # noqa: B008 (frozen)
    time_limit: float | None = None,
    watch: Watch = lambda done, labels: None,
) -> Outcome:
    """Compute the missing cells. A failing stack does not stop the others; failures are returned by label.

    A stack that another run is computing in this folder counts as a failure. Once `time_limit` seconds have passed, no
    further stack is started; the next call continues there.
    """
    start = time.perf_counter()
    todo = pending(cells, folder)
    waiting = {cell.id for cell in todo}
    for cell in cells:
        # A run that was killed between the records of a stack has left it behind.
        if cell.id not in waiting:
            _remove(_scratch(cell, folder))
    unavailable: dict[str, str] = {}
    stacks: dict[str, list[Cell]] = {}
    for cell in todo:
        # Where jobs see other files than this process, they look for their data themselves.
        reason = _obstacle(cell) if engine.shares_files else None
        if reason is None:
            stacks.setdefault(cell.stack or cell.id, []).append(cell)
        else:
            unavailable[_title(cell)] = reason
    if stacks:
        require_folder(folder / "records")
    board = _Board(stacks, len(cells) - len(todo), watch)
    shared = folder.absolute() if engine.shares_files else None
    jobs = {name: _Stack(group, device, shared) for name, group in stacks.items()}
    failed: dict[str, str] = {}
    computed, postponed = 0, sum(map(len, stacks.values()))
    deadline = math.inf if time_limit is None else start + time_limit
    # Closed even if a record cannot be written: no job should go on whose record could not be written either.
    with closing(engine.run(jobs, deadline=deadline, post=board.post)) as answers:
        for name, answer in answers:
            postponed -= len(stacks[name])
            if isinstance(answer, Failure):
                failed[name] = answer.message
            else:
                for cell, found in zip(stacks[name], answer, strict=True):
                    if isinstance(found, Record):
                        write_record(cell.path(folder), found)
                        computed += 1
                    else:
                        unavailable[_title(cell)] = found
                _remove(_scratch(stacks[name][0], folder))
            board.end(name)
    # What another run was computing may be there by now.
    missing = {name: group for name in failed if (group := pending(stacks[name], folder))}
    reasons = {_title(group[0]): failed[name] for name, group in missing.items()}
    elsewhere = sum(len(stacks[name]) for name in failed if name not in missing)
    seconds = time.perf_counter() - start
    return Outcome(len(cells) - len(todo) + elsewhere, computed, reasons, seconds, unavailable, postponed)


@dataclass(frozen=True)
class _Stack:
    """The job of a stack. It may run on another machine, so everything it produces is part of its result."""

    cells: list[Cell]
    device: str
    folder: Path | None
    """Of the records, where this can see them. Where it cannot, it looks for its data itself."""

    def __call__(self, progress: Progress) -> list[Record | str]:
        """For each cell its record, or why it cannot run."""
        return finished(self.turns(progress))

    def turns(self, progress: Progress) -> Turns[list[Record | str]]:
        """The same in turns."""
        if self.folder is None:
            reasons = {cell.id: reason for cell in self.cells if (reason := _obstacle(cell)) is not None}
            return (yield from self._turns(progress, None, reasons))
        scratch = _scratch(self.cells[0], self.folder)
        with _claimed(scratch):
            # Another run may have computed them since this one began.
            paths = {cell.id: cell.path(self.folder) for cell in self.cells}
            known = {name: read_record(path) for name, path in paths.items() if path.exists()}
            return (yield from self._turns(progress, scratch, known))

    def _turns(
        self, progress: Progress, scratch: Path | None, known: Mapping[str, Record | str]
    ) -> Turns[list[Record | str]]:
        """Compute what is not known."""
        cells = [cell for cell in self.cells if cell.id not in known]
        try:
            records = (yield from _compute(cells, Context(self.device, progress, scratch))) if cells else []
        except torch.OutOfMemoryError as error:
            raise TidesError(f"out of memory on {self.device}, which other stacks may share") from error
        found = {**known, **{cell.id: record for cell, record in zip(cells, records, strict=True)}}
        return [found[cell.id] for cell in self.cells]


def _compute(cells: list[Cell], context: Context) -> Turns[list[Record]]:
    module = find(cells[0].experiment)
    if hasattr(module, "stack_turns"):
        found: list[Record] = yield from module.stack_turns(cells, context)
        return found
    if len(cells) > 1:
        return list(module.run_stack(cells, context))
    if hasattr(module, "turns"):
        return [(yield from module.turns(cells[0], context))]
    return [module.run(cells[0], context)]


def _obstacle(cell: Cell) -> str | None:
    ask: Callable[[Cell], str | None] | None = getattr(find(cell.experiment), "obstacle", None)
    return None if ask is None else ask(cell)


def _title(cell: Cell) -> str:
    return cell.stack or cell.label


def _scratch(first: Cell, folder: Path) -> Path:
    """The folder of checkpoints for the stack with this first cell."""
    return folder.absolute() / "unfinished" / first.id


@contextmanager
def _claimed(scratch: Path) -> Iterator[None]:
    """Hold `scratch` alone among runs. If the folder does not exist in the end, no trace of the claim is left."""
    lock = scratch.with_suffix(".lock")
    with held(lock, f"another process computes it in {scratch}; wait for it, or choose another folder"):
        try:
            yield
        finally:
            if not scratch.exists():
                with suppress(OSError):
                    lock.unlink()
                    lock.parent.rmdir()


def _remove(scratch: Path) -> None:
    """Remove the checkpoints of a complete stack, unless another run is computing it again."""
    if scratch.exists():
        with suppress(TidesError), _claimed(scratch):
            shutil.rmtree(scratch, ignore_errors=True)


class _Board:
    """Adds up the fractions reported by the stacks."""

    def __init__(self, stacks: dict[str, list[Cell]], done: int, watch: Watch) -> None:
        self._stacks, self._done, self._watch = stacks, done, watch
        self._fractions: dict[str, float] = {}
        self._ended: set[str] = set()
        watch(done, [])

    def post(self, name: str, fraction: float) -> None:
        """Report the fraction of a running stack; reports that arrive after its end are ignored."""
        if name not in self._ended:
            self._show(name, fraction)

    def end(self, name: str) -> None:
        self._ended.add(name)
        self._show(name, 1.0)

    def _show(self, name: str, fraction: float) -> None:
        self._fractions[name] = fraction
        done = self._done + sum(part * len(self._stacks[key]) for key, part in self._fractions.items())
        self._watch(done, [_title(self._stacks[key][0]) for key in self._fractions if key not in self._ended])
