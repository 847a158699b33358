"""The scale benchmark: cells per minute and training observations per second against the number of workers.

Equal cells, trained by the engine of `tides run`, so many for each worker: the work grows with the workers, and none
of them idles at the end because the cells do not divide. Each run is a process of its own that may use as many
processors as it has workers. `tides.experiments.scale_summary` turns runs into rates, efficiencies and a fit.
"""

import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tides.errors import ConfigError, TidesError
from tides.experiments import config as configs
from tides.experiments import runner
from tides.experiments.engines import Engine, Processes, available_cpus
from tides.experiments.runner import Cell
from tides.experiments.scale_summary import summarise
from tides.experiments.speed_machine import hardware, load_average
from tides.records import environment, read_record, timestamp

ENGINES = ("local", "ray")
_EXPERIMENT, _VARIANT = "physiome", "recommended"


@dataclass(frozen=True)
class Workload:
    """One cell: forecasts of simulated calcium waves, one fold, a small model."""

    cells_per_worker: int = 4
    epochs: int = 16
    instances: int = 200
    dataset: str = "embedded-calcium"
    hidden_size: int = 32
    state_size: int = 16
    depth: int = 2
    rank: int = 4

    def cells(self, count: int) -> list[Cell]:
        """This many cells that do the same work and differ in name only."""
        model = {name: getattr(self, name) for name in ("hidden_size", "state_size", "depth", "rank")}
        settings = [f"datasets=['{self.dataset}']", "folds=1", f"instances={self.instances}"]
        # Nothing may end a cell early, and any number of epochs is allowed.
        settings += [f"train.epochs={self.epochs}", f"train.patience={self.epochs}", "train.warmup_epochs=0"]
        settings += [f"model.{name}={value}" for name, value in model.items()]
        config = configs.load(_EXPERIMENT, _VARIANT, quick=False, settings=settings)
        module = runner.find(_EXPERIMENT)
        return [cell for n in range(count) for cell in module.cells(config, variant=f"scale{n}", quick=False)]


@dataclass(frozen=True)
class Setup:
    """What varies between runs."""

    engine: str
    workers: int
    processors: int
    """How many the run may use, all workers together."""


def default_engines() -> list[str]:
    """The local one, and Ray where it is installed."""
    return ["local", *(["ray"] if find_spec("ray") else [])]


def setups(engines: Sequence[str], workers: Sequence[int], *, threads: bool = True) -> list[Setup]:
    """One processor for each worker; with `threads` also a single worker with a thread on every processor."""
    for engine in engines:
        if engine not in ENGINES:
            raise ConfigError(f"engines: found {engine!r}, wanted some of {', '.join(ENGINES)}")
        if engine not in default_engines():
            raise TidesError('engines: ray needs Ray: pip install "tides-ssm[cluster]"')
    if not workers or min(workers) < 1:
        raise ConfigError(f"workers: found {list(workers)}, wanted integers ≥ 1")
    at_hand = available_cpus()
    # Everything is relative to one worker.
    counts = sorted({1, *workers})
    found = [Setup(engine, count, min(count, at_hand)) for engine in engines for count in counts]
    if threads and "local" in engines and at_hand > 1:
        found.append(Setup("local", 1, at_hand))
    return found


def default_workers() -> list[int]:
    """Powers of two up to the processors at hand, and all of them."""
    at_hand = available_cpus()
    return sorted({at_hand, *(2**n for n in range(at_hand.bit_length()) if 2**n <= at_hand)})


def measure_all(
    chosen: Sequence[Setup],
    *,
    workload: Workload | None = None,
    repeats: int = 3,
    watch: Callable[[dict[str, Any]], None] = lambda run: None,
) -> dict[str, Any]:
    """All runs, their summary, and the machine they were measured on.

    Repeats are the outer loop, so that other work on the machine affects all setups alike.
    """
    workload = workload or Workload()
    started, before = timestamp(), load_average()
    runs = []
    for repeat in range(repeats):
        for setup in chosen:
            runs.append({"repeat": repeat, **_in_own_process(setup, workload)})
            watch(runs[-1])
    return {
        "benchmark": "scale",
        "workload": asdict(workload),
        "machine": hardware("cpu") | {"processors": str(available_cpus())},
        "environment": environment() | ({"ray": metadata.version("ray")} if find_spec("ray") else {}),
        "load_average": [before, load_average()],
        "started": started,
        "finished": timestamp(),
        **summarise(runs),
        "runs": runs,
    }


def _in_own_process(setup: Setup, workload: Workload) -> dict[str, Any]:
    load, busy, start = load_average(), _machine_seconds(), time.perf_counter()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        found = pool.submit(measure, setup, workload).result()
    wall, after = time.perf_counter() - start, _machine_seconds()
    others = None
    # Only the local engine's processes are all ours, so that the rest is other work.
    if setup.engine == "local" and busy is not None and after is not None:
        others = max(0.0, after - busy - found["processor_seconds"]) / wall
    return {**found, "wall": wall, "load_average": load, "other_processors": others}


def measure(setup: Setup, workload: Workload) -> dict[str, Any]:
    """Train the cells in this process and its workers; seconds of each cell, observations and processor seconds.

    Processor seconds are those of the local engine's processes; other engines have processes that are not ours.
    """
    _restrict(setup.processors)
    import torch

    torch.set_num_threads(max(1, setup.processors // setup.workers))
    cells = workload.cells(setup.workers * workload.cells_per_worker)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        outcome = runner.run_cells(cells, folder, engine=_engine(setup))
        reasons = {**outcome.failed, **outcome.unavailable}
        if reasons:
            raise TidesError("; ".join(f"{name}: {text}" for name, text in reasons.items()))
        records = [read_record(cell.path(folder)) for cell in cells]
    epochs = sum(record.results["folds"][0]["epochs"] for record in records)
    worked = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        **asdict(setup),
        "cells": len(cells),
        "observations": epochs * _training_observations(workload),
        "cell_seconds": [record.seconds for record in records],
        "cell_processor_seconds": [record.results["processor_seconds"] for record in records],
        "processor_seconds": sum(usage.ru_utime + usage.ru_stime for usage in worked),
    }


def _engine(setup: Setup) -> Engine:
    if setup.engine == "local":
        return Processes(setup.workers)
    from tides.experiments.cluster import Cluster

    share = min(1.0, setup.processors / setup.workers)
    return Cluster("local", cpus=share, at_once=setup.workers, shares_files=True)


def _training_observations(workload: Workload) -> int:
    """Observed time steps of the training series; one epoch sees them once."""
    from tides.experiments import physiome_folds

    (parts,) = physiome_folds.load(workload.dataset, 1, parity=True, instances=workload.instances)
    return int(parts.train.valid.sum())


def _machine_seconds() -> float | None:
    """Seconds that all processors of this machine have worked so far; not every system tells."""
    file = Path("/proc/stat")
    if not file.exists():
        return None
    user, nice, system, _idle, _waiting, interrupts, soft, *_ = map(int, file.read_text().splitlines()[0].split()[1:])
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")


def _restrict(processors: int) -> None:
    """Keep this process and its children to some processors, whole cores first; not every system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0), key=_core_rank)[:processors])


def _core_rank(processor: int) -> tuple[int, int]:
    """A core's first hardware thread before the second one of any other."""
    file = Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
    if not file.exists():
        return 0, processor
    siblings: list[int] = []
    for part in file.read_text(encoding="utf-8").strip().split(","):
        first, _, last = part.partition("-")
        siblings += range(int(first), int(last or first) + 1)
    return siblings.index(processor), processor
