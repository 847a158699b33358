"""The cost of a training step of every model at one standard size, so that nobody starts a nine-hour run unknowingly.

Default configurations, random irregular series, one step = forward, loss, backward, Adam. Models are measured in a
separate process, on a CPU each in its own; memory is the peak above the level before the first step.
"""

import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
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
    """All models that can be measured; those without parameters to train are left out."""
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
    limit: float | None = None,
    watch: Callable[[dict[str, Any]], None] = lambda row: None,
) -> dict[str, Any]:
    """Rows of all wanted models and the machine they were measured on; `seconds` are spent on each, three steps at
    least.

    If a model has not answered after `limit` seconds, it is given up and its row says so.
    """
    chosen, size = tuple(wanted or names()), size or Size()
    for name in chosen:
        if name not in names():
            raise ConfigError(f"models: found {name!r}, wanted some of {', '.join(names())}")
    machine = hardware(device)
    rows = []
    worker: _Worker | None = None
    for name in chosen:
        worker = worker if worker is not None and worker.alive else _Worker(torch.get_num_threads())
        rows.append(worker.measure(name, size, device, seconds, limit))
        watch(rows[-1])
        if device == "cpu":
            # Resident memory is counted for a whole process; on a GPU the allocator starts its count anew.
            worker.close()
    if worker is not None:
        worker.close()
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


class _Worker:
    """A process that measures models; it is killed when one takes too long and ends itself when one breaks it."""

    def __init__(self, threads: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._connection, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs, threads), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def measure(self, name: str, size: Size, device: str, seconds: float, limit: float | None) -> dict[str, Any]:
        """The model's row, or a row with the reason why there is none."""
        try:
            self._connection.send((name, size, device, seconds))
            if self._connection.poll(limit):
                row, broken = self._connection.recv()
                if broken:
                    self.close()
                return {"model": name, **row}
            status = f"given up after {limit:g} s"
        except (EOFError, OSError):
            status = "its process was killed (out of memory?)"
        self.close()
        return {"model": name, "status": status}

    def close(self) -> None:
        self._process.kill()
        self._process.join()


def _serve(connection: Connection, threads: int) -> None:
    torch.set_num_threads(threads)
    while True:
        try:
            call = connection.recv()
        except EOFError:
            return
        try:
            connection.send((measure(*call), False))
        except torch.OutOfMemoryError:
            connection.send(({"status": "out of memory"}, True))
        except Exception as error:
            # One model that fails must not cost the measurements of the others.
            connection.send(({"status": f"failed: {error}"}, True))


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
