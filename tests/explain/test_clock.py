"""The clock is the decay that really happens, in the user's unit of time."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.explain.models import batch, classifier, config, settled
from tides.data import fading_flash
from tides.errors import ConfigError, ShapeError
from tides.explain import clock, layer_clock
from tides.nn import SSM, Backbone, TIDESConfig


@pytest.mark.parametrize("variant", ["tides", "s5", "tides-full"])
@torch.no_grad()
def test_a_state_halves_in_its_half_life(variant: str) -> None:
    """Time passes with nothing driving the state: after one half-life of mode p its modulus is half."""
    model = settled(Backbone(config(variant=variant)))
    given = batch(b=1)
    found = clock(model, given)
    assert found.rate.shape == (2, 1, 6, 4)
    _, state = model(given.values, given.gaps, observed=given.observed)
    free = state._replace(blocks=tuple(s._replace(drive=torch.zeros_like(s.drive)) for s in state.blocks))
    for layer in range(2):
        for mode in range(4):
            passed = found.half_life[layer, 0, -1, mode]
            later = model.advance(free, passed.expand(1))
            ratio = later.blocks[layer].s[0, mode].abs() / free.blocks[layer].s[0, mode].abs()
            assert float(ratio) == pytest.approx(0.5, rel=1e-9)
            turns = found.frequency[layer, 0, -1, mode] * passed
            angle = torch.angle(later.blocks[layer].s[0, mode] / free.blocks[layer].s[0, mode]).abs() / (2 * math.pi)
            assert float(torch.sin(math.pi * (turns - angle)) * torch.sin(math.pi * (turns + angle))) == pytest.approx(
                0, abs=1e-8
            )


def test_another_unit_of_time_is_another_number_of_the_same_duration() -> None:
    model, given = settled(Backbone(config())), batch()
    hours = clock(model, given, unit="h")
    model.calibration.time_scale *= 60
    minutes = clock(model, replace(given, gaps=given.gaps * 60, times=given.times * 60))
    torch.testing.assert_close(minutes.half_life, 60 * hours.half_life)


def test_mamba_reports_what_its_interval_applied() -> None:
    ssm = SSM(config(variant="mamba-s")).double()
    u, gaps = torch.randn(2, 5, 5).double(), torch.rand(2, 5).double()
    found = layer_clock(ssm, u, gaps)
    assert found.rate.shape == (2, 5, 4)
    assert bool((found.rate > 0).all())
    longer = layer_clock(ssm, u, 2 * gaps)
    # A learned step does not double with the gap, so that the rate is no constant of the mode.
    assert not torch.allclose(longer.rate, found.rate)


def test_contributions_are_those_of_single_modes() -> None:
    ssm = settled_ssm()
    u, gaps = torch.randn(1, 7, 5).double(), torch.rand(1, 7).double()
    found = layer_clock(ssm, u, gaps)
    assert bool((found.contribution[:, 0] == 0).all()), "before any time has passed nothing is in the state"
    y, _ = ssm(u, gaps)
    skip = ssm.skip * u
    # Modes add up, so no mode can be louder than all of them together and each other mode at once.
    together = (y - skip).square().mean(-1).sqrt()
    assert bool((together <= found.contribution.sum(-1) + 1e-12).all())


def settled_ssm() -> SSM:
    ssm = SSM(config()).double()
    with torch.no_grad():
        for parameter in ssm.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return ssm


def test_padding_is_silent_and_one_series_has_none() -> None:
    model, given = classifier(), batch()
    found = clock(model, given)
    assert float(found.contribution[:, ~given.valid].abs().max()) == 0
    alone = found.series(2)
    assert alone.rate.shape[2] == int(given.valid[2].sum())
    assert alone.typical_half_life().shape == (2, 4)


def test_memory_is_judged_by_a_horizon() -> None:
    found = clock(classifier(), batch())
    typical = found.typical_half_life()
    assert bool((found.remembers(0.0)).all())
    assert not bool(found.remembers(float(typical.max()) * 1.01).any())
    middle = float(typical.flatten().sort().values[3])
    assert int(found.remembers(middle).sum()) == typical.numel() - 4


def test_growing_modes_never_forget() -> None:
    found = clock(settled(Backbone(config(reparam="standard", variant="s5"))), batch())
    positive = replace(found, rate=-found.rate.abs())
    assert bool(torch.isinf(positive.half_life).all())


def test_wrong_models_are_refused() -> None:
    with pytest.raises(ShapeError, match="training mode"):
        clock(classifier().train(), batch())
    with pytest.raises(ConfigError, match="Linear"):
        clock(nn.Linear(1, 1).eval(), batch())


class FlashNet(nn.Module):
    """Encoder, one bare layer, one output: the cores of the paper's experiment, made of this library's layer."""

    def __init__(self) -> None:
        super().__init__()
        options: dict[str, Any] = {"hidden_size": 8, "state_size": 4, "rank": 2, "depth": 1, "hold": "preceding"}
        self.encoder = nn.Linear(4, 8)
        self.ssm = SSM(TIDESConfig(input_size=4, step_init=(0.5, 1.0), **options))
        self.head = nn.Linear(8, 1)

    def forward(self, x: Tensor, gaps: Tensor) -> Tensor:
        y, _ = self.ssm(self.encoder(x), gaps)
        answer: Tensor = self.head(y)
        return answer


def trained_flash(steps: int = 2500) -> FlashNet:
    torch.manual_seed(0)
    net, source = FlashNet(), torch.Generator().manual_seed(1)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    for step in range(steps):
        drawn = fading_flash.sample(32, generator=source)
        for group in optimiser.param_groups:
            group["lr"] = 1e-2 * 0.5 * (1 + math.cos(math.pi * step / steps))
        optimiser.zero_grad()
        (net(drawn.x, drawn.gaps) - drawn.y).square().mean().backward()
        optimiser.step()
    return net.eval()


@pytest.mark.slow
def test_fading_flash_half_lives_are_the_true_ones() -> None:
    """One flash in every zone: what is heard of it afterwards fades with the zone's own rate."""
    net = trained_flash()
    zones = torch.arange(3).unsqueeze(1).expand(-1, 16)
    x = torch.eye(3, 4).roll(1, 1)[zones]
    x[:, 8, 0] = 1
    for gap in (0.5, 1.0):
        gaps = torch.full((3, 16), gap)
        heard = heard_half_life(net, x, gaps)
        for zone, rate in enumerate(fading_flash.RATES):
            assert float(heard[zone]) == pytest.approx(math.log(2) / rate, rel=0.1), f"zone {zone}, gap {gap}"


def heard_half_life(net: FlashNet, x: Tensor, gaps: Tensor) -> Tensor:
    """Behind the flash, modes weighted by how loud the flash is in them."""
    lit = layer_clock(net.ssm, net.encoder(x), gaps)
    dark = x.clone()
    dark[..., 0] = 0
    quiet = layer_clock(net.ssm, net.encoder(dark), gaps)
    weight = (lit.contribution - quiet.contribution)[:, 9].square()
    half = (math.log(2) / lit.rate[:, 9]).log()
    return ((weight * half).sum(-1) / weight.sum(-1)).exp()
