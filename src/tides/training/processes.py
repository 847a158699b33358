"""`Processes`: a world of several, on one machine or many. Accelerate finds the device and opens the connection."""

import atexit
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from itertools import zip_longest
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tides.errors import ConfigError, TidesError
from tides.nn.norm import joint_statistics
from tides.training.checkpoint import difference
from tides.training.order import shares
from tides.training.world import StepLoss, World

T = TypeVar("T")

# How long a process waits for the others before it gives up.
PATIENCE = timedelta(minutes=10)
_ABSENT = object()
_BLIND = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class Processes(World):
    """All processes hold the same model and data; each works on its share of every batch, and sums are exchanged.

    Three exchanges carry a step: moments in every batch norm, (loss, weight), and all gradients at once. If a small
    batch leaves nothing for a process, it works on a series that others work on too, and counts for nothing: exchanges
    need every process.
    """

    def __init__(self, device: torch.device) -> None:
        try:
            from accelerate import PartialState
            from accelerate.utils import broadcast_object_list, gather_object, reduce
        except ImportError as error:
            raise ConfigError(
                "torchrun: several processes need Accelerate; pip install 'tides-ssm[distributed]'"
            ) from error
        self._broadcast, self._gather, self._reduce = broadcast_object_list, gather_object, reduce
        ours = not torch.distributed.is_initialized()
        self._state = PartialState(cpu=device.type == "cpu", timeout=PATIENCE)
        if ours:
            # Whoever opens the connection closes it: its threads do not survive the end of Python, and torchrun would
            # take that for a failure.
            atexit.register(self._state.destroy_process_group)
        self.rank, self.size = self._state.process_index, self._state.num_processes
        if self._state.device.type != device.type:
            raise ConfigError(
                f"model: found device {device}, but these processes work on {self._state.device.type}; "
                "keep one kind of device throughout"
            )
        self._silent = False
        self._trained: list[bool] | None = None

    def place(self, model: nn.Module) -> torch.device:
        for name, module in model.named_modules():
            if isinstance(module, _BLIND):
                raise ConfigError(
                    f"model: {name} is a {type(module).__name__}, which would see one process's part of a batch; "
                    "use tides.nn.norm.MaskedBatchNorm"
                )
        if self._state.device.type != "cpu":
            model.to(self._state.device)
        return next(model.parameters()).device

    def agree(self, identity: Mapping[str, Any]) -> None:
        first, *others = self._all(dict(identity))
        for rank, other in enumerate(others, 1):
            differs = difference(first, other)
            if differs is not None:
                part, ours, theirs = differs
                raise ConfigError(f"{part}: process 0 has {ours!r}, process {rank} has {theirs!r}; wanted one run")

    def copy(self, model: nn.Module) -> None:
        model.load_state_dict(self.from_first(lambda: {name: x.cpu() for name, x in model.state_dict().items()}))

    def from_first(self, make: Callable[[], T]) -> T:
        outcome: list[Any] = [None, None]
        if self.is_first:
            try:
                outcome[0] = make()
            except TidesError as error:
                outcome[1] = error
        with self._reaching():
            made, failure = self._broadcast(outcome)
        if failure is not None:
            raise failure
        return made  # type: ignore[no-any-return]

    def joint(self, model: nn.Module) -> AbstractContextManager[None]:
        def gather(row: Tensor) -> Tensor:
            rows: Tensor = _Rows.apply(self, row)  # type: ignore[no-untyped-call]
            return rows

        return joint_statistics(model, gather)

    def begin_step(self, seed: int, step: int) -> None:
        # A function of the step, so that there is no state of every process to be stored.
        torch.manual_seed(int(np.random.SeedSequence((seed, step, self.rank)).generate_state(1)[0]))

    def part(self, members: list[int], lengths: NDArray[np.int64]) -> list[int]:
        own = shares(lengths[members], self.size)[self.rank]
        self._silent = not own
        return [members[i] for i in own] or [min(members, key=lambda i: lengths[i])]

    def loss(self, total: Tensor, weight: Tensor) -> StepLoss:
        if self._silent:
            total, weight = total * 0, weight * 0
        everyone = self.sum(torch.stack([total.detach().double(), weight.detach().double()]))
        return StepLoss(total, everyone[0], everyone[1])

    def sum_gradients(self, model: nn.Module) -> None:
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        found = [parameter.grad is not None for parameter in parameters]
        if self._trained is None:
            self._trained = [any(flags) for flags in zip(*self._all(found), strict=True)]
        if any(here and not trained for here, trained in zip(found, self._trained, strict=True)):
            raise ConfigError("model: a parameter had no gradient in the first step and has one now")
        trained = [p for p, trained in zip(parameters, self._trained, strict=True) if trained]
        for parameter in trained:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in trained if parameter.grad is not None]
        sums = self.sum(torch.cat([gradient.flatten() for gradient in gradients]))
        for gradient, part in zip(gradients, sums.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def turns(self, items: Sequence[T]) -> Sequence[T]:
        return items[self.rank :: self.size]

    def in_turn(self, results: list[T]) -> list[T]:
        rounds = zip_longest(*self._all(results), fillvalue=_ABSENT)
        return [result for one_round in rounds for result in one_round if result is not _ABSENT]  # type: ignore[misc]

    def wait(self) -> None:
        self._all(None)

    def sum(self, x: Tensor) -> Tensor:
        """The sum of `x` over all processes, with the same bits everywhere; not differentiable."""
        with self._reaching():
            total: Tensor = self._reduce(x, "sum")
        return total

    def contribution(self, row: Tensor) -> Tensor:
        """`row`, or zeros if this process has nothing to contribute in this step."""
        return torch.zeros_like(row) if self._silent else row

    def _all(self, mine: T) -> list[T]:
        """The values of all processes, in order of rank."""
        with self._reaching():
            return list(self._gather([mine]))

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            reason = str(error).splitlines()[0].rpartition("] ")[2].partition(". ")[0]
            raise TidesError(
                f"process {self.rank} of {self.size} lost another one, which has failed or not answered for "
                f"{PATIENCE.total_seconds():g} s ({reason})"
            ) from error


class _Rows(torch.autograd.Function):
    """The rows of all processes, stacked. In the backward pass, the gradients of the stack are summed over processes
    and each takes its own row.
    """

    @staticmethod
    def forward(ctx: Any, world: Processes, row: Tensor) -> Tensor:
        ctx.world = world
        rows = row.new_zeros(world.size, len(row))
        rows[world.rank] = world.contribution(row)
        return world.sum(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        world = ctx.world
        return None, world.contribution(world.sum(gradients[0].contiguous())[world.rank])
