"""The optimiser against updates worked out by hand."""

import math

import pytest
import torch
from torch import nn

from tides.errors import ConfigError, DataError
from tides.nn.tags import set_tags
from tides.training import TrainConfig
from tides.training.optimiser import Optimiser
from tides.training.schedule import rate_factor


class Three(nn.Module):
    """One parameter per tag, each starting at 2, with gradients 1."""

    def __init__(self) -> None:
        super().__init__()
        self.static = nn.Parameter(torch.full((1, 1), 2.0, dtype=torch.float64))
        self.matrix = nn.Parameter(torch.full((1, 1), 2.0, dtype=torch.float64))
        self.bias = nn.Parameter(torch.full((1,), 2.0, dtype=torch.float64))
        set_tags(self, static="ssm")

    def backward(self) -> None:
        (self.static.sum() + self.matrix.sum() + self.bias.sum()).backward()


def constant(**fields: object) -> TrainConfig:
    return TrainConfig(**{"schedule": "constant", "lr": 0.01, "lr_factor": 10.0, "weight_decay": 0.5, **fields})  # type: ignore[arg-type]


def test_adamw_decays_beside_the_gradient() -> None:
    model = Three()
    model.backward()
    Optimiser(model, constant(), 1).update(0)
    # The first Adam step has length lr whatever the gradient.
    assert model.static.item() == pytest.approx(2 - 0.01)
    assert model.matrix.item() == pytest.approx(2 * (1 - 0.1 * 0.5) - 0.1)
    assert model.bias.item() == pytest.approx(2 - 0.1)


def test_adam_adds_the_decay_to_the_gradient() -> None:
    model = Three()
    optimiser = Optimiser(model, constant(optimiser="adam"), 1)
    model.backward()
    optimiser.update(0)
    moments = optimiser.state()
    assert moments["matrix/exp_avg"].item() == pytest.approx(0.1 * (1 + 0.5 * 2))
    assert moments["static/exp_avg"].item() == pytest.approx(0.1)
    assert model.matrix.item() == pytest.approx(2 - 0.1)


def test_clipping_scales_all_gradients_and_reports_the_norm_before_it() -> None:
    model = Three()
    optimiser = Optimiser(model, constant(clip_norm=0.1, weight_decay=0.0), 1)
    model.backward()
    assert optimiser.update(0).item() == pytest.approx(math.sqrt(3))
    assert optimiser.state()["bias/exp_avg"].item() == pytest.approx(0.1 * 0.1 / math.sqrt(3), rel=1e-4)


def test_state_continues_in_a_new_optimiser_bit_for_bit() -> None:
    whole, first, second = Three(), Three(), Three()
    one = Optimiser(whole, constant(), 1)
    two = Optimiser(first, constant(), 1)
    for step in range(4):
        whole.backward()
        one.update(step)
        if step < 2:
            first.backward()
            two.update(step)
    second.load_state_dict(first.state_dict())
    three = Optimiser(second, constant(), 1)
    three.load_state(two.state())
    for step in range(2, 4):
        second.backward()
        three.update(step)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, second.state_dict()[name])
    with pytest.raises(DataError, match="'other' is no trainable parameter"):
        three.load_state({"other/exp_avg": torch.zeros(1)})


def test_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(ConfigError, match="no trainable parameter"):
        Optimiser(nn.Identity(), constant(), 1)


def test_cosine_with_warm_up() -> None:
    config = TrainConfig(epochs=5, warmup_epochs=1)
    factors = [rate_factor(config, step, 4) for step in range(20)]
    assert factors[:4] == [0.25, 0.5, 0.75, 1.0]
    assert factors[4] == 1.0
    assert factors[12] == pytest.approx(0.5)
    assert factors[19] == pytest.approx(0.5 * (1 + math.cos(math.pi * 15 / 16)))
    assert factors[4:] == sorted(factors[4:], reverse=True)


def test_constant_after_warm_up() -> None:
    config = TrainConfig(epochs=3, warmup_epochs=1, schedule="constant")
    assert [rate_factor(config, step, 2) for step in range(6)] == [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]
