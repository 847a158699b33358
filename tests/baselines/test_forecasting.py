"""What all forecasters share: their doors, their settings, their way through the training loops."""

import pytest
import torch

from tests.baselines.questions import question
from tests.baselines.small import SMALL, answer, draw, make
from tides import baselines
from tides.baselines.cru import CRU
from tides.baselines.published import published
from tides.data import IrregularBatch
from tides.errors import DataError, ShapeError
from tides.training import Forecasting, TrainConfig, fit_population, population_losses

NAMES = baselines.names("forecasting")
LEARNED = [name for name in NAMES if baselines.entry(name).model_class().trainable]
STACKABLE = [
    # Recurrent models take seconds on the plain path.
    pytest.param(name, marks=() if name in ("imts-mixer", "grafiti", "mtan") else pytest.mark.slow)
    for name in LEARNED
    if baselines.entry(name).model_class().stackable
]


@pytest.mark.parametrize("name", LEARNED)
def test_published_settings_are_valid(name: str) -> None:
    found = published(name, "Physiome-ODE")
    assert found.protocol in ("physiome", "ours")
    config = baselines.config_of(name, input_size=5, **found.model)
    assert config.time_scale == 1.0
    assert TrainConfig.from_dict(found.train).epochs >= 45
    # The published sizes are the defaults.
    own = {key: value for key, value in found.model.items() if key not in ("time_scale", "first_gap")}
    assert baselines.config_of(name, input_size=5).to_dict().items() >= own.items()


@pytest.mark.parametrize("name", NAMES)
def test_values_that_are_missing_do_not_matter(name: str) -> None:
    batch, model = draw(), make(name).eval()
    loud = batch._replace(values=torch.where(batch.observed, batch.values, torch.nan))
    torch.testing.assert_close(answer(name, model, loud), answer(name, model, batch), rtol=0, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_units_of_the_channels(name: str) -> None:
    """Channels in other units, told to the model, give the same forecasts in those units."""
    batch, plain, told = draw(), make(name).eval(), make(name).eval()
    shift, scale = torch.tensor([1.0, -2.0, 0.5]).double(), torch.tensor([2.0, 0.1, 30.0]).double()
    told.calibrate(torch.ones(1), shift, scale)  # type: ignore[operator]
    plain.calibrate(torch.ones(1))  # type: ignore[operator]
    other = batch._replace(values=batch.values * scale + shift)
    wanted = (answer(name, plain, batch) * scale + shift) * batch.query_valid.unsqueeze(-1)
    torch.testing.assert_close(answer(name, told, other), wanted, rtol=1e-8, atol=1e-9)


def test_the_door() -> None:
    batch, model = draw(), make("imts-mixer")
    with pytest.raises(ShapeError, match="values: found shape"):
        model(batch.values[..., :2], batch.times, None, batch.query_times)
    with pytest.raises(ShapeError, match="query_times: found shape"):
        model(batch.values, batch.times, batch.observed, batch.query_times[:2])
    with pytest.raises(DataError, match="times: decrease"):
        model(batch.values, batch.times.flip(1), batch.observed, batch.query_times)


STARTED = ("linodenet", "cru", "gru-ode-bayes", "neural-flow-gru", "latent-ode")


@pytest.mark.parametrize("name", STARTED)
def test_no_series_begins_before_its_start(name: str) -> None:
    batch, model = draw(), make(name, first_gap="start")
    earlier = batch.times - torch.tensor([[0.0], [5.0], [0.0]])
    with pytest.raises(DataError, match="times: series 1 begins before time 0"):
        answer(name, model, batch._replace(times=earlier))


@pytest.mark.parametrize("policy", ["start", 0.5])
def test_questions_before_the_beginning_move_nothing(policy: str | float) -> None:
    model, asked = make("cru", first_gap=policy, time_scale=10.0), question(draw(lengths=(9, 7), queries=2))
    early = torch.cat([asked.query_times, torch.full((2, 1), -3.0).double()], dim=1)
    more = asked._replace(query_times=early, query_valid=torch.ones_like(early, dtype=torch.bool))
    assert isinstance(model, CRU)
    for one in (asked, more):
        gaps = model.events(one).gaps
        assert (gaps >= 0).all()
        begin = 0.0 if policy == "start" else asked.times[:, 0] - 0.05
        last = one.query_times.where(one.query_valid, 0).amax(1)
        torch.testing.assert_close(gaps.sum(1), last - begin)


def resident(seed: int) -> IrregularBatch:
    batch = draw(seed, lengths=(9, 7, 8, 5, 9, 6, 8, 7))
    return IrregularBatch(
        values=batch.values.float(),
        times=batch.times,
        gaps=batch.gaps.float(),
        observed=batch.observed,
        valid=batch.valid,
        targets=torch.ones(8, 4, 3),
        target_observed=batch.query_valid.unsqueeze(-1).expand(8, 4, 3),
        query_times=batch.query_times,
        query_valid=batch.query_valid,
    )


@pytest.mark.parametrize("name", STACKABLE)
def test_a_population_learns_a_constant(name: str) -> None:
    """Two folds as one stack, through the real training loop: the error of ŷ = 1 falls below that of ŷ = 0."""
    torch.manual_seed(0)
    models = [baselines.build(name, **{**SMALL[name], "time_scale": 10.0}) for _ in range(2)]
    config = TrainConfig(epochs=12, batch_size=4, lr=3e-2, schedule="constant", calibrate="none", clip_norm=1.0)
    data = [(resident(seed), resident(seed + 10)) for seed in range(2)]
    fit_population(models, Forecasting(), data, config, progress=False)
    found = population_losses(models, Forecasting(), [val for _, val in data])
    assert max(found) < 0.6
