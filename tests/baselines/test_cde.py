"""Neural CDEs against matrix exponentials, a library's solver, automatic differentiation and finer windows."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.baselines.small import draw, make
from tides import baselines
from tides.baselines.cde import AddedPenalty
from tides.baselines.inputs import Series
from tides.baselines.log_ncde import LogField, LogNCDE
from tides.baselines.ncde import NCDE
from tides.baselines.nrde import window_log_signatures
from tides.baselines.path import make_path
from tides.baselines.signature import log_signature

H, D = 4, 2


class LinearField(nn.Module):
    """f(h) = (A_1 h, …, A_D h): the CDE of a straight path is then solved by a matrix exponential."""

    def __init__(self) -> None:
        super().__init__()
        self.matrices = torch.randn(D, H, H, dtype=torch.float64) / 3

    def forward(self, h: Tensor) -> Tensor:
        return torch.einsum("cij,bj->bic", self.matrices, h).flatten(1)


def straight(points: int) -> tuple[Tensor, Tensor]:
    """A straight path in two channels from the origin, and its end."""
    end = torch.tensor([1.5, -0.7], dtype=torch.float64)
    return (torch.linspace(0, 1, points, dtype=torch.float64)[:, None] * end).unsqueeze(0), end


def solved(solver: str, points: int) -> tuple[Tensor, Tensor]:
    """The state of an NCDE with a linear field at the end of a straight path, and the exact one."""
    torch.manual_seed(3)
    fields = {"input_size": D, "classes": H, "hidden_size": H, "solver": solver}
    model = baselines.build("ncde", **fields).double()
    assert isinstance(model, NCDE)
    model.field = LinearField()  # type: ignore[assignment]
    with torch.no_grad():
        model.start.weight.zero_()
        model.head.weight.copy_(torch.eye(H))
        model.head.bias.zero_()
        path, end = straight(points)
        generator = torch.einsum("c,cij->ij", end, model.field.matrices)  # type: ignore[arg-type]
        return model(path, 1.0)[0], torch.linalg.matrix_exp(generator) @ model.start.bias


@pytest.mark.parametrize("solver", ["rk4", "dopri5"])
def test_linear_field_against_the_matrix_exponential(solver: str) -> None:
    pytest.importorskip("torchcde")
    found, exact = solved(solver, 21)
    torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-5)


def test_heun_converges_with_order_two() -> None:
    errors = []
    for points in (11, 21, 41):
        found, exact = solved("heun", points)
        errors.append(float((found - exact).norm()))
    assert errors[-1] < 1e-2
    for coarse, fine in pairwise(errors):
        assert 3.4 < coarse / fine < 4.6


def test_ncde_against_torchcde() -> None:
    """Heun along the same spline, solved by the field's own library."""
    torchcde = pytest.importorskip("torchcde")
    model, batch = make("ncde"), draw(lengths=(12, 12))
    assert isinstance(model, NCDE)
    with torch.no_grad():
        series: Series = model.inputs(batch.values, batch.gaps, batch.observed, batch.valid)
        points, _ = make_path(series, model.settings)
        spline = torchcde.CubicSpline(torchcde.hermite_cubic_coefficients_with_backward_differences(points))
        states = torchcde.cdeint(
            X=spline, func=model.matrix, z0=model.start(points[:, 0]), t=spline.grid_points, adjoint=False,
            method="heun2", options={"step_size": 1.0},
        )  # fmt: skip
        torch.testing.assert_close(model.logits(series), model.head(states[:, -1]))


def test_padding_with_another_solver() -> None:
    pytest.importorskip("torchcde")
    model, batch = make("ncde", solver="rk4"), draw()
    longer = batch.padded(3)
    found = model(longer.values, longer.gaps, observed=longer.observed, valid=longer.valid)
    expected = model(batch.values, batch.gaps, observed=batch.observed, valid=batch.valid)
    torch.testing.assert_close(found, expected)


