"""Latent ODE: trajectories of a linear field against its matrix exponential."""

import builtins
from typing import Any

import pytest
import torch
from torch import nn

from tests.baselines.questions import question
from tests.baselines.small import answer, draw, make
from tides.baselines.latent_ode import LatentODE
from tides.errors import ConfigError


@pytest.mark.parametrize("method", ["rk4", "dopri5"])
def test_a_linear_field(method: str) -> None:
    if method == "dopri5":
        pytest.importorskip("torchdiffeq")
    model = make("latent-ode", method=method, steps=60)
    assert isinstance(model, LatentODE)
    assert model.stackable is (method == "rk4")
    matrix = torch.randn(4, 4, dtype=torch.float64)
    linear = nn.Linear(4, 4, bias=False).double()
    with torch.no_grad():
        linear.weight.copy_(matrix)
        model.field = linear
        start, elapsed = torch.randn(3, 4, dtype=torch.float64), torch.rand(3, 5, dtype=torch.float64)
        elapsed[0, 0] = 0.0
        found = model.trajectory(start, elapsed)
    wanted = (torch.matrix_exp(matrix * elapsed[..., None, None]) @ start[:, None, :, None])[..., 0]
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


def test_the_encoder_runs_backwards_over_the_gaps() -> None:
    """With an idle cell, the state before the first row is the flow over minus the sum of all gaps."""
    model = make("latent-ode", gap_steps=8)
    assert isinstance(model, LatentODE)
    asked, h = question(), model.config.hidden_size
    matrix = 0.5 * torch.randn(h, h, dtype=torch.float64)
    linear = nn.Linear(h, h, bias=False).double()
    with torch.no_grad():
        linear.weight.copy_(matrix)
        model.encoder_field, model.to_latent = nn.Sequential(linear), nn.Sequential(nn.Identity())
        # Keep everything at every row except that the last row of each series sets the state to one.
        begin = asked.times[:, :1] - 0.1
        last = asked.valid.sum(1) - 1
        observed = torch.zeros_like(asked.observed)
        observed[torch.arange(3), last, 0] = True
        model.cell.step = lambda projected, state: torch.ones_like(state)  # type: ignore[method-assign]
        found = model.encode(asked._replace(observed=observed), begin)
    total = asked.times.gather(1, last[:, None]) - begin
    wanted = torch.matrix_exp(-matrix * total[..., None]) @ torch.ones(h, dtype=torch.float64)
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


def test_without_torchdiffeq_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "torchdiffeq":
            raise ImportError(name)
        return original(name, *args, **kwargs)

    model = make("latent-ode", method="dopri5")
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ConfigError, match=r"tides-ssm\[baselines\]"):
        answer("latent-ode", model, draw())
