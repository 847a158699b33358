"""What neural CDEs share: the vector field, its configuration, and Heun's method along a driven path."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from tides.baselines.config import ClassificationConfig


@dataclass(frozen=True, kw_only=True)
class CDEConfig(ClassificationConfig):
    """Sizes of a neural CDE. Without a time channel the model sees the order of the points and no durations."""

    hidden_size: int = 64
    field_depth: int = 3
    """Hidden layers of the vector field."""
    field_width: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("hidden_size", "field_depth", "field_width")


class Field(nn.Module):
    """The layers of a vector field: `depth` hidden ones of one width, then a linear map to `outputs`."""

    def __init__(self, inputs: int, width: int, depth: int, outputs: int) -> None:
        super().__init__()
        sizes = [inputs, *[width] * depth]
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.out = nn.Linear(width, outputs)

    def forward(self, h: Tensor) -> Tensor:
        """tanh(W ReLU(… h)), (b, outputs)."""
        for layer in self.hidden:
            h = torch.relu(layer(h))
        return torch.tanh(self.out(h))


def heun(h: Tensor, slope: Callable[[Tensor, Tensor], Tensor], controls: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """The state after all intervals of length one, one step of Heun's method in each:

    h ← h + ½(k₁ + k₂),   k₁ = slope(h, control at the beginning),   k₂ = slope(h + k₁, control at the end)
    """
    for begin, end in controls:
        first = slope(h, begin)
        h = h + (first + slope(h + first, end)) / 2
    return h


class AddedPenalty(torch.autograd.Function):
    """The identity, whose gradient is as if strength · mean_rows(‖row‖₂) had been added to the loss."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, strength: float) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.strength = strength
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (weight,) = ctx.saved_tensors
        rows = weight if weight.ndim > 1 else weight.unsqueeze(-1)
        norms = rows.norm(dim=-1, keepdim=True)
        unit = (rows / norms.masked_fill(norms <= 0, 1)).masked_fill(norms <= 0, 0)
        return gradient + ctx.strength / len(rows) * unit.view_as(weight), None
