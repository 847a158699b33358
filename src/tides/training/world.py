"""`World`: the processes that train one model together. A process on its own is a world too, and needs no library."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tides.errors import BackendUnavailable, ConfigError

T = TypeVar("T")


class StepLoss(NamedTuple):
    """The loss of one step: this process's share of the sum, and sum and weight over all processes."""

    own: Tensor
    total: Tensor
    weight: Tensor


class World:
    """One process: its share is everything, and its sums are complete.

    The training loop asks these questions at every step; `Processes` answers them for several processes.
    """

    rank, size = 0, 1

    @property
    def is_first(self) -> bool:
        """The first process writes files and shows progress."""
        return self.rank == 0

    def place(self, model: nn.Module) -> torch.device:
        """Put the model where this process works."""
        return next(model.parameters()).device

    def agree(self, identity: Mapping[str, Any]) -> None:
        """Raise unless all processes carry out the same run."""

    def copy(self, model: nn.Module) -> None:
        """Give all processes the first one's weights."""

    def from_first(self, make: Callable[[], T]) -> T:
        """The result of the first process, or the error it met."""
        return make()

    def joint(self, model: nn.Module) -> AbstractContextManager[None]:
        """A context in which batch norms see the steps of all processes."""
        return nullcontext()

    def begin_step(self, seed: int, step: int) -> None:
        """Prepare the random numbers of a step."""

    def part(self, members: list[int], lengths: NDArray[np.int64]) -> list[int]:
        """The series of a batch that this process works on."""
        return members

    def loss(self, total: Tensor, weight: Tensor) -> StepLoss:
        """The loss over all processes."""
        return StepLoss(total, total.detach(), weight.detach())

    def sum_gradients(self, model: nn.Module) -> None:
        """Replace every gradient with its sum over the processes."""

    def turns(self, items: Sequence[T]) -> Sequence[T]:
        """The items that this process handles."""
        return items

    def in_turn(self, results: list[T]) -> list[T]:
        """The results of all processes' `turns`, in the order of the items."""
        return results

    def wait(self) -> None:
        """Wait until all processes are here."""


def join_world(device: torch.device) -> World:
    """The world that torchrun started this process in, or one of its own."""
    if not is_shared():
        return World()
    from tides.training.processes import Processes

    return Processes(device)


def is_shared() -> bool:
    """Whether torchrun started this process as one of several."""
    return (
        torch.distributed.is_available() and torch.distributed.is_torchelastic_launched() and _number("WORLD_SIZE") > 1
    )


def is_first_process() -> bool:
    """Whether this process should write the common results: false only in the later processes of torchrun."""
    return not is_shared() or _number("RANK") == 0


def check_device(device: str) -> None:
    """Refuse a device that torch does not know or this machine does not have, before any work is done."""
    try:
        wanted = torch.device(device)
    except RuntimeError:
        raise ConfigError(f"device: found {device!r}, wanted cpu, cuda, cuda:1, ...") from None
    if wanted.type == "cuda" and (wanted.index or 0) >= torch.cuda.device_count():
        raise BackendUnavailable(f"device: found {device!r}, but torch sees {torch.cuda.device_count()} CUDA devices")


def local_device(device: str) -> str:
    """For `cuda` under torchrun, the GPU that it assigned to this process; else the device itself."""
    return f"cuda:{_number('LOCAL_RANK')}" if device == "cuda" and is_shared() else device


def _number(name: str) -> int:
    return int(os.environ.get(name, "0"))
