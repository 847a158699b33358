"""The speed benchmark: time and memory of a training step, per workload, backend and length.

Every cell is measured in a process of its own (on CUDA: one per backend), so that a peak of memory belongs to one
cell, a crash costs one cell, and a cell that takes too long can be ended. A cell's id covers the machine and the
code that was measured: a record is re-used only where it would be measured again.
"""

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tides.errors import ConfigError
from tides.experiments.runner import Cell
from tides.experiments.speed_machine import hardware, load_average, versions
from tides.experiments.speed_worker import Worker
from tides.records import Record, environment, read_record, timestamp, write_record

NAME = "speed"


@dataclass(frozen=True)
class Workload:
    """A model and the shape of its batches. `lengths` = () takes those that the run asks for."""

    model: dict[str, Any]
    """Fields of `TIDESConfig`; the semantics are the release's, as in the numbers it is compared with."""
    batch: int = 8
    classes: int = 5
    lengths: tuple[int, ...] = ()
    backends: tuple[str, ...] = ("naive", "torch", "cpu", "triton")


_PAPER = {"input_size": 1, "hidden_size": 32, "state_size": 16, "rank": 8, "depth": 4}
WORKLOADS = {
    # The configuration of the paper's table of time and memory.
    "paper-100k": Workload(_PAPER, backends=("naive", "transformer", "rformer", "reference", "torch", "cpu", "triton")),
    "eigenworms": Workload(
        {"input_size": 6, "hidden_size": 16, "state_size": 16, "rank": 16, "depth": 1, "bidirectional": True},
        batch=10,
        lengths=(17984,),
    ),
    "wide": Workload(_PAPER | {"hidden_size": 128, "state_size": 128, "rank": 16}, lengths=(1000, 5000)),
    # One observation at a time through `Backbone.step` and through `CompiledStep`.
    "streaming": Workload(_PAPER, batch=1, lengths=(1,), backends=("module", "compiled")),
}

DEVICES = ("cpu", "cuda")
LENGTHS = {"cpu": (500, 1000, 2000, 5000, 20000), "cuda": (1000, 10_000, 100_000, 1_000_000)}
DEFAULT_WORKLOADS = {"cpu": ("paper-100k", "streaming"), "cuda": ("paper-100k", "eigenworms", "wide")}
DEFAULT_BACKENDS = {
    "cpu": ("naive", "transformer", "torch", "cpu", "module", "compiled"),
    "cuda": ("triton", "torch", "transformer", "naive"),
}
# Beyond these a cell would measure patience: quadratic time, or memory that no machine has.
LONGEST = {
    "cpu": {"naive": 5000, "transformer": 5000, "rformer": 5000, "reference": 5000},
    "cuda": {"naive": 100_000, "transformer": 100_000, "rformer": 100_000, "torch": 100_000, "reference": 1000},
}
SECONDS_PER_CELL = {"cpu": 240.0, "cuda": 120.0}


def cells(
    device: str,
    *,
    lengths: Sequence[int] | None = None,
    workloads: Sequence[str] | None = None,
    backends: Sequence[str] | None = None,
    threads: int = 1,
) -> list[Cell]:
    """The ceiling of this machine, then every workload, backend and length; too long ones are left out."""
    _check("device", [device], DEVICES)
    names = list(workloads or DEFAULT_WORKLOADS[device])
    _check("configs", names, tuple(WORKLOADS))
    known = tuple(sorted({backend for workload in WORKLOADS.values() for backend in workload.backends}))
    wanted = list(backends or DEFAULT_BACKENDS[device])
    _check("backends", wanted, known)
    if any(length < 2 for length in lengths or ()):
        raise ConfigError(f"lengths: found {list(lengths or ())}, wanted integers ≥ 2")
    shared = {"device": device, "threads": threads, "hardware": hardware(device), "code": _code_digest()}
    found = [Cell(NAME, f"{device}-ceiling", {"workload": "ceiling", "backend": "none", "length": 0, **shared})]
    # By backend first: on CUDA all cells of a backend share a process.
    for backend in wanted:
        for name in names:
            workload = WORKLOADS[name]
            if backend not in workload.backends:
                continue
            for length in workload.lengths or lengths or LENGTHS[device]:
                if length <= LONGEST[device].get(backend, length):
                    found.append(_cell(name, workload, backend, length, shared))
    return found


