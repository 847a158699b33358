"""Graphs that are replayed on one stream: made on one other, in one pool, which stays."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed (extra `gpu`)")
from tides.kernels.triton import graphs


class Stream:
    """Stands for a stream."""

    cuda_stream = 7

    def __init__(self, priority: int) -> None:
        pass


class Graph:
    """Stands for a graph; remembers its pool, and whether it was finished."""

    def __init__(self) -> None:
        self.begun: Any = None
        self.ended = False

    def capture_begin(self, pool: Any, capture_error_mode: str) -> None:
        self.begun = (pool, capture_error_mode)

    def capture_end(self) -> None:
        self.ended = True

    def pool(self) -> int:
        return id(self)


@pytest.fixture
def side(monkeypatch: pytest.MonkeyPatch) -> graphs.SideStream:
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    return graphs.SideStream()


def test_graphs_of_a_stream_share_the_pool_of_the_first(side: graphs.SideStream) -> None:
    streams = list[int]()
    first, second, third = (side.capture(streams.append) for _ in range(3))
    assert streams == [7, 7, 7]
    assert first.begun == (None, "thread_local")  # type: ignore[attr-defined]
    assert all(graph.begun == (id(first), "thread_local") for graph in (second, third))  # type: ignore[attr-defined]


def test_a_launch_that_fails_ends_its_graph(side: graphs.SideStream, monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[Graph]()
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: made.append(Graph()) or made[-1])

    def fail(stream: int) -> None:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        side.capture(fail)
    assert made[0].ended
    assert side.capture(lambda stream: None).begun == (None, "thread_local"), "what failed has no pool to share"


def test_every_stream_has_a_side_of_its_own(side: graphs.SideStream) -> None:
    graphs.side_stream.cache_clear()
    try:
        assert graphs.side_stream(0, 5) is graphs.side_stream(0, 5)
        assert graphs.side_stream(0, 5) is not graphs.side_stream(0, 6)
        assert graphs.side_stream(0, 5) is not graphs.side_stream(1, 5)
    finally:
        graphs.side_stream.cache_clear()
