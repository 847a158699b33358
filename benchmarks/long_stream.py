"""Ten million observations, one at a time: memory, and distance from the sequence computed in float64.

    python benchmarks/long_stream.py --steps 10000000 --json benchmarks/results/long-stream.json

Each chunk is also computed as a sequence in float64, which continues from its own state; the largest difference from
the steps in float32, relative to the largest feature, is kept for every million observations.
"""

import argparse
import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from tides.nn import Backbone, TIDESConfig
from tides.nn.compiled_step import CompiledStep

MODEL = {"input_size": 1, "hidden_size": 32, "state_size": 16, "rank": 8, "depth": 4}
CHUNK = 10_000


def resident_bytes() -> int:
    """Resident memory of this process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def make_backbone() -> Backbone:
    """A model whose heads depend on their input, as trained ones do."""
    torch.manual_seed(0)
    backbone = Backbone(TIDESConfig(**MODEL)).eval()
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return backbone


def run(steps: int) -> dict[str, Any]:
    """Step through `steps` random observations; one row per million (or per tenth of a shorter run)."""
    backbone = make_backbone()
    compiled = CompiledStep(backbone)
    exact, state = make_backbone().double(), None
    generator = torch.Generator().manual_seed(1)
    every = max(CHUNK, min(1_000_000, steps // 10))
    rows: list[dict[str, Any]] = []
    worst, times, done = 0.0, [], 0
    with torch.no_grad():
        while done < steps:
            n = min(CHUNK, steps - done)
            x, gaps = torch.randn(n, 1, 1, generator=generator), 0.01 + 2 * torch.rand(n, 1, generator=generator)
            found = torch.empty(n, backbone.config.hidden_size)
            values, waits, answers = x.numpy(), gaps.numpy(), found.numpy()
            start = time.process_time()
            for k in range(n):
                answers[k] = compiled.step(values[k], waits[k])[0]
            times.append((time.process_time() - start) / n)
            wanted, state = exact(x.transpose(0, 1).double(), gaps.transpose(0, 1).double(), state=state)
            worst = max(worst, float((found - wanted[0]).abs().max() / wanted.abs().max()))
            done += n
            if done % every == 0 or done == steps:
                rows.append({"steps": done, "deviation": worst, "resident_bytes": resident_bytes()})
                print(rows[-1], flush=True)
                worst = 0.0
    return {
        "steps": steps,
        "model": MODEL,
        "reference": f"the same weights in float64, chunks of {CHUNK} steps that carry their state",
        "largest_deviation": max(row["deviation"] for row in rows),
        "resident_growth_bytes": rows[-1]["resident_bytes"] - rows[0]["resident_bytes"],
        "processor_microseconds_per_step": 1e6 * statistics.median(times),
        "rows": rows,
        "environment": {"torch": torch.__version__, "python": platform.python_version(), "machine": platform.machine()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000_000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = run(arguments.steps)
    text = json.dumps(found, indent=2)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
