"""The suggestion is the best candidate of a model whose uncertainty is known, and cost moves it."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.explain.models import batch, forecaster
from tides.errors import ConfigError, DataError, ShapeError
from tides.explain import suggest_next_time, with_observation
from tides.explain.asking import only_series
from tides.training import Forecasting

GAUSSIAN = Forecasting(gaussian=True)


class Nearest(nn.Module):
    """Knows a time as well as the nearest observation is close: spread = distance, in both channels."""

    def forward(self, values: Tensor, times: Tensor, observed: Tensor, query_times: Tensor, **_: Any) -> Tensor:
        distance = (query_times.unsqueeze(2) - times.unsqueeze(1)).abs().amin(-1)
        raw = torch.log(torch.expm1(distance + 1e-3))
        zero = torch.zeros_like(raw)
        return torch.stack([zero, zero, raw, raw], dim=-1)


def question(*asked: float) -> Any:
    one = only_series(batch(queries=1), 0)
    return replace(one, query_times=torch.tensor([asked]).double(), query_valid=None)


def test_the_time_that_is_asked_about_is_the_time_to_look() -> None:
    given = question(40.0)
    found = suggest_next_time(Nearest().eval(), given, [20.0, 33.0, 40.0, 47.0], task=GAUSSIAN)
    assert found.time == 40.0
    distance = 40.0 - float(given.times[0, -1])
    assert found.before == pytest.approx((distance + 2e-3) ** 2, rel=1e-6)
    assert float(found.after[1]) == pytest.approx((7 + 2e-3) ** 2, rel=1e-6)


def test_cost_is_what_a_reduction_is_divided_by() -> None:
    given = question(40.0)
    candidates = [33.0, 40.0]
    free = suggest_next_time(Nearest().eval(), given, candidates, task=GAUSSIAN)
    dear = suggest_next_time(Nearest().eval(), given, candidates, task=GAUSSIAN, cost=lambda t: (t - 32) ** 2)
    assert (free.time, dear.time) == (40.0, 33.0)
    torch.testing.assert_close(dear.gain, free.gain / torch.tensor([1.0, 64.0]).double())
    assert suggest_next_time(Nearest().eval(), given, candidates, task=GAUSSIAN, cost=torch.tensor([1, 9])).time == 33.0


class Worried(nn.Module):
    """Forecasts 3 ± 2 in units of the task's scale until it has seen something new; afterwards its spread is the size
    of the newest value."""

    def __init__(self, known: int, scale: float = 1.0) -> None:
        super().__init__()
        self.known, self.scale = known, scale

    def forward(self, values: Tensor, times: Tensor, observed: Tensor, query_times: Tensor, **_: Any) -> Tensor:
        newest = values[:, -1:].abs() / self.scale if values.shape[1] > self.known else torch.full((1, 1, 2), 2.0)
        raw = torch.log(torch.expm1(newest.double().clamp_min(2e-3) - 1e-3)).expand(-1, query_times.shape[1], 2)
        return torch.cat([torch.full_like(raw, 3 * self.scale), raw], dim=-1)


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_values_that_might_be_found_are_those_of_the_forecast(scale: float) -> None:
    """E[y²] of y = 3 ± 2 is 13, whatever the unit; U counts every asked time and no padding."""
    given = question(40.0, 41.0, 7.0)
    given = replace(given, query_valid=torch.tensor([[True, True, False]]))
    task = Forecasting(scale=(scale, scale), gaussian=True)
    model = Worried(given.times.shape[1], scale).eval()
    found = suggest_next_time(model, given, [30.0, 35.0], task=task, samples=4000)
    assert found.before == pytest.approx(4.0, rel=1e-6)
    # Half of the draws mirror the other half: the mean of 4 z² over 4000 numbers z, which has a spread of 0.09.
    assert found.after.tolist() == pytest.approx([13.0, 13.0], abs=0.3)
    torch.testing.assert_close(found.gain, found.before - found.after)
    few = [suggest_next_time(model, given, [30.0], task=task, samples=3, seed=seed).after for seed in (0, 0, 1)]
    assert torch.equal(few[0], few[1])
    assert not torch.equal(few[0], few[2])


def test_padding_of_the_questions_does_not_count() -> None:
    """The nearest observation is far from 40 and from 60; only the first of the two is asked about."""
    given = question(40.0, 60.0)
    both = suggest_next_time(Nearest().eval(), given, [50.0], task=GAUSSIAN)
    first = suggest_next_time(
        Nearest().eval(), replace(given, query_valid=torch.tensor([[True, False]])), [50.0], task=GAUSSIAN
    )
    last = float(given.times[0, -1])
    assert first.before == pytest.approx((40.0 - last + 2e-3) ** 2, rel=1e-6)
    assert both.before == pytest.approx(((40.0 - last + 2e-3) ** 2 + (60.0 - last + 2e-3) ** 2) / 2, rel=1e-6)
    assert float(first.after) == pytest.approx((10 + 2e-3) ** 2, rel=1e-6)


def test_an_ensemble_looks_where_its_members_disagree() -> None:
    """Two members that differ by t far from observations and agree at them."""

    class Member(nn.Module):
        def __init__(self, sign: float) -> None:
            super().__init__()
            self.sign = sign

        def forward(self, values: Tensor, times: Tensor, observed: Tensor, query_times: Tensor, **_: Any) -> Tensor:
            distance = (query_times.unsqueeze(2) - times.unsqueeze(1)).abs().amin(-1)
            return (self.sign * distance).unsqueeze(-1).expand(-1, -1, 2)

    members = [Member(1.0).eval(), Member(-1.0).eval()]
    found = suggest_next_time(members, question(40.0), [20.0, 38.0, 55.0])
    assert found.time == 38.0
    assert float(found.after[1]) == pytest.approx(4.0)


def test_real_forecasters_answer_and_repeat_themselves() -> None:
    model, given = forecaster(channels=4), batch(queries=2)
    again = [suggest_next_time(model, given, [9.0, 12.0, 30.0], task=GAUSSIAN, series=1) for _ in range(2)]
    assert torch.equal(again[0].gain, again[1].gain)
    assert again[0].time in (9.0, 12.0, 30.0)


def test_an_observation_is_put_in_its_place() -> None:
    one = only_series(batch(), 0)
    middle = float(one.times[0, 2:4].mean())
    more = with_observation(one, torch.tensor([middle]), torch.tensor([[7.0, 8.0]]).double())
    assert more.times.shape == (1, 7)
    torch.testing.assert_close(more.values[0, 3], torch.tensor([7.0, 8.0]).double())
    torch.testing.assert_close(more.times[0], one.times[0].new_tensor([*one.times[0, :3], middle, *one.times[0, 3:]]))
    torch.testing.assert_close(more.gaps.cumsum(1), more.times - 5)
    assert bool(more.observed[0, 3].all())


@pytest.mark.parametrize("observed", [True, False])
def test_static_channels_stay_what_they_are(observed: bool) -> None:
    """The same uncertainty as without them, of a model that does not look at them; any other channel is refused."""
    given = question(40.0)
    wide = torch.cat([given.values, torch.full_like(given.values, 3.0)], dim=-1)
    known = torch.cat([given.observed, torch.full_like(given.observed, observed)], dim=-1)
    static = replace(given, values=wide, observed=known)
    plain = suggest_next_time(Nearest().eval(), given, [20.0, 38.0], task=GAUSSIAN)
    found = suggest_next_time(Nearest().eval(), static, [20.0, 38.0], task=GAUSSIAN)
    torch.testing.assert_close(found.gain, plain.gain)
    more = with_observation(static, torch.tensor([38.0]), torch.tensor([[7.0, 8.0]]).double())
    at = int((more.times[0] == 38.0).nonzero())
    assert more.values[0, at].tolist() == [7.0, 8.0, 3.0, 3.0]
    assert more.observed[0, at].tolist() == [True, True, observed, observed]
    wide[0, 0, 3] = 4.0
    with pytest.raises(ConfigError, match="they forecast 2 channels of 4, and the others change"):
        suggest_next_time(Nearest().eval(), static, [20.0], task=GAUSSIAN)


def test_what_has_no_answer_is_refused() -> None:
    given = question(40.0)
    with pytest.raises(ConfigError, match="no uncertainty"):
        suggest_next_time(forecaster(), given, [1.0])
    with pytest.raises(DataError, match="question"):
        suggest_next_time(Nearest().eval(), batch(), [1.0], task=GAUSSIAN)
    with pytest.raises(DataError, match="candidates"):
        suggest_next_time(Nearest().eval(), given, [], task=GAUSSIAN)
    with pytest.raises(DataError, match=r"candidates: found .* numbers"):
        suggest_next_time(Nearest().eval(), given, ["+6h"], task=GAUSSIAN)  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="samples: found 0"):
        suggest_next_time(Nearest().eval(), given, [20.0], task=GAUSSIAN, samples=0)
    assert suggest_next_time(Nearest().eval(), given, [20.0], task=GAUSSIAN, samples=1).time == 20.0
    with pytest.raises(ShapeError, match="training mode"):
        suggest_next_time([Nearest().eval(), Nearest().train()], given, [20.0], task=GAUSSIAN)
    with pytest.raises(DataError, match="cost: wanted 2 numbers > 0"):
        suggest_next_time(Nearest().eval(), given, [20.0, 30.0], task=GAUSSIAN, cost=torch.ones(1))
    with pytest.raises(DataError, match="cost"):
        suggest_next_time(Nearest().eval(), given, [20.0, 30.0], task=GAUSSIAN, cost=torch.tensor([1.0, 0.0]))
    with pytest.raises(DataError, match="cost: found 'x', wanted one number > 0 for each candidate"):
        suggest_next_time(Nearest().eval(), given, [20.0, 30.0], task=GAUSSIAN, cost="x")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="imagined"):
        suggest_next_time(forecaster(channels=2), given, [20.0], task=GAUSSIAN)


def test_a_candidate_without_a_forecast_is_named() -> None:
    """An unstable model grows beyond all numbers; no number that might be found there can be imagined."""
    members = [forecaster(mode="readout", reparam="standard", variant="s5") for _ in range(2)]
    with torch.no_grad():
        for member in members:
            for block in member.backbone.typed_blocks():
                block.ssm.decay.value.fill_(0.5)
    with pytest.raises(DataError, match=r"candidates: the forecast at 1e\+09 is not finite"):
        suggest_next_time(members, batch(queries=2), [20.0, 1e9])
