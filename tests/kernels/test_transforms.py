"""Custom operators under torch.library.opcheck and torch.func: fake tensors, autograd and vmap rules."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

import tides
import tides.kernels.statistics
from tests.comparison import assert_close
from tests.functional.layers import Case, random_layer
from tests.kernels.backends import Target, running
from tests.tolerances import IDENTITY
from tides.errors import BackendUnavailable, ShapeError
from tides.kernels import explain, runs_at_once, selective_ssm, use_backend

BACKENDS = ["torch", "cpu"]


def normal(*shape: int, complex: bool = False) -> Tensor:
    return torch.randn(*shape, dtype=torch.complex128 if complex else torch.float64)


def scan_samples() -> list[tuple[Any, ...]]:
    a, b = 0.5 * normal(2, 7, 3, complex=True), normal(2, 7, 3, complex=True)
    return [(a.requires_grad_(), b.requires_grad_(), reverse) for reverse in (False, True)]


def evolve_samples() -> list[tuple[Any, ...]]:
    b, l, p = 2, 7, 3
    shared = (
        -torch.rand(b, l, p).double(),
        normal(b, 1, p),
        torch.rand(b, l, 1).double(),
        torch.rand(b, 1, p).double(),
    )
    drive, s0 = normal(b, l, p, complex=True), normal(b, p, complex=True)
    found = leaves(*shared, drive, s0)
    packed = leaves(*(leaf[:1].detach() for leaf in found[:5]))
    return [
        (*found, None, "zoh", "following", False),
        (*found, None, "bilinear", "preceding", True),
        (*packed, None, torch.tensor([0, 3, 4, 7]), "zoh", "preceding", False),
    ]


def leaves(*tensors: Tensor) -> list[Tensor]:
    return [tensor.requires_grad_() for tensor in tensors]


def mix_samples(inwards: bool) -> list[tuple[Any, ...]]:
    n, p, h, i = 11, 3, 4, 5
    x = normal(1, n, h) if inwards else normal(1, n, p, 2)
    found = leaves(x, normal(1, n, i), normal(1, p, h, 2, i), normal(1, p))
    return [(*found, 1e-6, "torch", True), (*found[:3], None, 1e-6, "torch", True)]


def coded_mix_samples(inwards: bool) -> list[tuple[Any, ...]]:
    """The compiled mixes make their codes themselves, and the out-mix adds the skip connection."""
    n, p, h, i = 11, 3, 4, 5
    x = leaves(normal(1, n, h)) if inwards else leaves(normal(1, n, p, 2), normal(1, n, h))
    *weights, norm = leaves(normal(1, h, i), normal(1, i), normal(1, p, h, 2, i), normal(1, p))
    rest = () if inwards else (normal(1, h).requires_grad_(), 2.0)
    return [(*x, *weights, norm, *rest, 1e-6), (*x, *weights, None, *rest, 1e-6)]


def rates_samples() -> list[tuple[Any, ...]]:
    theta, norm = leaves(normal(1, 9, 4), normal(1, 4))
    return [(theta, norm, kind, -0.1, 1e-6) for kind in range(4)] + [(theta, None, 1, math.inf, 1e-6)]


def tail_samples() -> list[tuple[Any, ...]]:
    h, f = 4, 3
    shapes = ((f, h), (f,), (f, h), (f,), (h, f), (h,))
    return [tuple(leaves(normal(2, 9, h), *(normal(2, *shape) for shape in shapes)))]


SAMPLES = {
    "scan_torch": scan_samples,
    "scan_cpu": scan_samples,
    "evolve_torch": evolve_samples,
    "evolve_cpu": evolve_samples,
    "mix_in_torch": lambda: mix_samples(True),
    "mix_out_torch": lambda: mix_samples(False),
    "mix_in_cpu": lambda: coded_mix_samples(True),
    "mix_out_cpu": lambda: coded_mix_samples(False),
    "rates_cpu": rates_samples,
    "tail_torch": tail_samples,
    "row_statistics": lambda: [(normal(2, 9, 4).requires_grad_(),)],
}


@pytest.mark.parametrize("name", SAMPLES)
def test_opcheck(name: str) -> None:
    with running(Target("cpu" if name.endswith("cpu") else "torch", "cpu")):
        operator = getattr(torch.ops.tides, name).default
        for sample in SAMPLES[name]():
            torch.library.opcheck(operator, sample)


def small_model(seed: int, **options: Any) -> torch.nn.Module:
    torch.manual_seed(seed)
    fields = {"input_size": 2, "hidden_size": 5, "state_size": 4, "rank": 2, "depth": 2, "projector_init": "random"}
    return tides.SequenceClassifier(tides.TIDESConfig(**(fields | options)), 3).double()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "options",
    [{}, {"rank": "full", "hold": "preceding", "bidirectional": True}, {"variant": "s5"}, {"norm": "layer"}],
    ids=["tides", "full bidirectional", "s5", "layer norm"],
)
def test_stacked_models_equal_a_loop(backend: str, options: dict[str, Any]) -> None:
    """A population of models as one batched call: outputs and gradients of every member."""
    models = [small_model(seed, **options).eval() for seed in range(3)]
    parameters, buffers = stack_module_state(models)
    x, gaps = normal(2, 6, 2), torch.rand(2, 6).double()

    def member(weights: dict[str, Tensor], constants: dict[str, Tensor]) -> Tensor:
        return functional_call(models[0], (weights, constants), (x, gaps))

    with running(Target(backend, "cpu")):
        logits = vmap(member)(parameters, buffers)
        found = torch.autograd.grad(logits.square().sum(), list(parameters.values()), allow_unused=True)
        for index, model in enumerate(models):
            alone = model(x, gaps)
            assert_close(logits[index], alone, IDENTITY, f"logits of model {index}")
            wanted = torch.autograd.grad(alone.square().sum(), list(model.parameters()), allow_unused=True)
            for name, ours, theirs in zip(parameters, found, wanted, strict=True):
                if theirs is not None and float(theirs.abs().max()) > 1e-12:
                    assert_close(ours[index], theirs, IDENTITY, name)


@pytest.mark.parametrize("backend", BACKENDS)
def test_vmap_over_inputs(backend: str) -> None:
    """One model mapped over a stack of batches equals a loop over them."""
    model = small_model(0).eval()
    x, gaps = normal(3, 2, 6, 2), torch.rand(3, 2, 6).double()
    with running(Target(backend, "cpu")):
        found = vmap(model)(x, gaps)
        for row in range(3):
            assert_close(found[row], model(x[row], gaps[row]), IDENTITY)


@pytest.mark.parametrize("backend", BACKENDS)
def test_packed_sequences_are_not_stacked(backend: str) -> None:
    case = Case()
    weights, bounds = random_layer(case), torch.tensor([0, 2, 5])
    u, gaps = normal(3, 1, 5, 3), torch.rand(3, 1, 5).double()
    with running(Target(backend, "cpu")), pytest.raises(ShapeError, match="cu_seqlens"):
        vmap(lambda u, gaps: selective_ssm(u, gaps, weights, case.spec, cu_seqlens=bounds)[0])(u, gaps)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit.trace.*:DeprecationWarning")
def test_a_trace_goes_through_the_plain_definition() -> None:
    def work(u: Tensor) -> Tensor:
        assert explain(u).reason.startswith("torch.jit.trace")
        assert not runs_at_once(u)
        with use_backend("torch"), pytest.raises(BackendUnavailable, match=r"'torch': torch\.jit\.trace goes through"):
            explain(u)
        return 2 * u

    u = normal(2, 5, 3)
    assert_close(torch.jit.trace(work, u, check_trace=False)(u), 2 * u, IDENTITY)
    assert runs_at_once(u)


@pytest.mark.parametrize("autocast", [False, True])
def test_shapes_alone_go_through_a_model(autocast: bool) -> None:
    with torch.device("meta"):
        model = tides.SequenceClassifier(tides.TIDESConfig(input_size=2, hidden_size=4, state_size=4, depth=2), 3)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = model(torch.empty(2, 5, 2), torch.empty(2, 5))
    assert (logits.shape, logits.device.type) == ((2, 3), "meta")
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
