"""Every classifier learns: held-out accuracy on embedded data is far above the class prior's, over three seeds."""

from functools import cache

import pytest
import torch

from tests.baselines.small import SMALL
from tides import baselines
from tides.data import IrregularDataset, systems
from tides.training import Classification, TrainConfig, evaluate, fit

MARGIN = 0.2
"""Mean accuracy above the prior's; three balanced classes, so that the prior has about one third."""
SEEDS = (0, 1, 2)
LEARNERS = [name for name in baselines.names("classification") if name != "class-prior"]


@cache
def parts() -> tuple[IrregularDataset, IrregularDataset, IrregularDataset]:
    """Calcium waves in three regimes, irregular and partly observed: 140 series to learn, 40 to choose, 60 to test."""
    data = systems.classification("calcium", n=240, seed=0, points=30, missing=0.3)
    return data[list(range(140))], data[list(range(140, 180))], data[list(range(180, 240))]


def accuracy(name: str, seed: int) -> float:
    train, validation, test = parts()
    torch.manual_seed(seed)
    model = baselines.build(name, **{**SMALL[name], "input_size": 2, "classes": 3})
    config = TrainConfig(epochs=12, batch_size=16, lr=1e-2, seed=seed)
    fit(model, Classification(), (train, validation), config, progress=False)
    return float(evaluate(model, Classification(), test)["accuracy"].value)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_learning_beats_the_prior(name: str) -> None:
    floor = sum(accuracy("class-prior", seed) for seed in SEEDS) / len(SEEDS)
    assert floor < 0.45
    reached = sum(accuracy(name, seed) for seed in SEEDS) / len(SEEDS)
    assert reached > floor + MARGIN
