"""One observation at a time: microseconds per step of a backbone with batch 1, as a module and as compiled code."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tides.experiments.speed_contract import ContractBroken
from tides.experiments.speed_memory import MemoryPeak
from tides.nn import Backbone, TIDESConfig

_WARM_UP = 200
_STEPS = 3000
_TOLERANCE = 1e-4

Step = Callable[[Tensor, Tensor], Tensor]


def measure_streaming(config: dict[str, Any]) -> dict[str, Any]:
    """Median, mean and 99th percentile of a step, and how much memory the steps left behind.

    The warm-up is compared with the whole sequence at once; a step that drifts from it is refused.
    """
    torch.manual_seed(0)
    model = TIDESConfig(**config["model"])
    backbone = Backbone(model).eval()
    x, gaps = torch.randn(_STEPS, 1, model.input_size), 0.5 + torch.rand(_STEPS, 1)
    with torch.no_grad():
        step = _compiled(backbone) if config["backend"] == "compiled" else _plain(backbone)
        deviation = _deviation(backbone, step, x[:_WARM_UP], gaps[:_WARM_UP])
        if not deviation <= _TOLERANCE:
            raise ContractBroken(f"backend {config['backend']!r}: steps deviate from the sequence by {deviation:.1e}")
        peak = MemoryPeak("cpu")
        found = []
        for k in range(_STEPS):
            start = time.perf_counter()
            step(x[k], gaps[k])
            found.append(time.perf_counter() - start)
    return {
        "status": "ok",
        "contract": {"forward": deviation, "gradient": None, "dtype": "float32"},
        "step": {
            "median": statistics.median(found),
            "mean": statistics.fmean(found),
            "std": statistics.stdev(found),
            "min": min(found),
            "p99": statistics.quantiles(found, n=100)[-1],
            "repeats": _STEPS,
        },
        "memory": {"peak": peak.bytes(), "before": peak.before},
        "tokens_per_second": 1 / statistics.median(found),
        "parameters": backbone.count_parameters(),
    }


def _plain(backbone: Backbone) -> Step:
    state = backbone.init_state(1)

    def step(x: Tensor, gap: Tensor) -> Tensor:
        nonlocal state
        y, state = backbone.step(x, gap, state)
        return y

    return step


def _compiled(backbone: Backbone) -> Step:
    from tides.nn.compiled_step import CompiledStep

    return CompiledStep(backbone).step


def _deviation(backbone: Backbone, step: Step, x: Tensor, gaps: Tensor) -> float:
    """Largest difference between steps and the sequence at once, relative to the largest feature."""
    found = torch.cat([step(x[k], gaps[k]) for k in range(len(x))])
    wanted, _ = backbone(x.transpose(0, 1), gaps.transpose(0, 1))
    return float((found - wanted[0]).abs().max() / wanted.abs().max())
