"""LinODEnet: the filter's promises, and the model against a loop with torch's own exponential."""

import pytest
import torch
from torch import Tensor

from tests.baselines.questions import question
from tests.baselines.small import make
from tides.baselines import build
from tides.baselines.forecasting import Question
from tides.baselines.linodenet import LinODEnet
from tides.errors import ConfigError


def stirred() -> LinODEnet:
    """A model whose gates are open; at the start they are all shut."""
    model = make("linodenet")
    assert isinstance(model, LinODEnet)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "gates" in name or name == "speed":
                parameter.fill_(0.3 if "gates" in name else 2.0)
    return model


def test_nothing_observed_changes_nothing() -> None:
    model = stirred()
    prior, y = torch.randn(4, 5, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    assert torch.equal(model.filter(prior, y, torch.zeros_like(prior)), prior)
    assert not torch.equal(model.filter(prior, y, torch.ones_like(prior)), prior)


def test_at_the_start_an_observation_replaces_the_forecast() -> None:
    model = make("linodenet")
    prior, y = torch.randn(4, 5, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    mask = torch.tensor([1.0, 0, 1, 0, 0]).double().expand(4, 5)
    torch.testing.assert_close(model.filter(prior, y, mask), torch.where(mask > 0, y, prior))  # type: ignore


def by_loop(model: LinODEnet, asked: Question, row: int) -> Tensor:
    """One series: observations and queries sorted by hand."""
    rows = [(float(asked.times[row, k]), 0, k) for k in range(asked.times.shape[1]) if asked.valid[row, k]]
    rows += [(float(asked.query_times[row, k]), 1, k) for k in range(asked.query_times.shape[1])]
    answers = torch.zeros(asked.query_times.shape[1], model.channels, dtype=torch.float64)
    state = model.start
    now = sorted(rows)[0][0] - float(model.calibration.first_gap / model.calibration.time_scale) / model.time_factor
    for moment, kind, k in sorted(rows):
        state = torch.matrix_exp(model.speed * model.dynamics * (moment - now)) @ state
        now = moment
        prior, y, mask = model.decoder(state)[:5], torch.zeros(5).double(), torch.zeros(5).double()
        if kind == 0:
            y[:3], mask[:3] = asked.values[row, k], asked.observed[row, k].double()
        estimate = model.filter(prior, y, mask)
        if kind == 1:
            answers[k] = estimate[:3]
        state = model.encoder(torch.cat([estimate, model.filling]))
    return answers


def test_the_recursion() -> None:
    model, asked = stirred(), question()
    # A query between observations, and one at the time of an observation.
    queries = asked.query_times.clone()
    queries[0, 0], queries[2, 1] = asked.times[0, 4] + 1e-3, asked.times[2, 3]
    asked = asked._replace(query_times=queries, query_valid=torch.ones_like(queries, dtype=torch.bool))
    found = model.answer(asked)
    for row in range(3):
        torch.testing.assert_close(found[row], by_loop(model, asked, row), rtol=1e-8, atol=1e-10)


def test_the_filter_needs_room_for_all_channels() -> None:
    with pytest.raises(ConfigError, match="hidden_size: found 4, wanted input_size = 5"):
        build("linodenet", input_size=5, hidden_size=4)
