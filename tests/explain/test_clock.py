"""The clock is the decay that really happens, in the user's unit of time."""

import math
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.explain.models import batch, classifier, config, settled
from tides.data import fading_flash
from tides.errors import ConfigError, ShapeError
from tides.experiments.config import build, load
from tides.experiments.fading_flash import FlashConfig, build_model
from tides.experiments.flash_cores import FlashCore
from tides.experiments.flash_training import train
from tides.explain import clock, layer_clock, response_rate
from tides.functional import SSMOps, SSMWeights
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


class Halved(SSM):
    """A layer of somebody's own that forgets half as fast."""

    def operations(self, u: Tensor, weights: SSMWeights) -> SSMOps:
        ops = super().operations(u, weights)
        return ops._replace(decay_rates=lambda *head: ops.decay_rates(*head) / 2)


class Centred(nn.LayerNorm):
    """A norm of somebody's own, which is called and nothing else."""

    def statistics(self, x: Tensor, valid: Tensor | None = None) -> None: ...

    def forward(self, x: Tensor, statistics: None = None) -> Tensor:
        return super().forward(x)


def test_a_layer_and_a_norm_of_somebodys_own_are_shown_as_they_are() -> None:
    model, series = classifier(depth=1), batch()
    wanted = clock(model, series)
    block = model.backbone.blocks[0]
    own = Halved(model.config)
    own.load_state_dict(block.ssm.state_dict())
    block.ssm = own.to(block.ssm.skip)
    found = clock(model, series)
    torch.testing.assert_close(found.rate, wanted.rate / 2)
    assert not torch.allclose(found.contribution, wanted.contribution)
    block.norm = Centred(model.config.hidden_size).double()
    assert not torch.allclose(clock(model, series).contribution, found.contribution)


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


def test_the_first_gap_is_the_models_own() -> None:
    model = settled(Backbone(config(hold="preceding", first_gap=0.5)))
    given = batch()
    other = replace(given, gaps=given.gaps + 3 * torch.eye(given.gaps.shape[1], dtype=given.gaps.dtype)[0])
    torch.testing.assert_close(clock(model, given).contribution, clock(model, other).contribution)


def test_wrong_models_are_refused() -> None:
    with pytest.raises(ShapeError, match="training mode"):
        clock(classifier().train(), batch())
    with pytest.raises(ConfigError, match="Linear"):
        clock(nn.Linear(1, 1).eval(), batch())


def test_the_response_fades_as_its_rate_says() -> None:
    """A nudge at one step, measured from outside at two later times without observations in between."""
    ssm, readout = settled_ssm(), torch.randn(5).double()
    u, gaps = torch.randn(1, 6, 5).double(), 0.5 + torch.rand(1, 6).double()
    nudged = u.clone()
    nudged[:, 2] += 0.3
    rate = response_rate(ssm, u, nudged, gaps, readout)[0, -1]
    states = [ssm(x, gaps)[1] for x in (u, nudged)]

    def difference(passed: float) -> Tensor:
        outputs = [ssm.peek(u[:, -1], state, torch.full((1,), passed).double()) for state in states]
        return (outputs[1] - outputs[0])[0] @ readout

    step = 1e-5
    slope = (difference(step) - difference(0.0)) / step
    assert (-slope / difference(0.0)).item() == pytest.approx(float(rate), rel=1e-3)


class FlashNet(nn.Module):
    """A core of the experiment as an encoder, this library's own layer, and a sum over its outputs."""

    def __init__(self, core: FlashCore) -> None:
        super().__init__()
        w = {name: tensor[0].detach() for name, tensor in core.weights.items()}
        hidden, modes = w["drive"].shape
        options: dict[str, Any] = {"hidden_size": hidden, "state_size": modes, "rank": "diag", "projector_norm": False}
        self.encoder = nn.Linear(4, hidden)
        self.ssm = SSM(TIDESConfig(input_size=4, hold="preceding", **options))
        self.readout = torch.ones(hidden)
        with torch.no_grad():
            self.encoder.weight.copy_(w["encoder"].T)
            self.encoder.bias.copy_(w["encoder_bias"])
            state = self.ssm.state_dict()
            for tensor in state.values():
                tensor.zero_()
            state["decay.weight"].copy_(w["decay_head"].T)
            state["decay.bias"].copy_(w["decay"])
            state["log_step.value"].copy_(w["log_step"])
            state["skip"].copy_(w["skip"][:, 0])
            state["drive.base"][..., 0] = w["drive"].T
            # The one output of the core is the first of the layer's.
            state["readout.base"][:, 0, 0] = w["readout"]
            for part in ("drive", "readout"):
                state[f"{part}.up"][:, 0] = w[f"{part}_head"].T
                state[f"{part}.bias"][:, 0] = w[f"{part}_modulation"]

    @torch.no_grad()
    def forward(self, x: Tensor, gaps: Tensor) -> Tensor:
        y, _ = self.ssm(self.encoder(x), gaps)
        return (y @ self.readout).unsqueeze(-1)


def trained_core(steps: int) -> FlashCore:
    flash = build(FlashConfig, load("fading-flash", "paper", quick=False, settings=()))
    model = build_model("tides-refined", [0])
    assert isinstance(model, FlashCore)
    training = replace(flash.train, **asdict(flash.refined), steps=steps)
    train(model, flash.data, training, [0])
    return model


@pytest.mark.slow
def test_fading_flash_half_lives_are_the_true_ones() -> None:
    """One flash in every zone: what is heard of it afterwards fades with the zone's own rate."""
    core = trained_core(steps=3000)
    net = FlashNet(core)
    drawn = fading_flash.sample(8, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        torch.testing.assert_close(net(drawn.x, drawn.gaps), core(drawn.x[None], drawn.gaps[None])[0])
    dark = torch.eye(3, 4).roll(1, 1)[torch.arange(3).unsqueeze(1).expand(-1, 16)]
    flash = dark.clone()
    flash[:, 8, 0] = 1
    with torch.no_grad():
        inputs = net.encoder(dark), net.encoder(flash)
    # Inside the training range of gaps, and below it.
    for gap in (0.1, 0.5, 1.0):
        rate = response_rate(net.ssm, *inputs, torch.full((3, 16), gap), net.readout)[:, 9]
        for zone, true in enumerate(fading_flash.RATES):
            found, wanted = math.log(2) / float(rate[zone]), math.log(2) / true
            print(f"zone {zone}, gap {gap}: half-life {found:.4f}, true {wanted:.4f}")
            assert found == pytest.approx(wanted, rel=0.01), f"zone {zone}, gap {gap}"