def protocol(device: str) -> dict[str, Any]:
    """How the cells are measured, for the file of results."""
    return {
        "step": "forward, backward in the calling thread and fused Adam in float32 (naive: torch's defaults); wall "
        "time, median after warm-up",
        "forward": "evaluation mode without gradients",
        "memory": "torch's allocator less what it held before the model was built (workspaces of libraries)"
        if device == "cuda"
        else "resident memory above its level before the model was built, in a fresh process that keeps freed memory",
        "semantics": "compat='release' for every backend, as the numbers they are compared with; streaming: defaults",
        "longest": LONGEST[device],
        "seconds_per_cell": SECONDS_PER_CELL[device],
    }


def run_all(
    cells: Sequence[Cell],
    folder: Path,
    *,
    seconds_per_cell: float | None = None,
    fresh: bool = False,
    watch: Callable[[Cell, Record, bool], None] = lambda cell, record, cached: None,
) -> list[Record]:
    """The record of every cell in order, measured if there is none yet (or again if `fresh`).

    `watch` is called with each as soon as it is there.
    """
    records = []
    worker: Worker | None = None
    try:
        for cell in cells:
            path = cell.path(folder)
            cached = path.exists() and not fresh
            if cached:
                record = read_record(path)
            else:
                if worker is None or not worker.fits(cell.config):
                    if worker is not None:
                        worker.close()
                    worker = Worker(cell.config)
                record = measure(cell, worker, seconds_per_cell or SECONDS_PER_CELL[cell.config["device"]])
                # What failed for an unknown reason is tried again by the next run.
                if record.results["status"] != "failed":
                    write_record(path, record)
            records.append(record)
            watch(cell, record, cached)
    finally:
        if worker is not None:
            worker.close()
    return records


def measure(cell: Cell, worker: Worker, seconds: float) -> Record:
    """One record from the worker's measurement, with the machine's state beside it."""
    start, before = time.perf_counter(), load_average()
    results = worker.measure(cell.config, seconds)
    surroundings = environment() | versions() | {"threads": str(cell.config["threads"])}
    results["load_average"] = [before, load_average()]
    took = time.perf_counter() - start
    return Record(NAME, cell.id, cell.config, results, took, False, surroundings, timestamp())


def _cell(name: str, workload: Workload, backend: str, length: int, shared: dict[str, Any]) -> Cell:
    semantics = {} if name == "streaming" else {"compat": "release"}
    fields = {key: value for key, value in asdict(workload).items() if key not in ("lengths", "backends", "model")}
    config = {"workload": name, "backend": backend, "length": length, **fields, **shared}
    config["model"] = workload.model | semantics
    return Cell(NAME, f"{shared['device']}-{name}-{backend}-{length}", config)


def _check(option: str, found: Sequence[str], known: tuple[str, ...]) -> None:
    for name in found:
        if name not in known:
            raise ConfigError(f"{option}: found {name!r}, known are {', '.join(known)}")


def _code_digest() -> str:
    """A hash of the source that is measured and of the source that measures."""
    root = Path(__file__).resolve().parents[1]
    files = [file for room in ("functional", "kernels", "nn") for file in sorted((root / room).rglob("*.py"))]
    files += sorted((root / "experiments").glob("speed*.py"))
    files += [root / "experiments" / f"{name}.py" for name in ("naive", "transformer")]
    files += [root / "baselines" / f"{name}.py" for name in ("rformer", "signature", "path", "inputs")]
    digest = hashlib.sha256()
    for file in files:
        digest.update(os.fsencode(file.relative_to(root)) + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]
