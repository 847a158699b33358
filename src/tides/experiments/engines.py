"""Where jobs run: in this process or in several on this machine; `tides.experiments.cluster` sends them to others.

A job is a picklable function that takes a progress function and returns its result. An engine starts jobs until the
deadline and hands over each result as soon as it is there. It knows neither cells nor records.
"""

import math
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tides.errors import TidesError
from tides.turns import Turns

T = TypeVar("T")

# Seconds between two reports of a worker, and between two looks at whether a worker has ended.
_PULSE, _REST = 0.1, 0.02

Progress = Callable[[float], None]
"""To be called now and then with the fraction of the work that is done."""

Job = Callable[[Progress], T]

Post = Callable[[str, float], None]
"""Called with the name of a job and the fraction of it that is done."""


@dataclass(frozen=True)
class Failure:
    """The reason why there is no result, in its place."""

    message: str


Answers = Generator[tuple[str, T | Failure], None, None]
"""Results by the name of their job. Closing it ends the jobs that are at work."""


class Engine(Protocol):
    """Runs jobs. Every started job ends once, as a result or as a failure."""

    @property
    def shares_files(self) -> bool:
        """Whether jobs see the files of this machine under the same paths."""

    def run(
        self, jobs: Mapping[str, Job[T]], *, deadline: float = math.inf, post: Post = lambda name, fraction: None
    ) -> Answers[T]:
        """Results in the order in which they finish; jobs left unstarted at the deadline are missing.

        `deadline` is a time of `time.perf_counter`. A `TidesError` of a job becomes its failure. Any other exception is
        a bug and is raised; engines that run jobs at the same time raise it after all of them have ended.
        """


def attempt(job: Job[T], progress: Progress) -> T | Failure:
    """The job's result, or its `TidesError` as a failure."""
    try:
        return job(progress)
    except TidesError as error:
        return Failure(str(error))


@dataclass(frozen=True)
class Processes:
    """Jobs on this machine; a single worker is this process itself."""

    workers: int = 1
    shares_files: bool = True

    def run(
        self, jobs: Mapping[str, Job[T]], *, deadline: float = math.inf, post: Post = lambda name, fraction: None
    ) -> Answers[T]:
        count = min(self.workers, len(jobs))
        return _run_here(jobs, deadline, post) if count < 2 else _run_beside(jobs, count, deadline, post)


@dataclass(frozen=True)
class Streams:
    """Jobs in this process that take turns: on a GPU, each keeps a stream busy during the others' turns."""

    at_once: int
    shares_files: bool = True

    def run(
        self, jobs: Mapping[str, Job[T]], *, deadline: float = math.inf, post: Post = lambda name, fraction: None
    ) -> Answers[T]:
        waiting = iter(jobs.items())
        at_work: dict[str, Turns[T]] = {}
        begun: set[str] = set()
        defects: list[Exception] = []
        while True:
            while len(at_work) < self.at_once and time.perf_counter() < deadline:
                name, job = next(waiting, (None, None))
                if name is None:
                    break
                at_work[name] = job.turns(lambda fraction, name=name: post(name, fraction))  # type: ignore[union-attr]
            if not at_work:
                break
            for name in list(at_work):
                try:
                    # A turn that is the first cannot be told anything.
                    at_work[name].send(len(at_work) if name in begun else None)
                    begun.add(name)
                except StopIteration as end:
                    del at_work[name]
                    yield name, end.value
                except TidesError as error:
                    del at_work[name]
                    yield name, Failure(str(error))
                except Exception as error:
                    del at_work[name]
                    defects.append(error)
        if defects:
            raise defects[0]


def _run_here(jobs: Mapping[str, Job[T]], deadline: float, post: Post) -> Answers[T]:
    for name, job in jobs.items():
        if time.perf_counter() >= deadline:
            return
        yield name, attempt(job, lambda fraction, name=name: post(name, fraction))  # type: ignore[misc]


def _run_beside(jobs: Mapping[str, Job[T]], workers: int, deadline: float, post: Post) -> Answers[T]:
    # Spawned, not forked: torch's thread pools do not survive a fork.
    spawn = multiprocessing.get_context("spawn")
    threads = max(1, available_cpus() // workers)
    unsent = deque(jobs.items())
    defects: list[BaseException] = []
    # A worker that is killed takes its pool along; the jobs that had not begun go to another one.
    while unsent and time.perf_counter() < deadline:
        messages: Any = spawn.Queue()
        with ProcessPoolExecutor(workers, spawn, _enter_worker, (messages, threads)) as pool:
            try:
                yield from _run_in(pool, workers, unsent, messages, deadline, post, defects)
            except BaseException:
                # After an interruption, do not wait for jobs whose results nobody takes.
                for process in list(pool._processes.values()):
                    process.terminate()
                raise
    if defects:
        raise defects[0]


def _run_in(
    pool: ProcessPoolExecutor,
    workers: int,
    unsent: deque[tuple[str, Job[T]]],
    messages: Any,
    deadline: float,
    post: Post,
    defects: list[BaseException],
) -> Answers[T]:
    """Take jobs from `unsent` until it is empty, the deadline has passed or the pool is broken."""
    at_work: dict[Future[T | Failure], str] = {}
    broken = False
    while True:
        # No more than there are workers: what a pool holds back it starts in any case.
        while unsent and len(at_work) < workers and not broken and time.perf_counter() < deadline:
            name, job = unsent[0]
            try:
                at_work[pool.submit(_work, name, job)] = name
            except BrokenProcessPool:
                broken = True
            else:
                unsent.popleft()
        if not at_work:
            return
        with suppress(queue.Empty):
            post(*messages.get(timeout=_REST))
        for future in [future for future in at_work if future.done()]:
            name = at_work.pop(future)
            error = future.exception()
            if error is None:
                yield name, future.result()
            elif isinstance(error, BrokenProcessPool):
                broken = True
                yield (
                    name,
                    Failure("its worker, or one beside it, was killed (out of memory?); run it again to continue"),
                )
            else:
                defects.append(error)


# The queue through which a worker process reports; set once when the process starts.
_messages: Any = None


def _enter_worker(messages: Any, threads: int) -> None:
    _join_run(messages)
    import torch

    torch.set_num_threads(threads)


def _join_run(messages: Any) -> None:
    """Initialise a new worker process of a run."""
    global _messages
    _messages = messages
    # A worker that ends does not wait until somebody has read what it reported.
    messages.cancel_join_thread()
    # Ctrl-C reaches all processes; workers ignore it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker when the run is killed: nobody waits for results, and a new run finds the stacks free."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(name: str, job: Job[T]) -> T | Failure:
    reported = -math.inf

    def progress(fraction: float) -> None:
        nonlocal reported
        # Not at every step: a run that is busy with other things would be left with more reports than it can hold.
        if time.perf_counter() - reported >= _PULSE:
            reported = time.perf_counter()
            _messages.put((name, fraction))

    return attempt(job, progress)


def available_cpus() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
