import pytest
import torch
from torch.nn import functional as F

from tides.data import fading_flash
from tides.experiments.flash_cores import CORES, MODES, Core, FlashCore
from tides.experiments.flash_training import generator


def stack(name: str, *seeds: int) -> FlashCore:
    return FlashCore(CORES[name], [generator(seed, "start") for seed in seeds])


def disturbed(name: str, *seeds: int) -> FlashCore:
    """A stack away from its start, so that zero head weights hide nothing."""
    model = stack(name, *seeds).double()
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=noise, dtype=parameter.dtype)
    return model


def batch(models: int, size: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    sample = fading_flash.sample(size, generator=torch.Generator().manual_seed(2))
    return sample.x.double().expand(models, -1, -1, -1), sample.gaps.double().expand(models, -1, -1)


@pytest.mark.parametrize("name", CORES)
def test_every_core_has_the_published_144_parameters(name: str) -> None:
    model = stack(name, 0, 1)
    assert model.parameter_count(published=True) == 144
    # Only a selective Λ leaves the static decays unused, and we do not carry them.
    assert model.parameter_count() == (141 if CORES[name].selective_decay else 144)


def plain(core: Core, w: dict[str, torch.Tensor], x: torch.Tensor, gap: float) -> list[float]:
    """One sequence through one model, written step by step from the paper's description."""
    state, outputs = torch.zeros(MODES, dtype=torch.float64), []
    for u in x:
        h = w["encoder"].T @ u + w["encoder_bias"]
        theta = w["decay"] + (w["decay_head"].T @ h if core.selective_decay else 0)
        lam = -torch.exp(theta)
        if core.learned_step:
            features = torch.cat([h, torch.tensor([gap], dtype=torch.float64)])
            delta = F.softplus(w["step_head"].T @ features + w["step_bias"])
        else:
            delta = gap * torch.exp(w["log_step"])
        drive, readout = w["drive"].T @ h, w["readout"]
        if core.selective_mix:
            drive = drive * (w["drive_head"].T @ h + w["drive_modulation"])
            readout = readout * (w["readout_head"].T @ h + w["readout_modulation"])
        lam_bar = torch.exp(lam * delta)
        state = lam_bar * state + (lam_bar - 1) / lam * drive
        outputs.append((readout @ state + w["skip"].T @ h).item())
    return outputs


@pytest.mark.parametrize("name", CORES)
def test_forward_is_the_recurrence_written_out(name: str) -> None:
    model = disturbed(name, 0, 1)
    x, gaps = batch(2)
    with torch.no_grad():
        y = model(x, gaps)
        for m in range(2):
            w = {key: value[m] for key, value in model.weights.items()}
            expected = plain(model.core, w, x[m, 1], gaps[m, 1, 0].item())
            assert y[m, 1, :, 0].tolist() == pytest.approx(expected, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("name", CORES)
def test_at_the_start_every_core_is_static_as_described(name: str) -> None:
    model = stack(name, 0)
    x, gaps = batch(1)
    rates = model.rates(x.float(), gaps.float())
    if CORES[name].learned_step:
        expected = torch.linspace(0.5, 3, 3) / gaps[..., None].float()
    else:
        log_step = model.weights["log_step"][0]
        assert ((log_step >= -2.303) & (log_step <= 0)).all()
        expected = (torch.linspace(0.5, 3, 3) * log_step.exp()).expand_as(rates)
    torch.testing.assert_close(rates, expected)
    assert not model.weights["skip"].any()


def test_the_starting_values_have_the_stated_scales() -> None:
    many = stack("s5", *range(400)).weights
    assert many["drive"].std().item() == pytest.approx(15**-0.5, rel=0.05)
    assert many["readout"].std().item() == pytest.approx(3**-0.5, rel=0.1)
    assert many["encoder"].abs().max().item() == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize("name", ["s5", "tides", "tides-lambda"])
def test_physical_time_cores_do_not_depend_on_the_time_unit(name: str) -> None:
    model = disturbed(name, 0)
    x, gaps = batch(1)
    with torch.no_grad():
        y = model(x, gaps)
        model.weights["log_step"] -= torch.log(torch.tensor(60.0, dtype=torch.float64))
        torch.testing.assert_close(model(x, 60 * gaps), y, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("seed", [0, 7])
def test_a_seed_starts_where_a_plain_script_with_that_seed_would(seed: int) -> None:
    torch.manual_seed(seed)
    encoder = torch.nn.Linear(4, 7)
    drive, readout = torch.randn(3, 7) / 7**0.5, torch.randn(3) / 3**0.5
    found = stack("tides", seed).weights
    torch.testing.assert_close(found["encoder"][0], encoder.weight.T.detach())
    torch.testing.assert_close(found["encoder_bias"][0], encoder.bias.detach())
    torch.testing.assert_close(found["drive"][0], drive.T)
    torch.testing.assert_close(found["readout"][0], readout)
