"""The scan's contract: real and complex, both directions, initial states, packing, gradients through `s_last`."""

import pytest
import torch
from torch import Tensor

from tests.comparison import assert_close
from tests.kernels.backends import Target, over_targets, running
from tests.tolerances import EXACT, FLOAT32_FORWARD, FLOAT32_GRADIENT
from tides import functional as tf
from tides.errors import ShapeError
from tides.kernels import linear_scan
from tides.kernels.dispatch import last_backend

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


def scan_inputs(dtype: torch.dtype, l: int, p: int, packed: bool, start: bool) -> tuple[list[Tensor], Tensor | None]:
    """(a, b[, s0]) with |a| around 0.9, and the boundaries."""
    b = 1 if packed else 3
    bounds = sorted({0, l // 3, l // 3 + 1, l}) if packed else None
    n = b if bounds is None else len(bounds) - 1
    a = torch.randn(b, l, p, dtype=dtype)
    a = a / a.abs() * (0.8 + 0.2 * torch.rand(b, l, p))
    parts = [a.to(dtype), torch.randn(b, l, p, dtype=dtype)]
    if start:
        parts.append(torch.randn(n, p, dtype=dtype))
    return parts, None if bounds is None else torch.tensor(bounds)


@over_targets()
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("l", "p"), [(1, 1), (2, 3), (63, 3), (65, 16), (500, 1), (1000, 5)])
@pytest.mark.parametrize(
    ("packed", "start", "reverse"),
    [(False, False, False), (False, True, True), (True, True, False), (True, False, True)],
)
def test_equals_the_loop(
    target: Target, dtype: torch.dtype, l: int, p: int, packed: bool, start: bool, reverse: bool
) -> None:
    parts, bounds = scan_inputs(dtype, l, p, packed, start)
    double = torch.complex128 if dtype.is_complex else torch.float64
    forward, gradient = (FLOAT32_FORWARD, FLOAT32_GRADIENT) if dtype in DTYPES[::2] else (EXACT, EXACT)

    def outcome(function, leaves: list[Tensor], limits: Tensor | None) -> list[Tensor]:  # type: ignore[no-untyped-def]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        s, last = function(*leaves, reverse=reverse, cu_seqlens=limits)
        torch.manual_seed(1)
        cotangents = [torch.randn(x.shape, dtype=double).to(x) for x in (s, last)]
        total = sum((x * y).sum() for x, y in zip((s, last), cotangents, strict=True))
        return [s, last, *torch.autograd.grad(total.real if total.is_complex() else total, leaves)]

    wanted = outcome(tf.linear_scan, [part.to(double) for part in parts], bounds)
    with running(target):
        limits = None if bounds is None else bounds.to(target.device)
        found = outcome(linear_scan, [part.clone().to(target.device) for part in parts], limits)
        assert last_backend() == target.backend
    for index, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        if float(theirs.abs().max()) == 0:
            assert float(ours.abs().max()) == 0
        else:
            assert_close(ours.cpu(), theirs, forward if index < 2 else gradient, f"part {index}")


@over_targets()
def test_broadcast_coefficients(target: Target) -> None:
    """A coefficient without a time axis broadcasts and receives the sum of its gradients."""
    a = torch.full((1, 1, 4), 0.9, dtype=torch.float64, device=target.device, requires_grad=True)
    b = torch.randn(2, 9, 4, dtype=torch.float64, device=target.device)
    with running(target):
        s, _ = linear_scan(a, b)
        (found,) = torch.autograd.grad(s.sum(), a)
    s, _ = tf.linear_scan(a.expand_as(b), b)
    (wanted,) = torch.autograd.grad(s.sum(), a)
    assert_close(found, wanted, EXACT)


@over_targets()
def test_boundaries_are_checked(target: Target) -> None:
    a = torch.ones(1, 5, 2, device=target.device)
    with running(target), pytest.raises(ShapeError, match="cu_seqlens"):
        linear_scan(a, a, cu_seqlens=torch.tensor([0, 3], device=target.device))


ONE, TWO = torch.ones(1, 5, 3), torch.ones(2, 5, 3)
MISUSES = {
    "steps": ("a", (TWO[:, :4], TWO), {}),
    "width": ("a", (TWO[..., :2], TWO), {}),
    "no batch": ("a, b", (TWO[0], TWO[0]), {}),
    "no tensor": ("a, b", (TWO.tolist(), TWO), {}),
    "no steps": ("b", (TWO[:, :0], TWO[:, :0]), {}),
    "complex beside real": ("a", (TWO.to(torch.complex64), TWO), {}),
    "states": ("s0", (TWO, TWO, torch.zeros(3, 3)), {}),
    "state width": ("s0", (TWO, TWO, torch.zeros(2, 2)), {}),
    "packed states": ("s0", (ONE, ONE, torch.zeros(1, 3)), {"cu_seqlens": torch.tensor([0, 2, 5])}),
    "float boundaries": ("cu_seqlens", (ONE, ONE), {"cu_seqlens": torch.tensor([0.0, 2.0, 5.0])}),
    "boundaries in a list": ("cu_seqlens", (ONE, ONE), {"cu_seqlens": [0, 2, 5]}),
}


@pytest.mark.parametrize("backend", ["reference", "torch", "cpu"])
@pytest.mark.parametrize("misuse", MISUSES)
def test_misuse_names_the_argument(backend: str, misuse: str) -> None:
    name, arguments, options = MISUSES[misuse]
    with running(Target(backend, "cpu")), pytest.raises(ShapeError, match=f"^{name}: found"):
        linear_scan(*arguments, **options)


@pytest.mark.parametrize("backend", ["reference", "torch", "cpu"])
def test_a_state_of_another_precision(backend: str) -> None:
    with running(Target(backend, "cpu")):
        s, _ = linear_scan(TWO, TWO, torch.ones(2, 3, dtype=torch.float64))
    assert s.dtype == torch.float32
    assert float(s[0, 0, 0]) == 2


@pytest.mark.parametrize("backend", ["torch", "cpu"])
@pytest.mark.parametrize("reverse", [False, True])
def test_gradcheck(backend: str, reverse: bool) -> None:
    a = (0.9 * torch.randn(2, 7, 2, dtype=torch.complex128)).requires_grad_()
    b = torch.randn(2, 7, 2, dtype=torch.complex128, requires_grad=True)
    s0 = torch.randn(2, 2, dtype=torch.complex128, requires_grad=True)
    with running(Target(backend, "cpu")):
        assert torch.autograd.gradcheck(lambda *x: linear_scan(*x, reverse=reverse), (a, b, s0))
