"""Reparameterisations: exact inverses on their range, and a real part that cannot become positive."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.comparison import assert_close
from tests.tolerances import EXACT
from tides.functional import reparam_range, reparameterise, reparameterise_inverse

KINDS = ("standard", "exp", "stable", "softplus")
STABLE_KINDS = ("exp", "stable", "softplus")
RANGES = {"standard": (-1e6, 1e6), "exp": (-1e6, -1e-9), "stable": (-2.0, -1e-9), "softplus": (-1e6, -1e-9)}


def scalar(x: float) -> torch.Tensor:
    return torch.tensor([x], dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS)
@given(share=st.floats(0, 1))
def test_a_decay_rate_survives_the_round_trip(kind: str, share: float) -> None:
    low, high = RANGES[kind]
    # Half of the draws uniformly on the range, half evenly over its orders of magnitude.
    linear = low + share * (high - low)
    for decay in (linear, -math.exp(math.log(-low) + share * math.log(max(-high, 1e-9) / -low))):
        theta = reparameterise_inverse(scalar(decay), kind)
        assert_close(reparameterise(theta, kind), scalar(decay), EXACT, f"{kind} at {decay}")


@pytest.mark.parametrize("kind", KINDS)
@given(theta=st.floats(1e-3, 30))
def test_a_parameter_survives_the_round_trip(kind: str, theta: float) -> None:
    again = reparameterise_inverse(reparameterise(scalar(theta), kind), kind)
    # `stable` and `softplus` map to a rate whose rounding costs a few digits of θ again.
    assert_close(again, scalar(theta), 1e-9, kind)


@pytest.mark.parametrize("kind", STABLE_KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(theta=st.floats(-50, 50))
def test_the_rate_is_negative(kind: str, dtype: torch.dtype, theta: float) -> None:
    value = torch.tensor([theta], dtype=dtype, requires_grad=True)
    rate = reparameterise(value, kind)
    assert float(rate) < 0
    assert math.isfinite(float(rate))
    (gradient,) = torch.autograd.grad(rate.sum(), value)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("kind", STABLE_KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(theta=st.floats(allow_nan=False))
def test_the_rate_is_never_positive(kind: str, dtype: torch.dtype, theta: float) -> None:
    assert float(reparameterise(torch.tensor([theta]).to(dtype), kind)) <= 0


def test_formulas() -> None:
    theta = torch.tensor([-3.0, 0.0, 0.7, 20.5, 45.0], dtype=torch.float64)
    wanted = {
        "standard": [float(t) for t in theta],
        "exp": [-math.exp(t) for t in theta],
        "stable": [-1 / (t * t + 0.5) for t in theta.tolist()],
        "softplus": [-math.log1p(math.exp(t)) for t in theta],
    }
    for kind in KINDS:
        assert_close(reparameterise(theta, kind), torch.tensor(wanted[kind], dtype=torch.float64), EXACT, kind)


def test_the_inverse_is_not_defined_outside_the_range() -> None:
    assert not torch.isfinite(reparameterise_inverse(scalar(0.5), "exp")).all()
    assert not torch.isfinite(reparameterise_inverse(scalar(0.5), "softplus")).all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_states_its_range(kind: str) -> None:
    assert "inf" in reparam_range(kind) or "-2" in reparam_range(kind)
