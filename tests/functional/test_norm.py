"""The projectors' RMSNorm."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.comparison import assert_close
from tests.tolerances import EXACT
from tides.functional import rms_norm


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_formula(dtype: torch.dtype) -> None:
    x, weight = torch.randn(3, 5, dtype=dtype), torch.rand(5, dtype=torch.float64)
    found = rms_norm(x, weight, 1e-3)
    for row, result in zip(x, found, strict=True):
        mean_square = sum(abs(v.item()) ** 2 for v in row) / 5
        assert_close(result, row / (mean_square + 1e-3) ** 0.5 * weight, EXACT)


@given(scale=st.floats(1e2, 1e12))
def test_the_scale_of_large_inputs_does_not_matter(scale: float) -> None:
    x, weight = torch.randn(4, 6, dtype=torch.complex128), torch.ones(6, dtype=torch.float64)
    assert_close(rms_norm(x * scale, weight, 0.0), rms_norm(x, weight, 0.0), EXACT)


def test_zero_stays_zero_with_a_finite_gradient() -> None:
    for dtype in (torch.float32, torch.complex64):
        x = torch.zeros(2, 3, dtype=dtype, requires_grad=True)
        y = rms_norm(x, torch.ones(3))
        assert float(y.abs().max()) == 0
        (gradient,) = torch.autograd.grad(y.real.sum(), x)
        assert torch.isfinite(gradient.abs()).all()
