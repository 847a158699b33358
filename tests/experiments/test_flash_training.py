import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tides.data import fading_flash
from tides.experiments.fading_flash import MODELS, build_model
from tides.experiments.flash_training import (
    DataConfig,
    EvaluateConfig,
    TrainConfig,
    batches,
    loss,
    mode_decays,
    relative_errors,
    response_decays,
    train,
)

DATA = DataConfig((0.5, 1.5), 0.0, 0.0)
TRAIN = TrainConfig(8, 4, 3e-3, 0.999, "constant", 0.0)
TEST = EvaluateConfig((0.2, 1.0), 16, 64)


class Exact(nn.Module):
    """The true solution as a stack of models, with an optional flaw."""

    def __init__(self, models: int, offset: float = 0.0) -> None:
        super().__init__()
        self.models, self.offset = models, offset

    def forward(self, x: Tensor, gaps: Tensor) -> Tensor:
        zones = x[..., 1:].argmax(-1)
        rows = [fading_flash.glow(x[m, ..., 0], zones[m], gaps[m]) for m in range(self.models)]
        return torch.stack(rows) + self.offset

    def rates(self, x: Tensor, gaps: Tensor) -> Tensor:
        true = torch.tensor(fading_flash.RATES)[x[..., 1:].argmax(-1)]
        return torch.stack([true, true + 5], -1)


@pytest.mark.parametrize("name", MODELS)
def test_a_seed_does_not_depend_on_its_neighbours(name: str) -> None:
    results = []
    for seeds in ([3], [0, 1, 2, 3, 4]):
        model = build_model(name, seeds)
        train(model, DATA, TRAIN, seeds)
        row = seeds.index(3)
        parameters = torch.cat([parameter[row].flatten() for parameter in model.parameters()])
        results.append((parameters, relative_errors(model, TEST, DATA, seeds)[row]))
    (alone, error_alone), (among, error_among) = results
    # The same up to the rounding of differently shaped products.
    torch.testing.assert_close(alone, among, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(error_alone, error_among, rtol=1e-4, atol=1e-4)


def test_the_data_stream_of_a_seed_is_its_own_and_fresh() -> None:
    alone = [x for x, _, _ in batches(DATA, 4, 250, [3])]
    among = [x[1] for x, _, _ in batches(DATA, 4, 250, [2, 3])]
    assert len(alone) == 250
    assert all(torch.equal(a[0], b) for a, b in zip(alone, among, strict=True))
    assert len({tuple(x.flatten().tolist()) for x in alone}) == 250


def test_training_lowers_the_error() -> None:
    seeds = [0, 1]
    model = build_model("tides", seeds)
    before = relative_errors(model, TEST, DATA, seeds)
    train(model, DATA, replace(TRAIN, steps=150, batch=16, learning_rate=0.02), seeds)
    assert (relative_errors(model, TEST, DATA, seeds)[:, 1] < 0.5 * before[:, 1]).all()


def test_the_cosine_schedule_ends_near_zero() -> None:
    model = build_model("s5", [0])
    steps: list[float] = []
    last = [parameter.detach().clone() for parameter in model.parameters()]

    def watch(fraction: float) -> None:
        now = [parameter.detach().clone() for parameter in model.parameters()]
        steps.append(max((a - b).abs().max().item() for a, b in zip(now, last, strict=True)))
        last[:] = now

    train(model, DATA, replace(TRAIN, steps=251, batch=1, schedule="cosine"), [0], watch)
    assert len(steps) == 6
    assert steps[-1] < 0.2 * max(steps)


def test_the_loss_adds_models_and_penalises_the_feed_through() -> None:
    model = build_model("tides", [0, 1])
    with torch.no_grad():
        model.get_parameter("weights.skip").fill_(0.5)
    x, gaps, y = next(batches(DATA, 4, 1, [0, 1]))
    squares = (model(x, gaps) - y).square().mean(-1)
    plain = loss(model, x, gaps, y, TRAIN)
    torch.testing.assert_close(plain, squares.mean((1, 2)).sum())
    penalised = loss(model, x, gaps, y, replace(TRAIN, skip_penalty=0.1))
    torch.testing.assert_close(penalised, plain + 0.1 * 14 * 0.25)


def test_relative_error_is_zero_for_the_truth_and_right_for_a_known_flaw() -> None:
    assert relative_errors(Exact(2), TEST, DATA, [0, 1]).max() < 1e-4
    found = relative_errors(Exact(1, offset=0.01), replace(TEST, variance_sequences=20_000), DATA, [0])
    for gap, error in zip(TEST.gaps, found[0].tolist(), strict=True):
        spread = fading_flash.sample(20_000, (gap, gap), generator=torch.Generator().manual_seed(9)).y.std()
        assert error == pytest.approx(100 * 0.01 / spread.item(), rel=0.02)


def test_noisy_inputs_are_scored_against_the_clean_glow() -> None:
    class Blind(Exact):
        def forward(self, x: Tensor, gaps: Tensor) -> Tensor:
            return super().forward(x.round().clamp(0, 1), gaps)

    noisy = DataConfig((0.5, 1.5), 0.05, 0.5)
    assert relative_errors(Blind(1), TEST, noisy, [0]).max() < 1e-4


@pytest.mark.parametrize("gap", [0.1, 1.0, 2.0])
def test_both_effective_decays_recover_the_true_rates(gap: float) -> None:
    model = Exact(2)
    expected = torch.tensor(fading_flash.RATES).view(1, 3, 1).expand(2, -1, -1)
    torch.testing.assert_close(mode_decays(model.rates, [gap], 2), expected)
    torch.testing.assert_close(response_decays(model, [gap], 2), expected, rtol=1e-3, atol=0)


def test_the_response_ignores_what_is_there_without_a_flash() -> None:
    assert response_decays(Exact(1, offset=-3.0), [0.5], 1)[0, :, 0].tolist() == pytest.approx(
        [1.0, 1.5, 2.0], rel=1e-3
    )


def test_a_response_that_changes_sign_is_not_a_number() -> None:
    class Flip(Exact):
        def forward(self, x: Tensor, gaps: Tensor) -> Tensor:
            sign = torch.where(torch.arange(40) % 2 == 0, 1.0, -1.0)
            return super().forward(x, gaps) * sign.view(1, 1, -1, 1)

    assert math.isnan(response_decays(Flip(1), [0.5], 1)[0, 0, 0])
