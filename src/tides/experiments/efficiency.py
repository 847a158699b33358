"""Training time and memory (paper, appendix): the cells of `tides bench speed` that the paper's table consists of.

About 100,000 parameters, four layers, one channel, batch 8, at 1,000, 5,000 and 10,000 steps.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from tides.errors import ConfigError, TidesError
from tides.experiments import speed
from tides.experiments.config import build
from tides.experiments.runner import Cell, Context
from tides.experiments.speed_worker import Worker
from tides.records import Record

NAME = "efficiency"


@dataclass(frozen=True)
class EfficiencyConfig:
    """A resolved configuration file."""

    device: Literal["auto", "cpu", "cuda"]
    """`auto` takes the GPU if there is one."""
    models: tuple[str, ...]
    """Backends of the TIDES model, and the models beside it: triton, torch, cpu, naive, transformer, rformer."""
    lengths: tuple[int, ...]
    steps: int
    """Timed after warm-up."""
    threads: int
    seconds: float
    """A cell that takes longer is recorded as such."""


def cells(config: Mapping[str, Any], *, variant: str, quick: bool) -> list[Cell]:
    """One cell per model and length, as the benchmark makes them."""
    chosen = build(EfficiencyConfig, config)
    device = _device() if chosen.device == "auto" else chosen.device
    backends = [
        name for name in chosen.models if (name != "triton" or device == "cuda") and (name, device) != ("cpu", "cuda")
    ]
    found = speed.cells(
        device, lengths=chosen.lengths, workloads=["paper-100k"], backends=backends, threads=chosen.threads
    )
    return [
        replace(
            cell,
            experiment=NAME,
            label=f"{variant}-{cell.label}",
            config={
                **cell.config,
                "experiment": NAME,
                "quick": quick,
                "steps": chosen.steps,
                "seconds": chosen.seconds,
            },
            quick=quick,
        )
        for cell in found
        if cell.config["workload"] != "ceiling"
    ]


def run(cell: Cell, context: Context) -> Record:
    """Measure one cell in a process of its own."""
    device = cell.config["device"]
    if not context.device.startswith(device):
        raise ConfigError(f"--device {context.device}: these cells are for {device}; say --device {device}")
    start = time.perf_counter()
    worker = Worker(cell.config)
    try:
        results = worker.measure(cell.config, cell.config["seconds"])
    finally:
        worker.close()
    if results["status"] == "failed":
        raise TidesError(f"{cell.label}: {results['reason']}")
    return cell.record(results, time.perf_counter() - start)


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
