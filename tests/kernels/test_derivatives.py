"""Derivatives that fused operators lack come from the plain definition or are refused; none is silently zero."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from tests.comparison import assert_close
from tests.tolerances import IDENTITY
from tides.errors import BackendUnavailable
from tides.kernels import explain, linear_scan, use_backend
from tides.nn import Backbone, TIDESConfig

Function = Callable[[Tensor], Tensor]


def model(**fields: Any) -> tuple[Function, Tensor]:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"input_size": 2, "hidden_size": 5, "state_size": 4, "depth": 2, "rank": 2} | fields
    net = Backbone(TIDESConfig(projector_init="random", **sizes)).double().eval()
    gaps = torch.rand(1, 6).double()
    return lambda x: net(x, gaps)[0].square().sum(), torch.randn(1, 6, 2).double()


def tangent(f: Function, x: Tensor) -> Tensor:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(f(forward_ad.make_dual(x, torch.ones_like(x)))).tangent


TRANSFORMS: dict[str, Callable[[Function, Tensor], Any]] = {
    "grad": lambda f, x: torch.func.grad(f)(x),
    "vmap of grad": lambda f, x: torch.func.vmap(torch.func.grad(f))(x[None].repeat(2, 1, 1, 1)),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (torch.ones_like(x),))[1],
    "hessian": lambda f, x: torch.func.hessian(f)(x),
    "dual numbers": tangent,
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_take_the_plain_definition(name: str) -> None:
    f, x = model()
    with use_backend("reference"):
        wanted = TRANSFORMS[name](f, x)
    assert wanted.abs().max() > 0
    assert_close(TRANSFORMS[name](f, x), wanted, IDENTITY)
    with use_backend("torch"), pytest.raises(BackendUnavailable, match="plain definition"):
        TRANSFORMS[name](f, x)


def test_a_scan_by_itself_has_a_derivative_in_forward_mode() -> None:
    a, b = torch.full((1, 5, 1), 0.5), torch.ones(1, 5, 1)
    _, found = torch.func.jvp(lambda b: linear_scan(a, b)[0].sum(), (b,), (torch.ones_like(b),))
    assert found.item() == pytest.approx(8.0625)


def test_the_choice_says_why() -> None:
    reasons: list[str] = []

    def look(x: Tensor) -> Tensor:
        reasons.append(explain(x).reason)
        return x.sum()

    torch.func.grad(look)(torch.ones(1, 3, 2))
    assert "torch.func" in reasons[0]
    torch.func.vmap(look)(torch.ones(2, 1, 3, 2))
    assert "torch.func" not in reasons[1]


@pytest.mark.parametrize("fields", [{}, {"rank": "diag"}, {"variant": "tides-lambda"}, {"variant": "s5"}], ids=str)
@pytest.mark.parametrize("backend", ["cpu", "torch"])
def test_second_derivatives_are_refused(backend: str, fields: dict[str, Any]) -> None:
    pytest.importorskip("numba", reason="the cpu backend needs numba")
    f, x = model(**fields)
    x.requires_grad_()
    with use_backend(backend):  # type: ignore[arg-type]
        first = f(x)
        with pytest.raises(BackendUnavailable, match=r"create_graph.*use_backend\('reference'\)"):
            torch.autograd.grad(first, x, create_graph=True)
    with use_backend("reference"):
        (gradient,) = torch.autograd.grad(f(x), x, create_graph=True)
        assert torch.autograd.grad(gradient.square().sum(), x)[0].abs().max() > 0
