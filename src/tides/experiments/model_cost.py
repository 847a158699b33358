"""What a training step of every model costs at one standard size, so that nobody starts a nine-hour run unknowingly.

Default configurations, random irregular series, one step = forward, loss, backward, Adam. Each model is measured in a
process of its own, and memory is that process's peak above what it held before the first step.
"""

import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tides import baselines
from tides.errors import ConfigError
from tides.experiments.speed_machine import hardware, load_average
from tides.experiments.speed_memory import MemoryPeak
from tides.nn import Forecaster, SequenceClassifier, TIDESConfig
from tides.records import environment, timestamp

REFERENCES = ("tides", "tides-forecaster")
"""Our own models beside the baselines."""
_FEWEST = 3


@dataclass(frozen=True)
class Size:
    """The batch that every model sees. Forecasters observe the first half of the series and answer for the second."""

    batch: int = 16
    length: int = 256
    channels: int = 6
    classes: int = 5


def names() -> tuple[str, ...]:
    """Everything that can be measured; what has nothing to train is left out."""
    trained = (
        name
        for name in baselines.names()
        if name != "class-prior" and getattr(baselines.entry(name).model_class(), "trainable", True)
    )
    return (*REFERENCES, *trained)


def measure_all(
    wanted: Sequence[str] | None = None,
    *,
    size: Size | None = None,
    device: str = "cpu",
    seconds: float = 5.0,
    watch: Callable[[dict[str, Any]], None] = lambda row: None,
) -> dict[str, Any]:
    """Rows of all wanted models and what they were measured on; `seconds` are spent on each, three steps at least."""
    chosen, size = tuple(wanted or names()), size or Size()
    for name in chosen:
        if name not in names():
            raise ConfigError(f"models: found {name!r}, wanted some of {', '.join(names())}")
    machine = hardware(device)
    rows = []
    for name in chosen:
        rows.append(_in_own_process(name, size, device, seconds))
        watch(rows[-1])
    return {
        "size": asdict(size),
        "device": device,
        "machine": machine,
        "threads": torch.get_num_threads(),
        "load": load_average(),
        "environment": environment(),
        "finished": timestamp(),
        "models": rows,
    }


def _in_own_process(name: str, size: Size, device: str, seconds: float) -> dict[str, Any]:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, torch.set_num_threads, (torch.get_num_threads(),)) as pool:
        try:
            return pool.submit(measure, name, size, device, seconds).result()
        except BrokenProcessPool:
            return {"model": name, "status": "its process was killed (out of memory?)"}
        except torch.OutOfMemoryError:
            return {"model": name, "status": "out of memory"}


def measure(name: str, size: Size, device: str, seconds: float) -> dict[str, Any]:
    """Median seconds of a step, peak bytes and parameters of one model, in this process.

    `processor` is the time that processors of this machine worked, which other work on it does not lengthen.
    """
    torch.manual_seed(0)
    model, loss = _workload(name, size, device)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        loss().backward()
        optimiser.step()
        if device != "cpu":
            torch.cuda.synchronize()

    # Compilers and workspaces belong to the first step of a run and not to its cost.
    step()
    optimiser.zero_grad(set_to_none=True)
    peak = MemoryPeak("cpu" if device == "cpu" else "cuda")
    taken: list[float] = []
    worked: list[float] = []
    begin = time.perf_counter()
    while len(taken) < _FEWEST or time.perf_counter() - begin < seconds:
        start, work = time.perf_counter(), time.process_time()
        step()
        taken.append(time.perf_counter() - start)
        worked.append(time.process_time() - work)
    return {
        "model": name,
        "status": "measured",
        "task": "classification" if _classifies(name) else "forecasting",
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "step": statistics.median(taken),
        "fastest": min(taken),
        "processor": statistics.median(worked),
        "steps": len(taken),
        "memory": peak.bytes(),
    }


def _classifies(name: str) -> bool:
    return name == "tides" or (name not in REFERENCES and baselines.entry(name).task == "classification")


def _workload(name: str, size: Size, device: str) -> tuple[nn.Module, Callable[[], Tensor]]:
    """A model and the loss of one fixed batch: times at random, nothing missing."""
    b, l, d = size.batch, size.length, size.channels
    values = torch.randn(b, l, d, device=device).cumsum(1) / l**0.5
    times = torch.rand(b, l, dtype=torch.float64, device=device).sort(dim=1).values * l
    half = l // 2
    model: nn.Module
    if _classifies(name):
        config = {"input_size": d, "classes": size.classes}
        if name == "tides":
            model = SequenceClassifier(TIDESConfig(input_size=d), size.classes)
        else:
            model = baselines.build(name, **config)
        model.to(device)
        gaps = times.diff(dim=1, prepend=times[:, :1] - 1).float()
        labels = torch.randint(size.classes, (b,), device=device)
        return model, lambda: F.cross_entropy(model(values, gaps), labels)
    if name in REFERENCES:
        model = Forecaster(TIDESConfig(input_size=d), channels=d)
    else:
        model = baselines.build(name, input_size=d)
    model.to(device)
    seen = torch.ones(b, half, d, dtype=torch.bool, device=device)
    target = values[:, half:]
    return model, lambda: F.mse_loss(model(values[:, :half], times[:, :half], seen, times[:, half:]), target)
