"""A population's work on the device: steps, validation and best weights, all on static tensors."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tides.functional.products import RowProducts
from tides.training.config import TrainConfig
from tides.training.groups import parameter_groups
from tides.training.order import epoch_batches
from tides.training.replay import Replay
from tides.training.resident import Resident
from tides.training.stacked_adam import StackedAdam
from tides.training.stacked_loss import StackedLoss
from tides.training.tasks import Task
from tides.training.tracks import Track

# Series of one member that are scored at once; nothing but memory depends on it.
SCORED_AT_ONCE = 512


class PopulationSteps:
    """Everything that happens without the host: it asks for epochs and reads a few numbers after each."""

    def __init__(
        self,
        models: Sequence[nn.Module],
        task: Task,
        train: Resident,
        val: Resident,
        config: TrainConfig,
        seeds: Sequence[int],
        track: Track,
        *,
        graphs: bool,
    ) -> None:
        self.train, self.val, self.config, self.seeds = train, val, config, list(seeds)
        self._loss = StackedLoss(models, task)
        self.stack = self._loss.stack
        m, device = self.stack.members, self.stack.weights.device
        self.series = min(train.counts)
        self._full, self._rest = divmod(self.series, config.batch_size)
        self.per_epoch = self._full + (self._rest > 0)
        groups = parameter_groups(models[0], config)
        lr = self.stack.columns({name: group.lr for group in groups for name in group.names})
        decay = self.stack.columns({name: group.weight_decay for group in groups for name in group.names})
        self.optimiser = StackedAdam(self.stack.weights, lr, decay, config, self.per_epoch)

        def numbers() -> Tensor:
            return torch.zeros(m, dtype=torch.float64, device=device)

        self.active = torch.ones(m, dtype=torch.bool, device=device)
        self.first_loss = torch.full_like(numbers(), torch.nan)
        self.best = self.stack.weights.clone()
        self.best_buffers = {name: tensor.clone() for name, tensor in self.stack.buffers.items()}
        self._sums = {name: numbers() for name in ("total", "weight", "norm", "val_total", "val_weight")}
        self._cursor = torch.zeros((), dtype=torch.int64, device=device)
        self._order = {
            "step": torch.zeros(m, self.series, dtype=torch.int64, device=device),
            "score": torch.arange(val.rows, device=device).expand(m, -1).contiguous(),
        }
        self._replays: dict[tuple[str, int], Replay] = {}
        self._track, self.captured = track, graphs and device.type == "cuda"

    def queue_epoch(self, epoch: int) -> Iterator[None]:
        """All steps of one epoch and the scoring of the validation data, with a pause after each.

        On a GPU nothing here waits for them.
        """
        order = torch.from_numpy(np.stack([self._permutation(member, epoch) for member in range(self.stack.members)]))
        self._order["step"].copy_(order)
        self._cursor.zero_()
        for sums in self._sums.values():
            sums.zero_()
        self._loss.train(True)
        for _ in range(self._full):
            self._replay("step", self.config.batch_size)
            yield
        if self._rest:
            self._replay("step", self._rest)
            yield
        self._cursor.zero_()
        self._loss.train(False)
        chunks = -(-self.val.rows // SCORED_AT_ONCE)
        size = -(-self.val.rows // chunks)
        for begin in range(0, self.val.rows, size):
            self._replay("score", min(size, self.val.rows - begin))
            yield

    def numbers(self) -> dict[str, list[float]]:
        """The epoch's numbers by name, one per member. Reading them is the only wait of an epoch."""
        s = self._sums
        found = torch.stack(
            [
                s["total"] / torch.where(s["weight"] > 0, s["weight"], 1),
                s["norm"],
                s["val_total"] / s["val_weight"],
                s["weight"],
                s["val_weight"],
                self.active.double(),
            ]
        ).tolist()
        names = ("train_loss", "gradient_norm", "val_loss", "weight", "val_weight", "active")
        return dict(zip(names, found, strict=True))

    @torch.no_grad()
    def keep(self, better: Sequence[bool], running: Sequence[bool]) -> None:
        """Members that are `better` keep their present state as their best; those not `running` are frozen."""
        device = self.active.device
        chosen = torch.tensor(better, device=device)
        pairs = [(self.best, self.stack.weights)]
        pairs += [(self.best_buffers[name], tensor) for name, tensor in self.stack.buffers.items()]
        for kept, now in pairs:
            kept.copy_(torch.where(chosen.view(-1, *[1] * (now.ndim - 1)), now, kept))
        self.active &= torch.tensor(running, device=device)

    def best_of(self, member: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The best weights (n,) and buffers of a member, as `Stack.copy_to` takes them."""
        return self.best[member], {name: x[member] for name, x in self.best_buffers.items()}

    @torch.no_grad()
    def dismiss_others(self, members: Sequence[int]) -> None:
        """Go on with these members alone, so that the others cost nothing any more."""
        rows = torch.tensor(members, device=self.active.device)
        self.train.keep(members)
        self.val.keep(members)
        self.seeds = [self.seeds[member] for member in members]
        self.stack.keep(rows)
        self.optimiser.keep(self.stack.weights, rows)
        self.active, self.first_loss, self.best = self.active[rows], self.first_loss[rows], self.best[rows]
        self.best_buffers = {name: tensor[rows] for name, tensor in self.best_buffers.items()}
        self._sums = {name: tensor[rows] for name, tensor in self._sums.items()}
        self._order = {name: tensor[rows] for name, tensor in self._order.items()}
        self._replays.clear()

    def state(self) -> dict[str, Tensor]:
        """All tensors that a run needs to continue, by name."""
        own = {"weights": self.stack.weights, "best": self.best, "active": self.active, "first_loss": self.first_loss}
        own |= {f"optimiser/{name}": tensor for name, tensor in self.optimiser.state().items()}
        own |= {f"buffers/{name}": tensor for name, tensor in self.stack.buffers.items()}
        return own | {f"best_buffers/{name}": tensor for name, tensor in self.best_buffers.items()}

    def _permutation(self, member: int, epoch: int) -> Any:
        config = self.config.replace(seed=self.seeds[member])
        batches = epoch_batches(np.zeros(self.train.counts[member], np.int64), config, epoch)
        return np.concatenate(batches)[: self.series]

    def _replay(self, kind: str, size: int) -> None:
        """Do a step on, or score, the next `size` series of every member in the present order."""
        if (kind, size) not in self._replays:
            order, offsets = self._order[kind], torch.arange(size, device=self.active.device)

            def work() -> None:
                index = order.index_select(1, self._cursor + offsets)
                with RowProducts() if order.is_cuda else nullcontext():
                    self._step(index) if kind == "step" else self._score(index)
                self._cursor.add_(size)

            changed = [*self.state().values(), self.stack.memory, *self._sums.values(), self._cursor]
            self._replays[kind, size] = Replay(work, changed, self._track, captured=self.captured)
        self._replays[kind, size]()

    def _step(self, index: Tensor) -> None:
        total, weight = self._loss(self.train, index)
        loss = total / torch.where(weight > 0, weight, 1)
        # Losses of different members are added: their gradients do not mix, not even where one is NaN.
        gradient = self.stack.gradient(loss.sum())
        with torch.no_grad():
            norm = torch.linalg.vector_norm(gradient, dim=1)
            value = loss.double()
            unknown = self.first_loss.isnan()
            self.first_loss.copy_(torch.where(unknown & (weight > 0), value, self.first_loss))
            limit = self.config.explosion * (self.first_loss.nan_to_num().abs() + 1)
            self.active &= torch.isfinite(value) & torch.isfinite(norm) & (value <= limit)
            self.optimiser.update(gradient, norm, self.active)
            self.stack.publish()
            self._sums["total"].add_(total)
            self._sums["weight"].add_(weight)
            self._sums["norm"].copy_(torch.maximum(self._sums["norm"], norm))

    @torch.no_grad()
    def _score(self, index: Tensor) -> None:
        total, weight = self._loss(self.val, index)
        self._sums["val_total"].add_(total)
        self._sums["val_weight"].add_(weight)
