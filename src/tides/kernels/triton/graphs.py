"""CUDA graphs of launches that are repeated."""

from collections.abc import Callable
from functools import cache

import torch


class SideStream:
    """A stream beside another one, on which the graphs that are replayed there are made.

    The graphs hold addresses, and own no memory but cuBLAS's workspace. torch allocates that one for every stream and
    thread at its first product, here while a graph is made, and keeps it: in the pool of the first graph, which stays
    and which the others share. What is replayed on one stream never runs at the same time, so one workspace serves all.
    """

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream(priority=-1)
        self._first: torch.cuda.CUDAGraph | None = None

    def capture(self, launch: Callable[[int], None]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):
            pool = None if self._first is None else self._first.pool()
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                launch(self._stream.cuda_stream)
            finally:
                graph.capture_end()
        self._first = self._first or graph
        return graph


@cache
def side_stream(device: int, stream: int) -> SideStream:
    """That of the current device's current stream, which has this address."""
    return SideStream()
