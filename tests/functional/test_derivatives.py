"""First and second derivatives against finite differences, forward mode, and mapping over stacked layers."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, jvp, vjp, vmap
from torch.utils._pytree import tree_map

from tests.comparison import assert_close
from tests.functional.layers import RANKS, VARIANTS, Case, describe, leaves, random_input, random_layer, random_state
from tests.tolerances import EXACT, IDENTITY
from tides.functional import (
    SSMState,
    SSMWeights,
    discretise,
    linear_scan,
    mix_in,
    mix_out,
    phi1,
    rms_norm,
    selective_ssm,
)

METHODS = ("zoh", "bilinear", "dirac")
# Inside and outside of the radius where φ₁ is a polynomial, and at zero.
POINTS = [0.0, 1e-9, -1e-4 + 2e-4j, -0.3 + 0.2j, -0.6 + 1j, -3 + 5j, 4j]


def test_phi1() -> None:
    z = torch.tensor(POINTS, dtype=torch.complex128, requires_grad=True)
    assert gradcheck(phi1, [z])
    assert gradgradcheck(phi1, [z])
    x = torch.tensor([0.0, 1e-9, -0.3, -0.7, -20.0], dtype=torch.float64, requires_grad=True)
    assert gradcheck(phi1, [x])
    assert gradgradcheck(phi1, [x])


@pytest.mark.parametrize("method", METHODS)
def test_discretise(method: str) -> None:
    lam = torch.tensor(POINTS, dtype=torch.complex128, requires_grad=True)
    delta = torch.linspace(0.1, 2, len(POINTS), dtype=torch.float64).requires_grad_()

    def both(lam: Tensor, delta: Tensor) -> Tensor:
        return torch.stack(discretise(lam, delta, method))  # type: ignore[arg-type]

    assert gradcheck(both, [lam, delta], check_forward_ad=True)
    assert gradgradcheck(both, [lam, delta], fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan(dtype: torch.dtype, reverse: bool) -> None:
    a, b, s0 = (torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in ((2, 3, 2), (2, 3, 2), (2, 2)))

    def scan(a: Tensor, b: Tensor, s0: Tensor) -> tuple[Tensor, Tensor]:
        return linear_scan(a, b, s0, reverse=reverse)

    assert gradcheck(scan, [a, b, s0], check_forward_ad=True)
    assert gradgradcheck(scan, [a, b, s0])


def test_packed_scan() -> None:
    a, b = (torch.randn(1, 4, 2, dtype=torch.complex128, requires_grad=True) for _ in range(2))
    assert gradcheck(lambda a, b: linear_scan(a, b, cu_seqlens=torch.tensor([0, 1, 4])), [a, b])


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_rms_norm(dtype: torch.dtype) -> None:
    x, weight = torch.randn(2, 3, dtype=dtype, requires_grad=True), torch.rand(3).double().requires_grad_()
    assert gradcheck(rms_norm, [x, weight], check_forward_ad=True)
    assert gradgradcheck(rms_norm, [x, weight])


@pytest.mark.parametrize(
    "case",
    [Case("s5"), *(Case("tides", rank=rank, norm=norm) for rank in RANKS for norm in (True, False))],
    ids=describe,
)
def test_mixes(case: Case) -> None:
    layer = random_layer(case._replace(rank=1) if isinstance(case.rank, int) else case, p=2, h=2)
    u = torch.randn(1, 2, 2, dtype=torch.float64, requires_grad=True)
    s = torch.randn(1, 2, 2, dtype=torch.complex128, requires_grad=True)
    drive = [x for x in layer.drive if x is not None]
    readout = [x for x in layer.readout if x is not None]

    def rebuilt(mix: object, parts: tuple[Tensor, ...]) -> object:
        remaining = list(parts)
        return type(mix)(*(None if x is None else remaining.pop(0) for x in mix))  # type: ignore[attr-defined]

    def inward(u: Tensor, *parts: Tensor) -> Tensor:
        return mix_in(u, rebuilt(layer.drive, parts))  # type: ignore[arg-type]

    def outward(s: Tensor, u: Tensor, *parts: Tensor) -> Tensor:
        return mix_out(s, u, rebuilt(layer.readout, parts))  # type: ignore[arg-type]

    assert gradcheck(inward, [u, *drive], check_forward_ad=True)
    assert gradcheck(outward, [s, u, *readout], check_forward_ad=True)
    assert gradgradcheck(inward, [u, *drive], atol=1e-4, fast_mode=True)
    assert gradgradcheck(outward, [s, u, *readout], atol=1e-4, fast_mode=True)


def layer_function(case: Case, weights: SSMWeights):  # type: ignore[no-untyped-def]
    """The layer as a function of (u, gaps, s0, every weight), with outputs and the final state."""

    def run(u: Tensor, gaps: Tensor, s0: Tensor, *parts: Tensor) -> tuple[Tensor, Tensor]:
        remaining = list(parts)
        rebuilt = tree_map(lambda x: remaining.pop(0) if isinstance(x, Tensor) else x, weights)
        state = None if case.bidirectional else SSMState(s0, torch.full_like(s0, -0.5), s0)
        y, last = selective_ssm(u, gaps, rebuilt, case.spec, state=state)
        return y, last.s

    return run


COMPOSED = [
    *(Case(variant, rank=1, hold=hold) for variant in VARIANTS for hold in ("following", "preceding")),
    Case("tides", rank="diag", bidirectional=True, depth=1),
    Case("tides", rank="full", discretisation="bilinear", reparam="stable"),
    Case("tides", rank=1, discretisation="dirac", reparam="softplus", norm=False),
]


# Random directions in the fast tier, every entry of every derivative in the slow one.
EFFORT = [pytest.param(True, id="directions"), pytest.param(False, id="entries", marks=pytest.mark.slow)]


@pytest.mark.parametrize("fast", EFFORT)
@pytest.mark.parametrize("case", COMPOSED, ids=describe)
def test_composed_layer(case: Case, fast: bool) -> None:
    weights = random_layer(case, p=2, h=2)
    u, gaps = torch.randn(1, 3, 2).double().requires_grad_(), (torch.rand(1, 3).double() + 0.1).requires_grad_()
    s0 = torch.randn(1, 2, dtype=torch.complex128, requires_grad=True)
    assert gradcheck(layer_function(case, weights), [u, gaps, s0, *leaves(weights)], fast_mode=fast)


@pytest.mark.parametrize("fast", EFFORT)
@pytest.mark.parametrize("case", [Case("tides", rank=1), Case("mamba-s", rank="diag", hold="preceding")], ids=describe)
def test_double_backward_of_the_composed_layer(case: Case, fast: bool) -> None:
    weights = random_layer(case, p=2, h=1)
    u, gaps = torch.randn(1, 2, 1).double().requires_grad_(), (torch.rand(1, 2).double() + 0.1).requires_grad_()
    s0 = torch.randn(1, 2, dtype=torch.complex128, requires_grad=True)
    inputs = [u, gaps, s0, *leaves(weights)]
    assert gradgradcheck(layer_function(case, weights), inputs, atol=1e-4, fast_mode=fast)


@pytest.mark.parametrize("case", COMPOSED, ids=describe)
def test_forward_mode_is_the_transpose_of_reverse_mode(case: Case) -> None:
    weights = tree_map(lambda x: x.detach() if isinstance(x, Tensor) else x, random_layer(case))
    u, gaps = (x.detach() for x in random_input())
    run = layer_function(case, weights)
    s0 = random_state(2).s.detach()
    primals = (u, gaps, s0, *leaves(weights))
    tangents = tuple(torch.randn_like(x) for x in primals)
    _, (dy, ds) = jvp(run, primals, tangents)
    (y, s), pull = vjp(run, *primals)
    cotangent = (torch.randn_like(y), torch.randn_like(s))
    pulled = pull(cotangent)

    def inner(a: Tensor, b: Tensor) -> Tensor:
        return (a.conj() * b).real.sum()

    forward = inner(cotangent[0], dy) + inner(cotangent[1], ds)
    backward = sum(inner(ct, t) for ct, t in zip(pulled, tangents, strict=True))
    assert_close(forward, torch.as_tensor(backward), IDENTITY)


@pytest.mark.parametrize("hold", ["following", "preceding"])
def test_stacked_layers_and_per_series_gradients(hold: str) -> None:
    """vmap over weights (models side by side) and over series (one gradient per series)."""
    case = Case("tides-full", hold=hold)
    layers = [tree_map(lambda x: x.detach() if isinstance(x, Tensor) else x, random_layer(case)) for _ in range(3)]
    u, gaps = (x.detach() for x in random_input())
    stacked = tree_map(lambda *parts: torch.stack(parts), *layers)

    def outputs(weights: SSMWeights, u: Tensor, gaps: Tensor) -> Tensor:
        return selective_ssm(u, gaps, weights, case.spec)[0]

    together = vmap(outputs, in_dims=(0, None, None))(stacked, u, gaps)
    for i, layer in enumerate(layers):
        assert_close(together[i], outputs(layer, u, gaps), EXACT, f"layer {i}")

    def loss(weights: SSMWeights, u: Tensor, gaps: Tensor) -> Tensor:
        return outputs(weights, u.unsqueeze(0), gaps.unsqueeze(0)).square().sum()

    per_series = vmap(grad(loss), in_dims=(None, 0, 0))(layers[0], u, gaps)
    alone = grad(loss)(layers[0], u[1], gaps[1])
    for found, wanted in zip(leaves(per_series), leaves(alone), strict=True):
        assert_close(found[1], wanted, IDENTITY)
