"""Work spread over processes: results in the order they finish, one clear error, nothing left running."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from tides.data.counts import require_whole
from tides.errors import TidesError

Task = TypeVar("Task")
Result = TypeVar("Result")
_IN_LINE = 4


def available_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_tasks(function: Callable[[Task], Result], tasks: Iterable[Task], workers: int) -> Iterator[tuple[Task, Result]]:
    """`function` of every task, in this process for one worker, else in `workers` fresh ones.

    `function` and the tasks travel by pickle, so the function stands at the top level of a module. Tasks are
    drawn when a worker is about to be free, so they may depend on earlier results.
    """
    require_whole("workers", workers, 1)
    if workers == 1:
        for task in tasks:
            yield task, function(task)
        return
    # Fresh processes: a fork of one that runs torch or numba threads may hang.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context)
    pending: dict[Future[Result], Task] = {}
    queue = iter(tasks)
    try:
        exhausted = False
        while pending or not exhausted:
            # A few tasks wait in line, so that no worker idles while this process prepares the next ones.
            while not exhausted and len(pending) < _IN_LINE * workers:
                try:
                    task = next(queue)
                except StopIteration:
                    exhausted = True
                else:
                    pending[pool.submit(function, task)] = task
            finished, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in finished:
                yield pending.pop(future), future.result()
    except BrokenProcessPool:
        raise TidesError("a worker process died (out of memory?); run again to continue") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
