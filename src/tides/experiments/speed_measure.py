"""The measurement of one cell: a training step, a forward pass, their memory, and the step as a CUDA graph."""

import gc
import math
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tides import baselines
from tides.errors import BackendUnavailable, TidesError
from tides.experiments.naive import NaiveClassifier
from tides.experiments.speed_contract import ContractBroken, check_contract
from tides.experiments.speed_machine import ceiling
from tides.experiments.speed_memory import MemoryPeak
from tides.experiments.speed_streaming import measure_streaming
from tides.experiments.transformer import TransformerClassifier
from tides.kernels import use_backend
from tides.kernels.dispatch import last_backend
from tides.nn import SequenceClassifier, TIDESConfig
from tides.training.fused_adam import FusedAdam
from tides.training.gradients import backpropagate

_OTHER_MODELS = ("naive", "transformer", "rformer")
# A token for every observation, as the published growth of its time and memory tells, and a width that gives about
# 100,000 parameters besides the position codes, of which there are as many as tokens.
_RFORMER = {"level": 3, "views": "both", "univariate": False, "embedding": 16, "heads": 1}
_WARM_UP_LENGTH = 64
# Seconds of repeats for one number; slower work is repeated at least thrice, very slow work is taken once.
_BUDGET = {"cpu": 5.0, "cuda": 1.0}
_MOST = 100


def measure_safely(config: dict[str, Any], seconds: float) -> dict[str, Any]:
    """`measure`, but any failure becomes the result, with its reason.

    `broken` asks for a new process: after an unknown error nothing about this one is certain.
    """
    try:
        return measure(config, seconds)
    except ContractBroken as error:
        return {"status": "refused", "reason": str(error)}
    except BackendUnavailable as error:
        return {"status": "unavailable", "reason": str(error)}
    except (torch.OutOfMemoryError, MemoryError) as error:
        reason = _first_line(error)
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):
            return {"status": "failed", "reason": f"RuntimeError: {_first_line(error)}", "broken": True}
        reason = _first_line(error)
    except Exception as error:
        return {"status": "failed", "reason": f"{type(error).__name__}: {_first_line(error)}", "broken": True}
    gc.collect()
    if config["device"] == "cuda":
        torch.cuda.empty_cache()
    return {"status": "out of memory", "reason": reason}


