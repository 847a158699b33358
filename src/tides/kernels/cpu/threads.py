"""Compiled loops on as many threads as torch uses: they release the interpreter lock, so plain threads suffice."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import TypeVar

import torch

Job = TypeVar("Job")


def run_jobs(work: Callable[[Job], object], jobs: Sequence[Job]) -> None:
    """`work(job)` for every job: here when there is one job or one thread, else on the pool."""
    workers = min(torch.get_num_threads(), len(jobs))
    if workers < 2:
        for job in jobs:
            work(job)
        return
    # Consumed, so that an exception in a worker is raised here.
    list(_pool(torch.get_num_threads()).map(work, jobs))


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor(workers, "tides", initializer=torch.set_num_threads, initargs=(1,))
    # Workers multiply matrices on one thread each. That setting is also what later threads start with: put it back.
    list(pool.map(lambda _: None, range(workers)))
    torch.set_num_threads(workers)
    return pool


def spans(total: int, parts: int) -> list[tuple[int, int]]:
    """[0, total) in at most `parts` nearly equal pieces, none of them empty."""
    parts = max(1, min(parts, total))
    edges = [total * part // parts for part in range(parts + 1)]
    return list(pairwise(edges))
