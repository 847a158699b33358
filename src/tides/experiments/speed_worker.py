"""A process that measures cells: killed when a cell takes too long, replaced when it crashes."""

import multiprocessing
import os
import sys
from typing import Any

# glibc otherwise returns every large tensor to the system at once, and a step measures page faults. With these its
# heap keeps what was freed, for every backend alike, and resident memory is what allocations need.
_ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}
_GRACE = 5.0
# Starting python, torch, the device and compilers is not part of a cell's time.
_START = 120.0


class Worker:
    """Serves the cells of one device and backend; on a CPU a single cell, so that its peak of memory is its own."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._key = _key(config)
        self._fresh = True
        # Libraries read these when they are loaded, so the child has to be born with them.
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
        wanted = dict.fromkeys(names, str(config["threads"])) | _ALLOCATOR if config["device"] == "cpu" else {}
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        spawn = multiprocessing.get_context("spawn")
        self._connection, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs, config["threads"], config["device"]), daemon=True)
        try:
            self._process.start()
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name)
                else:
                    os.environ[name] = value
        theirs.close()

    def fits(self, config: dict[str, Any]) -> bool:
        """Whether this process may measure that cell too."""
        return self._process.is_alive() and _key(config) == self._key and (config["device"] != "cpu" or self._fresh)

    def measure(self, config: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The cell's results, or the reason why there are none."""
        allowed = seconds + (_START if self._fresh else _GRACE)
        self._fresh = False
        try:
            self._connection.send((config, seconds))
            if not self._connection.poll(allowed):
                self.close()
                return {"status": "over the time limit", "reason": f"no result within {allowed:g} s"}
            found: dict[str, Any] = self._connection.recv()
        except (EOFError, OSError):
            self._process.join(_GRACE)
            code = self._process.exitcode
            # The kernel ends a process with signal 9 when memory runs out.
            status = "out of memory" if code == -9 else "failed"
            return {"status": status, "reason": f"its process ended with exit code {code}"}
        if found.pop("broken", False):
            self.close()
        return found

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        if self._process.is_alive():
            self._process.kill()
        self._process.join()


def _key(config: dict[str, Any]) -> tuple[Any, ...]:
    return config["device"], config["backend"], config["threads"]


def _serve(connection: Any, threads: int, device: str) -> None:
    import torch

    from tides.experiments.speed_measure import measure_safely
    from tides.experiments.speed_memory import limit_memory

    torch.set_num_threads(threads)
    if device == "cpu":
        limit_memory()
    while True:
        try:
            config, seconds = connection.recv()
        except EOFError:
            sys.exit(0)
        connection.send(measure_safely(config, seconds))