def measure(config: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The results of one cell, in seconds and bytes."""
    device = config["device"]
    if config["workload"] == "ceiling":
        return ceiling(device)
    if config["workload"] == "streaming":
        return measure_streaming(config)
    contract = check_contract(config["model"], config["backend"], device)
    with _backend(config["backend"]):
        _warm_up(config)
        peak = MemoryPeak(device)
        training = Training(config, config["length"])
        step = repeat(training.step, device, seconds, config.get("steps"))
        memory = {"peak": peak.bytes(), "before": peak.before}
        in_a_row = _in_a_row(training.step, step["median"]) if device == "cuda" else None
        forward = repeat(training.forward, device, seconds)
        if config["backend"] not in _OTHER_MODELS and last_backend() != config["backend"]:
            raise TidesError(f"backend: {last_backend()!r} ran instead of {config['backend']!r}")
        if not math.isfinite(float(training.loss)):
            raise TidesError(f"loss: found {float(training.loss)} after training steps")
        graph = _graphed(training, seconds) if device == "cuda" and config["backend"] not in _OTHER_MODELS else None
    return {
        "status": "ok",
        "contract": None if contract is None else contract._asdict(),
        "parameters": training.parameters,
        "step": step,
        "in_a_row": in_a_row,
        "forward": forward,
        "memory": memory,
        "tokens_per_second": config["batch"] * config["length"] / step["median"],
        "graph": graph,
        # A capture that failed may leave the device's streams in a state that nobody should measure in.
        "broken": graph is not None and graph["status"] == "not captured",
    }


class Training:
    """A model, its optimiser and one random batch of irregular series, resident on the device."""

    def __init__(self, config: dict[str, Any], length: int) -> None:
        torch.manual_seed(0)
        device, batch = config["device"], config["batch"]
        self.model = make_model(config).to(device)
        self.parameters = sum(parameter.numel() for parameter in self.model.parameters())
        # The naive model stands for the release and trains as torch does by default; all others as `fit` trains.
        naive = config["backend"] == "naive"
        self.optimiser = _make_optimiser(self.model, device, naive=naive)
        self.backward = torch.Tensor.backward if naive else backpropagate
        self.x = torch.randn(batch, length, config["model"]["input_size"], device=device)
        self.gaps = 0.5 + torch.rand(batch, length, device=device)
        self.labels = torch.randint(config["classes"], (batch,), device=device)
        self.loss: Tensor = torch.zeros((), device=device)

    def step(self) -> None:
        """Forward, backward, Adam."""
        self.optimiser.zero_grad(set_to_none=True)
        self.descend()

    def descend(self) -> None:
        """A step without clearing the gradients first, as a captured graph needs it."""
        loss = F.cross_entropy(self.model(self.x, self.gaps), self.labels)
        self.backward(loss)
        self.optimiser.step()
        self.loss = loss.detach()

    def forward(self) -> None:
        """Evaluation without gradients."""
        self.model.eval()
        with torch.no_grad():
            self.model(self.x, self.gaps)
        self.model.train()


def _make_optimiser(model: nn.Module, device: str, *, naive: bool) -> torch.optim.Adam:
    """Fused Adam that a graph can capture, or torch's default."""
    if naive:
        return torch.optim.Adam(model.parameters(), lr=1e-3)
    return FusedAdam(model.parameters(), lr=1e-3, capturable=device == "cuda")


def make_model(config: dict[str, Any]) -> nn.Module:
    """The classifier that a backend's name stands for."""
    fields, classes = config["model"], config["classes"]
    if config["backend"] == "transformer":
        return TransformerClassifier(fields["input_size"], classes, depth=fields["depth"])
    if config["backend"] == "rformer":
        sizes = {"windows": config["length"], "depth": fields["depth"], "input_size": fields["input_size"]}
        return baselines.build("rformer", classes=classes, **sizes, **_RFORMER)
    kind = NaiveClassifier if config["backend"] == "naive" else SequenceClassifier
    return kind(TIDESConfig(**fields), classes)


def repeat(work: Callable[[], None], device: str, seconds: float, wanted: int | None = None) -> dict[str, Any]:
    """Wall time of `work` after warm-up: median, mean, standard deviation, minimum, and the processor's time.

    `wanted` asks for a number of repeats; there are fewer where they would take longer than half of `seconds`.
    """
    _timed(work, device)
    samples = [_timed(work, device)]
    second = samples[0][0]
    count = min(_MOST, int(_BUDGET[device] / max(second, 1e-9)))
    if second < seconds / 20:
        count = max(count, 3)
    if wanted is not None:
        count = max(1, min(wanted, int(0.5 * seconds / max(second, 1e-9))))
    if count > 1:
        samples = [_timed(work, device) for _ in range(count)]
    wall, processor = zip(*samples, strict=True)
    return {
        "median": statistics.median(wall),
        "mean": statistics.fmean(wall),
        "std": statistics.stdev(wall) if len(wall) > 1 else None,
        "min": min(wall),
        "processor": statistics.median(processor),
        "repeats": len(wall),
    }


def _timed(work: Callable[[], None], device: str) -> tuple[float, float]:
    start, processor = time.perf_counter(), time.process_time()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start, time.process_time() - processor


def _in_a_row(work: Callable[[], None], single: float) -> dict[str, Any]:
    """Time per step among many without waiting in between, as in training, where Python runs ahead of the device."""
    count = max(3, min(_MOST, int(0.3 / single)))
    samples = []
    for _ in range(3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            work()
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - start) / count)
    return {"median": statistics.median(samples), "min": min(samples), "repeats": len(samples), "steps": count}


def _graphed(training: Training, seconds: float) -> dict[str, Any]:
    """The whole step as one CUDA graph; where it cannot be captured, or gives another loss, the reason."""
    try:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                training.step()
        torch.cuda.current_stream().wait_stream(side)
        training.optimiser.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            training.descend()
        with torch.no_grad():
            expected = float(F.cross_entropy(training.model(training.x, training.gaps), training.labels))
        graph.replay()
        found = float(training.loss)
    except RuntimeError as error:
        return {"status": "not captured", "reason": _first_line(error)}
    if not abs(found - expected) <= 1e-4 * abs(expected):
        return {"status": "refused", "reason": f"its loss is {found:.6g}, the eager step's {expected:.6g}"}
    return {"status": "ok", "step": repeat(graph.replay, "cuda", seconds)}


def _warm_up(config: dict[str, Any]) -> None:
    """Load libraries, kernels and workspaces with a small batch, which is forgotten."""
    small = Training(config, min(config["length"], _WARM_UP_LENGTH))
    small.step()
    small.forward()


def _backend(name: str) -> AbstractContextManager[None]:
    """The naive model takes nothing from the kernels but the plain definition of what surrounds its layers."""
    return use_backend("reference" if name in _OTHER_MODELS else name)  # type: ignore[arg-type]


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
