"""One observation at a time: microseconds per step of a backbone with batch 1."""

import statistics
import time
from typing import Any

import torch

from tides.experiments.speed_memory import MemoryPeak
from tides.nn import Backbone, TIDESConfig

_WARM_UP = 200
_STEPS = 3000


def measure_streaming(config: dict[str, Any]) -> dict[str, Any]:
    """Median, mean and 99th percentile of a step, and how much memory the steps left behind."""
    torch.manual_seed(0)
    model = TIDESConfig(**config["model"])
    backbone = Backbone(model).eval()
    x, gaps = torch.randn(_STEPS, 1, model.input_size), 0.5 + torch.rand(_STEPS, 1)
    with torch.inference_mode():
        state = backbone.init_state(1)
        for k in range(_WARM_UP):
            _, state = backbone.step(x[k], gaps[k], state)
        peak = MemoryPeak("cpu")
        found = []
        for k in range(_STEPS):
            start = time.perf_counter()
            _, state = backbone.step(x[k], gaps[k], state)
            found.append(time.perf_counter() - start)
    return {
        "status": "ok",
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
