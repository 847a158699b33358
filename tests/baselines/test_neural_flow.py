"""Flows: the identity at gap 0, invertible at every other."""

import pytest
import torch
from torch import Tensor

from tests.baselines.small import answer, draw, make
from tides.baselines.neural_flow import CouplingFlow, GRUFlow, NeuralFlow, ResNetFlow
from tides.baselines.spectral import SpectralLinear

NAMES = ("neural-flow-resnet", "neural-flow-gru", "neural-flow-coupling")


@pytest.mark.parametrize("name", NAMES)
def test_no_time_no_change(name: str) -> None:
    model = make(name)
    assert isinstance(model, NeuralFlow)
    h = torch.randn(4, 6, dtype=torch.float64)
    assert torch.equal(model.advances()[0](h, torch.zeros(4, 1, dtype=torch.float64)), h)
    assert not torch.allclose(model.advances()[0](h, torch.ones(4, 1, dtype=torch.float64)), h)


@pytest.mark.parametrize("kind", [ResNetFlow, GRUFlow])
@pytest.mark.parametrize("gap", [0.1, 1.0, 30.0])
def test_the_inverse_of_a_contraction_is_a_fixed_point(kind: type[ResNetFlow] | type[GRUFlow], gap: float) -> None:
    """h = y − (F(h, Δ) − h) converges from anywhere, with large weights too, because their norm is divided out."""
    torch.manual_seed(0)
    flow = kind(6, 9).double().train()
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.mul_(5)
        for _ in range(20):
            advance = flow.prepare()
        wanted = 2 * torch.rand(8, 6, dtype=torch.float64) - 1
        gaps = torch.full((8, 1), gap, dtype=torch.float64)
        y = advance(wanted, gaps)
        h = torch.zeros_like(y)
        for _ in range(3000):
            h = y - (advance(h, gaps) - h)
    torch.testing.assert_close(h, wanted, rtol=1e-6, atol=1e-6)


def test_the_inverse_of_a_coupling() -> None:
    torch.manual_seed(0)
    flow = CouplingFlow(5, 8).double()
    h, gap = torch.randn(4, 5, dtype=torch.float64), torch.rand(4, 1, dtype=torch.float64)
    y, phi = flow.prepare()(h, gap), flow.phi(gap)
    first, second = y[:, :2], y[:, 2:]

    def undo(x: Tensor, net: torch.nn.Module, other: Tensor, phi: Tensor) -> Tensor:
        scale, shift = net(torch.cat([other, gap], dim=-1)).chunk(2, dim=-1)
        return (x - shift * phi) * torch.exp(-torch.tanh(scale) * phi)

    first = undo(first, flow.first_from_second, second, phi[:, :2])
    second = undo(second, flow.second_from_first, first, phi[:, 2:])
    torch.testing.assert_close(torch.cat([first, second], dim=-1), h)


def test_spectral_norm() -> None:
    torch.manual_seed(0)
    layer = SpectralLinear(7, 4).double().train()
    with torch.no_grad():
        layer.weight.mul_(10)
    for _ in range(20):
        weight = layer.scaled_weight()
    assert float(torch.linalg.matrix_norm(weight.detach(), 2)) == pytest.approx(0.97, rel=1e-6)
    before = layer.left.clone()
    layer.eval().scaled_weight()
    assert torch.equal(layer.left, before)


@pytest.mark.parametrize("name", NAMES)
def test_training_twice_in_a_row(name: str) -> None:
    """Two calls before one backward pass: stored vectors that move on must not spoil the first graph."""
    model, batch = make(name).train(), draw()
    (answer(name, model, batch).sum() + answer(name, model, batch).sum()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
