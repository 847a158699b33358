"""Tracks: where one of several models runs. On a CPU they take turns, on a GPU each has its own stream.

A track owns its random numbers, so that a model's result does not depend on the models beside it.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

# Libraries load, kernels are compiled and workspaces are allocated in these runs; capturing must meet none of that.
_WARM_UPS = 2
# Bytes; giving memory back takes time, which small models need not spend.
_IDLE = 2**31
# Seconds; short compared with a step, long compared with the check whether it is over.
_REST = 1e-4


class Track(Protocol):
    """Where a model runs."""

    @contextmanager
    def use(self) -> Iterator[None]:
        """A context in which everything happens on this track."""
        yield

    def prepare(self, work: Callable[[], None], undo: Callable[[], None] = lambda: None) -> Callable[[], None]:
        """`work` in the form in which this track runs it fastest.

        It may be run a few times during preparation; `undo` is called after each of these runs.
        """

    def busy(self) -> bool:
        """Whether something is still running here."""

    def restart(self) -> None:
        """Reset the random numbers to their beginning."""

    def random_state(self) -> Tensor:
        """The present state of the random numbers."""

    def set_random_state(self, state: Tensor) -> None:
        """Continue the random numbers from there; a state from another kind of device starts them again."""


def make_track(device: torch.device, seed: int) -> Track:
    """A track on this device with random numbers of its own."""
    return GPUTrack(device, seed) if device.type == "cuda" else CPUTrack(seed)


class CPUTrack:
    """Models take turns on the processor; whichever has its turn uses the global generator."""

    def __init__(self, seed: int) -> None:
        self._seed, self._in_use = seed, False
        self.restart()

    def busy(self) -> bool:
        return False

    def restart(self) -> None:
        self.set_random_state(torch.Generator().manual_seed(self._seed).get_state())

    def random_state(self) -> Tensor:
        return torch.get_rng_state() if self._in_use else self._random

    def set_random_state(self, state: Tensor) -> None:
        if state.shape != torch.get_rng_state().shape:
            return
        self._random = state
        if self._in_use:
            torch.set_rng_state(state)

    @contextmanager
    def use(self) -> Iterator[None]:
        lent = torch.get_rng_state()
        torch.set_rng_state(self._random)
        self._in_use = True
        try:
            yield
        finally:
            self._random, self._in_use = torch.get_rng_state(), False
            torch.set_rng_state(lent)

    def prepare(self, work: Callable[[], None], undo: Callable[[], None] = lambda: None) -> Callable[[], None]:
        return work


class GPUTrack:
    """A stream, and a state of the GPU's generator, for one model; its work is captured as CUDA graphs."""

    def __init__(self, device: torch.device, seed: int) -> None:
        self._seed, self._stream = seed, torch.cuda.Stream(device)
        index = torch.cuda.current_device() if device.index is None else device.index
        self._default = torch.cuda.default_generators[index]
        self._own = self._default.clone_state()
        # The graphs of a track run one after another, so that they may use the same memory for what they do not keep.
        self._memory = torch.cuda.graph_pool_handle()
        self.restart()

    def busy(self) -> bool:
        if self._stream.query():
            return False
        # Waiting polls; sleeping leaves the processor to others.
        time.sleep(_REST)
        return True

    def restart(self) -> None:
        self._own.manual_seed(self._seed)

    def random_state(self) -> Tensor:
        return self._own.get_state()

    def set_random_state(self, state: Tensor) -> None:
        if state.shape == self._own.get_state().shape:
            self._own.set_state(state)

    @contextmanager
    def use(self) -> Iterator[None]:
        # A graph draws from the state that the generator has while it is captured, for good. Graphs that run at the
        # same time must not share one.
        lent = self._default.graphsafe_get_state()
        self._default.graphsafe_set_state(self._own)
        try:
            with torch.cuda.stream(self._stream):
                yield
        finally:
            self._default.graphsafe_set_state(lent)

    def prepare(self, work: Callable[[], None], undo: Callable[[], None] = lambda: None) -> Callable[[], None]:
        with self.use():
            for _ in range(_WARM_UPS):
                work()
                undo()
            torch.cuda.synchronize()
            _return_idle_memory()
            graph = torch.cuda.CUDAGraph()
            # Not `torch.cuda.graph`, which collects garbage and empties the allocator's cache every time.
            graph.capture_begin(self._memory)
            try:
                work()
            finally:
                graph.capture_end()
        return graph.replay


def _return_idle_memory() -> None:
    """Give memory from warm-ups of a large model back: a graph has its own and cannot use it."""
    if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > _IDLE:
        torch.cuda.empty_cache()
