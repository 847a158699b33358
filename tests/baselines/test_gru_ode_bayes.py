"""GRU-ODE-Bayes: its solver against fine steps, its cell against torch's, its jumps."""

import pytest
import torch
from torch import nn

from tests.baselines.questions import question
from tests.baselines.small import answer, draw, make
from tides.baselines.gru import GRUCell
from tides.baselines.gru_ode_bayes import GRUODEBayes


def test_few_runge_kutta_steps_are_many_euler_steps() -> None:
    model = make("gru-ode-bayes")
    assert isinstance(model, GRUODEBayes)
    with torch.no_grad():
        for weight in model.field.parameters():
            weight.mul_(3)
        start, gap = 2 * torch.rand(5, 6, dtype=torch.float64) - 1, torch.tensor([[0.0], [0.01], [0.2], [0.5], [1.0]])
        gap = gap.double()
        found, n = model.solve(start, gap, 8), 4_000
        euler = [start, start]
        for refinement, pieces in enumerate((n // 2, n)):
            for _ in range(pieces):
                euler[refinement] = euler[refinement] + gap / pieces * model.field(euler[refinement])
        # Euler's error halves with its step, which leaves the second order by extrapolation.
        torch.testing.assert_close(found, 2 * euler[1] - euler[0], rtol=1e-5, atol=1e-6)
    assert torch.equal(found[0], start[0])


def test_a_gap_may_be_cut_anywhere() -> None:
    """The flow of an autonomous field: first a, then b, is a + b."""
    model = make("gru-ode-bayes")
    assert isinstance(model, GRUODEBayes)
    start = torch.rand(3, 6, dtype=torch.float64)
    a, b = torch.full((3, 1), 0.3).double(), torch.full((3, 1), 0.4).double()
    torch.testing.assert_close(
        model.solve(model.solve(start, a, 16), b, 16), model.solve(start, a + b, 16), rtol=1e-6, atol=1e-8
    )


def test_the_cell_is_a_gru() -> None:
    torch.manual_seed(0)
    ours, theirs = GRUCell(3, 5), nn.GRU(3, 5, batch_first=True)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(ours.from_input.weight)
        theirs.bias_ih_l0.copy_(ours.from_input.bias)
        theirs.weight_hh_l0.copy_(ours.from_state.weight)
        theirs.bias_hh_l0.copy_(ours.from_state.bias)
    x = torch.randn(2, 7, 3)
    torch.testing.assert_close(ours.sequence(x), theirs(x)[0])
    torch.testing.assert_close(ours.sequence(x, reverse=True), theirs(x.flip(1))[0].flip(1))


@pytest.mark.parametrize("name", ["gru-ode-bayes", "neural-flow-resnet"])
def test_a_question_does_not_change_other_answers(name: str) -> None:
    batch, model = draw(), make(name).eval()
    fewer = batch._replace(query_times=batch.query_times[:, 1:3], query_valid=batch.query_valid[:, 1:3])
    torch.testing.assert_close(answer(name, model, fewer), answer(name, model, batch)[:, 1:3])


def test_queries_are_answered_from_the_past_alone() -> None:
    """A query between observations sees those before it and none after."""
    model, asked = make("gru-ode-bayes").eval(), question()
    between = (asked.times[:, 3:4] + asked.times[:, 4:5]) / 2
    asked = asked._replace(query_times=between, query_valid=torch.ones_like(between, dtype=torch.bool))
    values = asked.values.clone()
    values[:, 4:] = 1e3
    found = model.answer(asked._replace(values=values))  # type: ignore[operator]
    torch.testing.assert_close(found, model.answer(asked))  # type: ignore[operator]


def test_a_row_without_observations_leaves_the_state() -> None:
    model = make("gru-ode-bayes").eval()
    assert isinstance(model, GRUODEBayes)
    h, x = torch.rand(2, 6, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    observed = torch.tensor([[False] * 3, [True, False, False]])
    after = model.jump(h, x, observed)
    assert torch.equal(after[0], h[0])
    assert not torch.equal(after[1], h[1])
    other = x.clone()
    other[1, 1:] = 50.0
    torch.testing.assert_close(model.jump(h, other, observed), after)
