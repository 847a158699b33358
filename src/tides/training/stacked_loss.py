"""The losses of all members of a population, each on its own batch, as one call."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tides.data.batch import IrregularBatch
from tides.training.resident import Resident
from tides.training.stack import Stack
from tides.training.stacked_linear import StackedLinear
from tides.training.tasks import Task


class StackedLoss:
    """vmap over the model axis of a task's loss; what the models learn and remember lives in `stack`."""

    def __init__(self, models: Sequence[nn.Module], task: Task) -> None:
        self.stack = Stack(models)
        self._objective = _Objective(deepcopy(models[0]), task)

    def train(self, training: bool) -> None:
        """Training or evaluation mode, for all members."""
        self._objective.train(training)

    def __call__(self, data: Resident, index: Tensor) -> tuple[Tensor, Tensor]:
        """Loss sums (m,) and their weights (m,) on the series `index` (m, b); training updates running statistics."""

        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], fields: dict[str, Tensor]) -> Any:
            inner = {f"model.{name}": tensor for name, tensor in (parameters | buffers).items()}
            return functional_call(self._objective, inner, (fields,))

        stacked = torch.vmap(one, randomness="different")
        with StackedLinear():
            total, weight = stacked(self.stack.parameters, self.stack.buffers, data.gather(index))
        return total, weight


class _Objective(nn.Module):
    """A model's loss on a batch as one module call, so that every use of its parameters sees the given ones."""

    def __init__(self, model: nn.Module, task: Task) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(self, fields: dict[str, Any]) -> tuple[Tensor, Tensor]:
        batch = IrregularBatch(**fields)
        total, weight = self.task.loss(self.task.predict(self.model, batch), batch)
        return total, weight.to(total.dtype)
