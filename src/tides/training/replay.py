"""Work that is repeated many times with the same shapes: called directly, or on a GPU captured once and replayed."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tides.training.tracks import Track


class Replay:
    """A function of no arguments that reads and writes static tensors; calling this object does its work once.

    With `captured` its launches become a CUDA graph at the first call. Capturing needs a few runs beforehand (libraries
    choose algorithms, kernels are compiled), so `state`, all that the work changes, and the track's random numbers are
    put back after each of them.
    """

    def __init__(self, work: Callable[[], None], state: Sequence[Tensor], track: Track, *, captured: bool) -> None:
        self._work, self._state, self._track = work, list(state), track
        self._run = None if captured else work

    def __call__(self) -> None:
        if self._run is None:
            before = [tensor.clone() for tensor in self._state]
            random = self._track.random_state()

            @torch.no_grad()
            def undo() -> None:
                for tensor, value in zip(self._state, before, strict=True):
                    tensor.copy_(value)

            self._run = self._track.prepare(self._work, undo)
            self._track.set_random_state(random)
        self._run()
