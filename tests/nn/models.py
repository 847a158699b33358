"""Small models for the tests, in float64 and away from their starting values."""

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tides.nn import Backbone, Forecaster, SequenceClassifier, TIDESConfig

VARIANTS = ("s5", "tides-lambda", "tides-bc", "tides", "tides-full", "mamba-s")
CHANNELS = 2
Model = TypeVar("Model", bound=nn.Module)


def small_config(**fields: Any) -> TIDESConfig:
    base: dict[str, Any] = {
        "input_size": CHANNELS,
        "hidden_size": 4,
        "state_size": 4,
        "groups": 2,
        "depth": 2,
        "rank": 2,
        "projector_init": "random",
    }
    return TIDESConfig(**{**base, **fields})


def unsettled(model: Model) -> Model:
    """`model` in float64 and evaluation mode with perturbed weights, running statistics and scales."""
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        for name, buffer in model.named_buffers():
            if name.endswith(("running_mean", "shift")):
                buffer.copy_(0.3 * torch.randn_like(buffer))
            elif name.endswith(("running_var", "scale")):
                buffer.copy_(0.5 + torch.rand_like(buffer))
    return model


def backbone(**fields: Any) -> Backbone:
    return unsettled(Backbone(small_config(**fields)))


def classifier(**fields: Any) -> SequenceClassifier:
    return unsettled(SequenceClassifier(small_config(**fields), classes=3))


def forecaster(query_mode: str = "steps", **fields: Any) -> Forecaster:
    return unsettled(Forecaster(small_config(**fields), CHANNELS, query_mode))  # type: ignore[arg-type]


def values_and_gaps(b: int = 3, l: int = 6) -> tuple[Tensor, Tensor]:
    x = torch.randn(b, l, CHANNELS, dtype=torch.float64)
    gaps = 2 * torch.rand(b, l, dtype=torch.float64)
    gaps[0, 2] = 0.0
    return x, gaps


def padding(lengths: list[int], l: int) -> Tensor:
    return torch.arange(l) < torch.tensor(lengths)[:, None]
