"""What the numbers were measured on, and what that machine could do at best: copy bandwidth and matrix products."""

import os
import platform
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from tides.errors import BackendUnavailable


def hardware(device: str) -> dict[str, str]:
    """Names of processor and accelerator; part of a cell's identity."""
    found = {"cpu": _processor()}
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise BackendUnavailable("device: found 'cuda', but torch sees no CUDA device on this machine")
        found["gpu"] = torch.cuda.get_device_name()
    return found


def versions() -> dict[str, str]:
    """Libraries that matter for speed, beyond those of every record."""
    import torch

    found = {"cuda": str(torch.version.cuda)}
    for name in ("triton", "numba"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def load_average() -> float | None:
    """Runnable processes in the last minute: above the number of processors, times are those of a busy machine."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def ceiling(device: str) -> dict[str, Any]:
    """Bytes per second of a large copy (read and write counted), floating-point operations per second of products."""
    import torch

    on_gpu = device == "cuda"
    numbers, width = (2**28, 8192) if on_gpu else (2**25, 1536)
    source = torch.ones(numbers, device=device)
    target = torch.empty_like(source)
    copy = _fastest(lambda: target.copy_(source), on_gpu)
    a, b = torch.randn(2, width, width, device=device)
    rates = {"float32": 2 * width**3 / _fastest(lambda: a @ b, on_gpu)}
    if on_gpu:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            rates["tf32"] = 2 * width**3 / _fastest(lambda: a @ b, on_gpu)
        finally:
            torch.set_float32_matmul_precision(before)
    return {"status": "ok", "copy_bytes_per_second": 8 * numbers / copy, "matmul_flop_per_second": rates}


def _fastest(work: Callable[[], Any], on_gpu: bool) -> float:
    """Seconds of the fastest of a few repeats after one that warms up."""
    import torch

    found = []
    for _ in range(6):
        start = time.perf_counter()
        work()
        if on_gpu:
            torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return min(found[1:])


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
