"""Small models away from their start, and batches that are irregular, partly observed and padded."""

from typing import Any

import torch

from tides.data import IrregularBatch
from tides.nn import Forecaster, SequenceClassifier, TIDESConfig

SMALL = {"input_size": 2, "hidden_size": 5, "state_size": 4, "rank": 2, "depth": 2, "projector_init": "random"}


def config(**options: Any) -> TIDESConfig:
    return TIDESConfig(**(SMALL | {"mask_channels": True} | options))


def settled(model: Any) -> Any:
    """In float64 and evaluation mode, with every weight, statistic and scale away from its start."""
    model = model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    scale = torch.tensor([0.5, -0.3]).double(), torch.tensor([1.5, 0.8]).double()
    if isinstance(model, Forecaster) and model.channels != 2:
        outputs = torch.zeros(model.channels).double(), torch.ones(model.channels).double()
        model.calibrate(torch.rand(50) * 3, *scale, *outputs)
    else:
        model.calibrate(torch.rand(50) * 3, *scale)
    if model.config.summary:
        size = model.summary.size
        model.calibrate_summary(torch.randn(size), 1 + torch.rand(size))
    return model.eval()


def classifier(**options: Any) -> SequenceClassifier:
    return settled(SequenceClassifier(config(**options), 3))


def forecaster(channels: int = 2, mode: str = "steps", **options: Any) -> Forecaster:
    return settled(Forecaster(config(**options), channels, mode))  # type: ignore[arg-type]


def batch(b: int = 3, l: int = 6, *, queries: int = 0, seed: int = 0) -> IrregularBatch:
    generator = torch.Generator().manual_seed(seed)

    def rand(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    valid = torch.arange(l) < torch.linspace(l, l // 2, b).long().unsqueeze(1)
    observed = (rand(b, l, 2) < 0.7) & valid.unsqueeze(-1)
    gaps = (0.1 + 2 * rand(b, l)).masked_fill(~valid, 0)
    times = 5 + gaps.cumsum(1)
    extra = {}
    if queries:
        asked = times[:, -1:] + rand(b, queries).cumsum(1)
        extra = {"query_times": asked, "query_valid": torch.ones(b, queries, dtype=torch.bool)}
    return IrregularBatch(
        values=(4 * rand(b, l, 2) - 2).masked_fill(~observed, 0),
        times=times,
        gaps=gaps,
        observed=observed,
        valid=valid,
        **extra,
    )
