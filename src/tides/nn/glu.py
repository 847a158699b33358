"""Gated linear units: the residual block of deep projectors and encoders, and the block's feed-forward part."""

import torch
from torch import Tensor, nn

from tides.errors import ConfigError
from tides.functional.heads import GLUWeights
from tides.functional.tail import TailWeights
from tides.kernels.rows import row_map
from tides.nn.lookup import held

_LINEAR = nn.Linear.forward


def is_linear(layer: nn.Module | None) -> bool:
    """Whether a layer is just a linear map, so that its tensors describe it completely."""
    kind = type(layer)
    return kind in (nn.Linear, RowLinear) or getattr(kind, "forward", None) is _LINEAR


def linear_tensors(layer: nn.Module) -> tuple[Tensor, Tensor]:
    """Weight and bias of a layer that is never called; any other layer in its place is refused."""
    if not is_linear(layer):
        kind = f"{type(layer).__module__}.{type(layer).__name__}"
        raise ConfigError(f"model: found {kind} in place of a layer whose weights are used directly; wanted nn.Linear")
    return held(layer, "weight"), held(layer, "bias")


class RowLinear(nn.Linear):
    """A linear map of many rows with few channels."""

    def forward(self, x: Tensor) -> Tensor:
        return row_map(x, self.weight, self.bias)


class ResidualGLU(nn.Module):
    """x ← x + (W1 x + b1) ⊙ σ(W2 x + b2) at constant width (paper §3, "Deep projectors")."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.value = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)

    def weights(self) -> GLUWeights:
        return GLUWeights(*linear_tensors(self.value), *linear_tensors(self.gate))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x + self.value(x) * torch.sigmoid(self.gate(x))
        return result


class FeedForwardGLU(nn.Module):
    """GLU(x) = W3((W1 x + b1) ⊙ σ(W2 x + b2)) + b3 with inner width expand·H, rounded, at least 1.

    expand = 0 means no hidden units at all, so that only b3 is left: the release ran two datasets that way.
    """

    def __init__(self, width: int, expand: float) -> None:
        super().__init__()
        inner = max(1, round(expand * width)) if expand else 0
        self.value = nn.Linear(width, inner) if inner else None
        self.gate = nn.Linear(width, inner) if inner else None
        self.out = nn.Linear(inner, width) if inner else None
        self.bias = None if inner else nn.Parameter(torch.zeros(width))

    def weights(self) -> TailWeights | None:
        """The tensors in the form `kernels` take them.

        None if there are no hidden units, or if a layer was replaced by more than a linear map; `forward` then calls
        it.
        """
        layers = [held(self, name) for name in ("value", "gate", "out")]
        if not all(map(is_linear, layers)):
            return None
        return TailWeights(*[held(layer, name) for layer in layers for name in ("weight", "bias")])

    def forward(self, x: Tensor) -> Tensor:
        if self.value is None or self.gate is None or self.out is None:
            return self.bias.expand_as(x)  # type: ignore[union-attr]
        result: Tensor = self.out(self.value(x) * torch.sigmoid(self.gate(x)))
        return result
