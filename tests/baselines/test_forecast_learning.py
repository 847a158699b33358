"""Every forecaster learns: held-out error is far below that of the best predictor that learns nothing."""

from functools import cache

import pytest
import torch

from tides import baselines
from tides.data import IrregularBatch
from tides.training import Forecasting, TrainConfig, fit_population, population_losses

MARGIN, CONSTANT_MARGIN = 0.25, 0.75
"""Mean error over three seeds, as a share of the best trivial one; a constant forecast of a circle cannot do more."""
SEEDS = 3
SIZES = {
    "imts-mixer": {"hidden_size": 32, "output_size": 32, "kernel_size": 16, "depth": 2},
    "grafiti": {"hidden_size": 16, "depth": 2},
    "grafiti-c": {"hidden_size": 16, "depth": 2},
    "linodenet": {"hidden_size": 16, "latent_size": 16, "depth": 2},
    "cru": {"latent_size": 8, "hidden_size": 24, "bases": 4, "bandwidth": 1, "squarings": 3},
    "gru-ode-bayes": {"hidden_size": 24, "dropout": 0.0},
    "neural-flow-resnet": {"hidden_size": 24, "dropout": 0.0},
    "neural-flow-gru": {"hidden_size": 24, "dropout": 0.0},
    "neural-flow-coupling": {"hidden_size": 24, "dropout": 0.0},
    "mtan": {"embed_size": 16, "references": 16, "hidden_size": 24, "latent_size": 8},
    "latent-ode": {"latent_size": 8, "hidden_size": 24, "field_size": 24, "steps": 8, "gap_steps": 1},
}


@cache
def parts() -> tuple[IrregularBatch, IrregularBatch, IrregularBatch]:
    """A turn around the circle from a random point, two coordinates, irregular, noisy and partly observed; the second
    half is asked. 240 series to learn, 60 to choose, 100 to test."""
    source = torch.Generator().manual_seed(0)
    n, rows = 400, 12
    halves = torch.rand(n, 2, rows, generator=source, dtype=torch.float64).sort(dim=2).values / 2
    times = (halves + torch.tensor([[0.0], [0.5]])).flatten(1)
    start = torch.randn(n, 2, 1, generator=source, dtype=torch.float64)
    cos, sin = torch.cos(2 * torch.pi * times), torch.sin(2 * torch.pi * times)
    x, y = start[:, 0], start[:, 1]
    values = torch.stack([x * cos - y * sin, x * sin + y * cos], dim=-1).float()
    observed = torch.rand(n, rows, 2, generator=source) < 0.7
    seen = values[:, :rows] + 0.05 * torch.randn(n, rows, 2, generator=source)
    whole = IrregularBatch(
        values=seen.masked_fill(~observed, 0),
        times=times[:, :rows],
        gaps=times[:, :rows].diff(dim=1, prepend=times[:, :1]).float(),
        observed=observed,
        valid=torch.ones(n, rows, dtype=torch.bool),
        targets=values[:, rows:],
        target_observed=torch.ones(n, rows, 2, dtype=torch.bool),
        query_times=times[:, rows:],
        query_valid=torch.ones(n, rows, dtype=torch.bool),
    )
    return whole.rows(slice(240)), whole.rows(slice(240, 300)), whole.rows(slice(300, 400))


def trivial() -> dict[str, float]:
    test, task, found = parts()[2], Forecasting(), {}
    for name in ("zero", "last-value", "observed-mean"):
        total, weight = task.loss(task.predict(baselines.build(name, input_size=2), test), test)
        found[name] = float(total / weight)
    return found


def error(name: str) -> float:
    """Mean test error of three seeds trained as one population."""
    train, validation, test = parts()
    models = []
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        models.append(baselines.build(name, input_size=2, time_scale=1.0, **SIZES[name]))
    config = TrainConfig(epochs=30, batch_size=16, lr=1e-2, clip_norm=1.0, calibrate="none")
    fit_population(models, Forecasting(), [(train, validation)] * SEEDS, config, progress=False)
    losses = population_losses(models, Forecasting(), [test] * SEEDS)
    return sum(losses) / SEEDS


def test_every_forecaster_that_learns_is_here() -> None:
    assert set(SIZES) | set(trivial()) == set(baselines.names("forecasting"))


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_learning_beats_the_best_trivial_predictor(name: str) -> None:
    margin = CONSTANT_MARGIN if name == "grafiti-c" else MARGIN
    assert error(name) < margin * min(trivial().values())
