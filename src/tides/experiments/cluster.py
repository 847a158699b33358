"""Jobs as tasks of a Ray cluster.

A task is retried only when its worker process or its node is lost: an error of the job itself ends it. A result comes
back inside the reply of its task and is kept in this process, so no finished result is lost with a node or computed
again.

A job runs a second time only if its first result could not be delivered: its worker died between the last line of the
job and the reply, or the result is larger than Ray sends in a reply (100 kB; the records of the largest stack here take
half of that) and its node was lost before it was fetched. Of two results the one that arrives counts.
"""

import logging
import math
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tides.errors import ConfigError, TidesError
from tides.experiments.engines import Answers, Failure, Job, Post, Progress, T, attempt

try:
    import ray
    from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as missing:
    raise TidesError('--engine ray needs Ray: pip install "tides-ssm[cluster]"') from missing

# Seconds between two looks at what the workers report, and between two reports of a worker.
_PULSE = 0.5
# Seconds to wait for the board to answer before going on without it.
_PATIENCE = 10.0


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster and the resources of each job."""

    address: str = "auto"
    """`host:port` of the head, `auto` for the cluster that this machine belongs to, `local` for one of its own."""
    cpus: float = 1.0
    gpus: float = 0.0
    retries: int = 3
    """How often a job may lose its worker and be started again."""
    at_once: int | None = None
    """The most jobs at the same time; as many as the cluster has room for by default."""
    shares_files: bool = False
    """Whether all nodes see the files of this machine under the same paths."""

    def __post_init__(self) -> None:
        for name, wish in (("cpus", self.cpus), ("gpus", self.gpus)):
            if wish > 1 and wish % 1:
                raise ConfigError(f"{name}: found {wish:g}, wanted a whole number or a part of 1")
        if self.cpus <= 0:
            raise ConfigError(
                f"cpus: found {self.cpus:g}, wanted more than 0, or a node has room for any number of jobs"
            )

    def run(
        self, jobs: Mapping[str, Job[T]], *, deadline: float = math.inf, post: Post = lambda name, fraction: None
    ) -> Answers[T]:
        if not jobs:
            return
        with _connected(self.address):
            self._check_room()
            yield from _Run(self, jobs, deadline, post).results()

    def _check_room(self) -> None:
        """Refuse jobs that no node has the resources for; Ray would wait for ever."""
        found = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(node.get("CPU", 0) >= self.cpus and node.get("GPU", 0) >= self.gpus for node in found):
            nodes = "; ".join(f"{node.get('CPU', 0):g} CPUs, {node.get('GPU', 0):g} GPUs" for node in found)
            raise ConfigError(f"no node has {self.cpus:g} CPUs and {self.gpus:g} GPUs for a job; found {nodes}")


@contextmanager
def _connected(address: str) -> Iterator[None]:
    """A context with a connection to Ray; a session opened by the caller is used and left open."""
    if ray.is_initialized():
        yield
        return
    # A dashboard is for clusters that live longer than one run; an existing one decides for itself.
    dashboard = False if address == "local" else None
    try:
        if ":" in address:
            # Ray would try for minutes.
            host, _, port = address.rpartition("/")[2].rpartition(":")
            socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
        ray.init(address, include_dashboard=dashboard, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError, RayError) as error:
        raise TidesError(f"--address {address}: no Ray cluster could be reached ({error})") from error
    try:
        # Ray tells on stdout which workers were lost; that belongs to the notices, not to the result.
        with redirect_stdout(sys.stderr):
            yield
    finally:
        ray.shutdown()


class _Run:
    """One call of `Cluster.run`."""

    def __init__(self, cluster: Cluster, jobs: Mapping[str, Job[Any]], deadline: float, post: Post) -> None:
        self._cluster, self._deadline, self._post = cluster, deadline, post
        self._unsent = list(jobs.items())
        self._waiting: dict[Any, str] = {}
        self._withdrawn: set[str] = set()
        self._fractions: dict[str, float] = {}
        self._looked = -math.inf
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        board: Any = ray.remote(_ProgressBoard)
        self._board = board.options(num_cpus=0, max_restarts=-1, scheduling_strategy=here).remote()
        task: Any = ray.remote(_carry_out)
        self._task = task.options(
            num_cpus=cluster.cpus,
            num_gpus=cluster.gpus,
            max_retries=cluster.retries,
            retry_exceptions=False,
            scheduling_strategy="SPREAD",
        )

    def results(self) -> Iterator[tuple[str, Any]]:
        defects: list[RayTaskError] = []
        try:
            while True:
                if time.perf_counter() >= self._deadline:
                    self._withdraw()
                self._send()
                if not self._waiting:
                    break
                ready, _ = ray.wait(list(self._waiting), num_returns=1, timeout=_PULSE)
                for reference in ready:
                    name = self._waiting.pop(reference)
                    try:
                        answer = ray.get(reference)
                    except RayTaskError as error:
                        defects.append(error)
                        continue
                    except RayError as error:
                        if name in self._withdrawn:
                            continue
                        answer = self._given_up(error)
                    yield name, answer
                self._look()
        finally:
            # Where the connection itself is lost, there is nothing to end any more.
            with suppress(RayError):
                for reference in self._waiting:
                    _cancel(reference)
                ray.kill(self._board)
        if defects:
            raise defects[0]

    def _send(self) -> None:
        room = len(self._unsent) if self._cluster.at_once is None else self._cluster.at_once - len(self._waiting)
        for name, job in self._unsent[: max(0, room)]:
            reference = self._task.remote(name, job, max(1, int(self._cluster.cpus)), _environment(), self._board)
            self._waiting[reference] = name
        del self._unsent[: max(0, room)]

    def _withdraw(self) -> None:
        """Cancel jobs that have not begun. One that begins at this very moment is stopped and counts as not begun."""
        self._deadline = math.inf
        self._unsent.clear()
        self._look(now=True)
        for reference, name in self._waiting.items():
            if name not in self._fractions:
                self._withdrawn.add(name)
                _cancel(reference)

    def _look(self, *, now: bool = False) -> None:
        if not now and time.perf_counter() - self._looked < _PULSE:
            return
        self._looked = time.perf_counter()
        posted: dict[str, float] = {}
        with suppress(GetTimeoutError, RayActorError):
            posted = ray.get(self._board.read.remote(), timeout=_PATIENCE)
        for name, fraction in posted.items():
            if self._fractions.get(name) != fraction:
                self._fractions[name] = fraction
                self._post(name, fraction)

    def _given_up(self, error: RayError) -> Failure:
        times = self._cluster.retries + 1
        return Failure(
            f"its worker was lost {times} times, at last by {type(error).__name__}; run it again to continue"
        )


def _cancel(reference: Any) -> None:
    # By force, which ends the worker: one that is interrupted while it imports would be used again, half imported.
    ray.cancel(reference, force=True)


class _ProgressBoard:
    """An actor beside the run, to which workers report the fraction done."""

    def __init__(self) -> None:
        self._fractions: dict[str, float] = {}

    def post(self, name: str, fraction: float) -> None:
        self._fractions[name] = fraction

    def read(self) -> dict[str, float]:
        return self._fractions


def _carry_out(name: str, job: Job[Any], threads: int, environment: dict[str, str], board: Any) -> Any:
    """The task, in a worker process of some node."""
    import torch

    os.environ.update(environment)
    torch.set_num_threads(threads)
    return attempt(job, _reporter(name, board))


def _reporter(name: str, board: Any) -> Progress:
    last = -math.inf

    def progress(fraction: float) -> None:
        nonlocal last
        if time.perf_counter() - last >= _PULSE:
            last = time.perf_counter()
            # Not awaited: a waiting task lends its processors to another one.
            board.post.remote(name, fraction)

    progress(0.0)
    return progress


def _environment() -> dict[str, str]:
    """The environment that local processes would inherit. Unset variables keep the value of the node."""
    found = {}
    if "TIDES_DATA" in os.environ:
        found["TIDES_DATA"] = str(Path(os.environ["TIDES_DATA"]).absolute())
    return found
