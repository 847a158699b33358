"""Column norms of a mix, in both forms, against their definition and its derivatives; several blocks of steps."""

import pytest
import torch
from torch import Tensor

from tests.comparison import assert_close
from tests.tolerances import IDENTITY
from tides.kernels.bilinear import PASSES
from tides.kernels.mix_norms import OuterNorms, TriangleNorms, mix_norms

EPS = 1e-3


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def divided_by_definition(x: Tensor, code: Tensor, factors: Tensor) -> Tensor:
    columns = torch.einsum("mphci,mni->mnphc", factors, code)
    return x / (columns.square().sum((2, 4)) / factors.shape[1] + EPS).sqrt()


@pytest.mark.parametrize("kind", ["outer", "triangle"])
@pytest.mark.parametrize(("m", "n", "p", "h", "i"), [(1, 2, 1, 1, 1), (2, 13, 3, 5, 4), (1, 70, 4, 6, 9)])
def test_norms_equal_the_definition(kind: str, m: int, n: int, p: int, h: int, i: int) -> None:
    torch.manual_seed(n)
    leaves = [normal(*shape).requires_grad_() for shape in ((m, n, h), (m, n, i), (m, p, h, 2, i))]
    cotangent = normal(m, n, h)
    wanted = divided_by_definition(*leaves)
    dx_wanted, d_code_wanted, d_factors_wanted = torch.autograd.grad(wanted, leaves, cotangent)
    x, code, factors = (leaf.detach() for leaf in leaves)
    norms = TriangleNorms(factors, EPS) if kind == "triangle" else OuterNorms(factors, EPS, PASSES["torch"])
    found, dx, d_code = torch.full_like(x, torch.nan), [], []
    for rows in (slice(n // 2), slice(n // 2, None)):
        inverse = norms.divide(x[:, rows], code[:, rows], found[:, rows])
        dx.append(cotangent[:, rows] * inverse)
        d_code.append(norms.backward(dx[-1], found[:, rows], inverse, code[:, rows]))
    assert_close(found, wanted, IDENTITY, "x divided")
    assert_close(torch.cat(dx, 1), dx_wanted, IDENTITY, "gradient of x")
    assert_close(torch.cat(d_code, 1), d_code_wanted, IDENTITY, "gradient of the code")
    assert_close(norms.d_factors(), d_factors_wanted, IDENTITY, "gradient of the factors")


def test_which_norms_are_taken() -> None:
    factors, norm, passes = normal(1, 2, 3, 2, 4), normal(1, 2), PASSES["torch"]
    assert mix_norms(factors, None, EPS, passes) is None
    assert isinstance(mix_norms(factors, norm, EPS, passes), TriangleNorms)
    # Fused passes are few launches whatever the device.
    assert isinstance(mix_norms(factors, norm, EPS, passes._replace()), OuterNorms)
