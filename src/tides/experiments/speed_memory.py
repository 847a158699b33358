"""Peak memory of a piece of work above what was there before it."""

import ctypes
import gc
from pathlib import Path

import torch

_STATUS = Path("/proc/self/status")
# Left to the rest of the machine when a measurement on the CPU is given a limit.
_SHARE = 0.85


class MemoryPeak:
    """Starts counting where it is made.

    CUDA: bytes that torch's allocator handed out. What was allocated before, such as the workspaces of libraries that
    a warm-up has already loaded, is `before` and does not count. CPU: resident memory of this process.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        gc.collect()
        if device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated()
        else:
            _return_freed_memory()
            _forget_peak()
            self.before = _resident("VmRSS")

    def bytes(self) -> int:
        """The highest level since the start, less `before`."""
        if self.device == "cuda":
            return torch.cuda.max_memory_allocated() - self.before
        return _resident("VmHWM") - self.before


def limit_memory() -> None:
    """Let this process fail where its allocations exceed what the machine has free, before the machine suffers."""
    if not _STATUS.exists():
        return
    import resource

    available = _read(Path("/proc/meminfo"), "MemAvailable")
    most = _resident("VmSize") + int(_SHARE * available)
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _resident(kind: str) -> int:
    """A size of this process in bytes: VmRSS now, VmHWM at its highest, VmSize with everything only reserved."""
    if _STATUS.exists():
        return _read(_STATUS, kind)
    import resource

    # Systems without /proc tell the peak alone (macOS in bytes).
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _read(file: Path, entry: str) -> int:
    return int(file.read_text(encoding="utf-8").split(f"{entry}:")[1].split()[0]) * 1024


def _forget_peak() -> None:
    """Reset the peak of this process. Where the system does not allow it, the earlier peak counts too: an upper
    bound.
    """
    counter = Path("/proc/self/clear_refs")
    if counter.exists():
        try:
            counter.write_text("5", encoding="utf-8")
        except OSError:
            return


def _return_freed_memory() -> None:
    """Give memory freed by warm-up and compilers back to the system; otherwise the work would re-use it unseen."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if _STATUS.exists() else None
    if trim is not None:
        trim(0)