def test_brackets_against_automatic_differentiation() -> None:
    channels = 3
    field = LogField(H, 6, 2, channels, 0.0).double()
    with torch.no_grad():
        for parameter in field.parameters():
            parameter.mul_(3)
    weights = field.weights()
    h = torch.randn(2, H, dtype=torch.float64)
    control = torch.randn(2, channels + 3, dtype=torch.float64)

    def fields(state: Tensor) -> Tensor:
        return torch.stack([field.slope(state[None], one[None], weights)[0] for one in torch.eye(channels).double()])

    found = field.slope(h, control, weights)
    for row in range(2):
        f, jacobian = fields(h[row]), torch.func.jacrev(fields)(h[row])  # (c, n), (c, n, n)
        expected = control[row, :channels] @ f
        pairs = [(0, 1), (0, 2), (1, 2)]
        for coefficient, (i, j) in zip(control[row, channels:], pairs, strict=True):
            expected = expected + coefficient * (jacobian[j] @ f[i] - jacobian[i] @ f[j])
        torch.testing.assert_close(found[row], expected)


def test_brackets_bring_coarse_windows_closer() -> None:
    """Order and signs: with the right brackets one window of many points comes near the solution over single points."""
    torch.manual_seed(5)
    t = torch.linspace(0, 1, 161, dtype=torch.float64)
    turns = torch.stack([torch.cos(12 * t) - 1, torch.sin(12 * t)], -1).unsqueeze(0) * 0.3

    def final(level: int, window: int) -> Tensor:
        torch.manual_seed(7)
        fields = {"input_size": 2, "classes": H, "hidden_size": H, "level": level, "window": window}
        model = baselines.build("log-ncde", **fields, field_width=8, field_depth=2).double().eval()
        assert isinstance(model, LogNCDE)
        with torch.no_grad():
            for parameter in model.field.parameters():
                parameter.mul_(2)
            return model(turns, 1.0)

    exact = final(1, 1)
    errors = {level: float((final(level, 10) - exact).norm()) for level in (1, 2)}
    assert errors[2] < 0.2 * errors[1]


def test_windows_share_their_ends_and_begin_at_the_origin() -> None:
    path = torch.randn(2, 7, 3, dtype=torch.float64)
    found = window_log_signatures(path, 3, 2)
    based = torch.cat([torch.zeros(2, 1, 3, dtype=torch.float64), path], dim=1)
    bounds = [(0, 3), (3, 6), (6, 7)]
    expected = [log_signature(based[:, low : high + 1], 2) for low, high in bounds]
    torch.testing.assert_close(found, torch.stack(expected, 1))
    torch.testing.assert_close(found[..., :3].sum(1), path[:, -1])


@pytest.mark.parametrize("shape", [(4, 3), (5,)])
def test_penalty_is_as_if_added_to_the_loss(shape: tuple[int, ...]) -> None:
    weight = torch.randn(shape, dtype=torch.float64, requires_grad=True)

    def penalty() -> Tensor:
        return weight.abs().mean() if weight.ndim == 1 else weight.norm(dim=1).mean()

    (expected,) = torch.autograd.grad(weight.square().sum() + 0.3 * penalty(), weight)
    (found,) = torch.autograd.grad(AddedPenalty.apply(weight, 0.3).square().sum(), weight)
    torch.testing.assert_close(found, expected)


def test_penalty_acts_in_training_only() -> None:
    batch, gradients = draw(), {}
    for strength in (0.0, 0.5):
        for training in (True, False):
            model: Any = make("log-ncde", lipschitz=strength).train(training)
            logits = model(batch.values, batch.gaps, observed=batch.observed, valid=batch.valid)
            logits.sum().backward()
            gradients[strength, training] = model.field.out.weight.grad
    torch.testing.assert_close(gradients[0.5, False], gradients[0.0, False])
    assert (gradients[0.5, True] - gradients[0.0, True]).norm() > 1e-3
