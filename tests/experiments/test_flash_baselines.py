"""Mixers of the baselines in Fading Flash: sizes, seeds, and that a physical step is one."""

import pytest
import torch

from tides.data import fading_flash
from tides.experiments import fading_flash as experiment
from tides.experiments.flash_baselines import MIXES, FlashBaseline
from tides.experiments.flash_training import DataConfig, TrainConfig, generator, train

NAMES = sorted(MIXES)


def model(name: str, seeds: tuple[int, ...] = (0, 1)) -> FlashBaseline:
    return FlashBaseline(name, [generator(seed, "start") for seed in seeds])


def batch(seeds: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = fading_flash.sample(3, generator=torch.Generator().manual_seed(0))
    return drawn.x.expand(seeds, -1, -1, -1), drawn.gaps.expand(seeds, -1, -1)


@pytest.mark.parametrize("name", NAMES)
def test_size_shape_and_seeds(name: str) -> None:
    assert name in experiment.BASELINES
    both, second = model(name), model(name, (1,))
    assert 133 <= both.parameter_count() <= 150
    x, gaps = batch()
    y = both(x, gaps)
    assert y.shape == (2, 3, 40, 1)
    torch.testing.assert_close(y[1:], second(x[1:], gaps[1:]))
    assert not torch.allclose(y[0], y[1])


@pytest.mark.parametrize("name", NAMES)
def test_training_runs(name: str) -> None:
    core = model(name, (0,))
    before = [parameter.detach().clone() for parameter in core.parameters()]
    train(core, DataConfig((0.5, 1.5), 0.0, 0.0), TrainConfig(2, 4, 1e-2, 0.999, "constant", 0.0), [0])
    assert all((a != b).any() for a, b in zip(before, core.parameters(), strict=True))


def test_a_physical_lru_decays_with_time_and_not_with_steps() -> None:
    """One gap of 2 leaves of a state what two gaps of 1 leave; with Δ as a channel nothing says so."""
    core = model("lru-physical", (0,))
    x = torch.zeros(1, 1, 4, 4)
    x[..., 0, 0] = 1
    with torch.no_grad():
        core.cores[0]["encoder"].bias.zero_()  # type: ignore[index]
        slow = core(x[:, :, [0, 1]], torch.tensor([[[1.0, 2.0]]]))[0, 0, -1]
        fast = core(x[:, :, :3], torch.tensor([[[1.0, 1.0, 1.0]]]))[0, 0, -1]
    torch.testing.assert_close(slow, fast)


def test_gru_d_forgets_over_gaps() -> None:
    """A long gap leaves less of a state than a short one; what follows is the same."""
    core = model("gru-d", (0,))
    x = torch.zeros(1, 1, 2, 4)
    x[..., 0, 0] = 3
    with torch.no_grad():
        states = [core.cores[0]["mixer"](x[0], torch.tensor([[1.0, gap]]))[0, -1] for gap in (0.0, 1e4)]  # type: ignore[index]
        alone = core.cores[0]["mixer"](x[0, :, 1:], torch.ones(1, 1))[0, -1]  # type: ignore[index]
    torch.testing.assert_close(states[1], alone)
    assert not torch.allclose(states[0], alone, atol=1e-3)
