"""Reparameterisations: exact inverses on their range, and a real part that cannot become positive."""

import inspect
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.comparison import assert_close
from tests.tolerances import EXACT
from tides.errors import ConfigError
from tides.functional import reparam_range, reparameterise, reparameterise_inverse
from tides.functional.heads import StepHead, step_sizes

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
        for found, value in zip(reparameterise(theta, kind), wanted[kind], strict=True):
            assert_close(found, torch.tensor(value, dtype=torch.float64), EXACT, kind)


def test_the_inverse_is_not_defined_outside_the_range() -> None:
    assert not torch.isfinite(reparameterise_inverse(scalar(0.5), "exp")).all()
    assert not torch.isfinite(reparameterise_inverse(scalar(0.5), "softplus")).all()


def test_every_kind_states_its_range() -> None:
    stated = {kind: reparam_range(kind) for kind in KINDS}
    assert stated == {"standard": "(-inf, inf)", "exp": "(-inf, 0)", "stable": "[-2, 0)", "softplus": "(-inf, 0)"}


def test_softplus_keeps_every_digit_where_the_library_cuts_them_off() -> None:
    """torch's softplus is linear beyond 20, where e^−20 is still nine digits above the last one of a double."""
    for theta in (20.5, 25.0, 35.0):
        wanted = scalar(theta + math.log1p(math.exp(-theta)))
        assert_close(-reparameterise(scalar(theta), "softplus"), wanted, 1e-15)
        head = StepHead(torch.zeros(1, 2, dtype=torch.float64), scalar(theta))
        assert_close(step_sizes(torch.zeros(1, 1, dtype=torch.float64), scalar(1.0), head)[0], wanted, 1e-15)


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(ConfigError, match="reparam: found 'cubic', wanted one of standard, exp, stable, softplus"):
        inspect.unwrap(reparameterise)(scalar(1.0), "cubic")  # without the shape checker, who would speak first
