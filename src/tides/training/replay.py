"""Work that is repeated many times with the same shapes: called, or on a GPU captured once and replayed."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

_WARM_UP = 2


class Replay:
    """A function of no arguments that reads and writes static tensors; calling this object does its work once.

    With `graphs` on a CUDA device its launches are captured in a CUDA graph at the first call. Capturing needs a few
    runs beforehand (libraries choose algorithms, kernels are compiled), so `state`, all that the work changes, is put
    back after each of them. Graphs made with the same `pool` share their memory; they must run one after another.
    """

    def __init__(
        self,
        work: Callable[[], None],
        state: Sequence[Tensor],
        device: torch.device,
        *,
        graphs: bool = True,
        pool: object | None = None,
    ) -> None:
        self._work, self._state, self._device, self._pool = work, list(state), device, pool
        self._graphs = graphs and device.type == "cuda"
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if not self._graphs:
            self._work()
            return
        if self._graph is None:
            self._graph = self._capture()
        self._graph.replay()

    def _capture(self) -> torch.cuda.CUDAGraph:
        before = [tensor.clone() for tensor in self._state]
        random = torch.cuda.get_rng_state(self._device)
        aside = torch.cuda.Stream(self._device)
        aside.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UP):
                self._work()
                with torch.no_grad():
                    for tensor, value in zip(self._state, before, strict=True):
                        tensor.copy_(value)
        torch.cuda.current_stream(self._device).wait_stream(aside)
        torch.cuda.synchronize(self._device)
        torch.cuda.set_rng_state(random, self._device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):  # type: ignore[arg-type]
            self._work()
        return graph
