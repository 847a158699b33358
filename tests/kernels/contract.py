"""What every backend promises: outputs, the final state and every gradient equal the float64 reference."""

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tests.comparison import relative_error
from tests.functional.layers import Case, leaves, random_layer
from tests.tolerances import FLOAT32_FORWARD, FLOAT32_GRADIENT, IDENTITY
from tides import functional as tf
from tides.functional import SSMState, SSMWeights
from tides.kernels import selective_ssm

# Boundaries as fractions of the packed axis, among them a sequence of a single step.
_CUTS = (0.0, 0.31, 0.3101, 0.8, 1.0)


class Problem(NamedTuple):
    """A layer's configuration, sizes and inputs, all of it hashable; `seed` fixes the numbers."""

    case: Case = Case()
    layout: str = "dense"
    state: bool = False
    l: int = 65
    p: int = 3
    h: int = 5
    batch: int = 2
    dtype: torch.dtype = torch.float32
    gap_scale: float = 1.0
    seed: int = 0


class Inputs(NamedTuple):
    """Differentiable tensors first; the layout of the batch behind them."""

    u: Tensor
    gaps: Tensor
    weights: SSMWeights
    state: SSMState | None
    valid: Tensor | None
    cu_seqlens: Tensor | None


class Outcome(NamedTuple):
    """Everything a layer computes, by name."""

    forward: dict[str, Tensor]
    gradients: dict[str, Tensor]


def make_inputs(problem: Problem, *, dtype: torch.dtype | None = None, device: str = "cpu") -> Inputs:
    """The inputs of `problem`, rounded to its dtype and then given in `dtype` (its own by default) on `device`."""
    torch.manual_seed(problem.seed)
    rounded, wanted = problem.dtype, dtype or problem.dtype
    b, l = (1 if problem.layout == "packed" else problem.batch), problem.l

    def leaf(x: Tensor) -> Tensor:
        if x.is_complex():
            return torch.view_as_complex(leaf(torch.view_as_real(x)).detach()).requires_grad_()
        return x.detach().to(rounded).to(wanted).to(device).requires_grad_()

    weights = _map(random_layer(problem.case, p=problem.p, h=problem.h), leaf)
    u = leaf(torch.randn(b, l, problem.h, dtype=torch.float64))
    gaps = 2 * problem.gap_scale * torch.rand(b, l, dtype=torch.float64)
    gaps[0, l // 2] = 0.0
    cuts = sorted({round(cut * l) for cut in _CUTS})
    rows = len(cuts) - 1 if problem.layout == "packed" else b
    state = None
    if problem.state:
        s, drive = (torch.randn(rows, problem.p, dtype=torch.complex128) for _ in range(2))
        lam = torch.complex(-torch.rand(rows, problem.p).double() - 0.1, torch.randn(rows, problem.p).double())
        state = SSMState(leaf(s), leaf(lam), leaf(drive))
    valid = None
    if problem.layout == "valid":
        lengths = torch.tensor([max(0, l - 7 * row - 1) for row in range(b)])
        valid = (torch.arange(l) < lengths[:, None]).to(device)
    cu_seqlens = torch.tensor(cuts, device=device) if problem.layout == "packed" else None
    return Inputs(u, leaf(gaps), weights, state, valid, cu_seqlens)


def _map(tree: Any, function: Any) -> Any:
    if isinstance(tree, Tensor):
        return function(tree)
    if not isinstance(tree, tuple):
        return tree
    parts = [_map(part, function) for part in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)


def run(layer: Any, inputs: Inputs, case: Case, *, parts: tuple[str, ...] = ("y", "s", "lam", "drive")) -> Outcome:
    """Forward, and the gradients of a random functional of `parts`: the output and all parts of the final state."""
    y, last = layer(
        inputs.u,
        inputs.gaps,
        inputs.weights,
        case.spec,
        valid=inputs.valid,
        state=inputs.state,
        cu_seqlens=inputs.cu_seqlens,
    )
    forward = {"y": y, "s": last.s, "lam": last.lam, "drive": last.drive}
    generator = torch.Generator().manual_seed(1)
    total: Any = 0
    for name in parts:
        value = forward[name]
        plain = torch.view_as_real(value) if value.is_complex() else value
        cotangent = torch.randn(plain.shape, generator=generator, dtype=torch.float64).to(plain)
        # Re λ and Im λ of a static head are sums over everything; a small weight keeps them from hiding the rest.
        total = total + (plain * cotangent).sum() * (0.1 if name == "lam" else 1.0)
    tree = {"u": inputs.u, "gaps": inputs.gaps, **_named(inputs.weights, "weights")}
    tree |= {} if inputs.state is None else _named(inputs.state, "state")
    found = torch.autograd.grad(total, list(tree.values()), allow_unused=True)
    gradients = {
        name: torch.zeros_like(leaf) if gradient is None else gradient
        for (name, leaf), gradient in zip(tree.items(), found, strict=True)
    }
    return Outcome({name: value.detach() for name, value in forward.items()}, gradients)


def _named(tree: Any, prefix: str) -> dict[str, Tensor]:
    if isinstance(tree, Tensor):
        return {prefix: tree}
    if not isinstance(tree, tuple):
        return {}
    names = getattr(tree, "_fields", range(len(tree)))
    parts = (_named(part, f"{prefix}.{name}") for name, part in zip(names, tree, strict=True))
    return {name: leaf for part in parts for name, leaf in part.items()}


@cache
def reference(problem: Problem) -> Outcome:
    """The plain definition in float64, on the inputs rounded to the problem's dtype."""
    return run(tf.selective_ssm, make_inputs(problem, dtype=torch.float64), problem.case)


def tolerances(dtype: torch.dtype) -> tuple[float, float]:
    return (IDENTITY, IDENTITY) if dtype == torch.float64 else (FLOAT32_FORWARD, FLOAT32_GRADIENT)


def check(problem: Problem, device: str, *, floor: float = 1e-20) -> None:
    """Compare the backend in use with the reference: every output and every gradient, all of them listed on failure.

    What is below `floor` counts as zero: it has underflowed in float32, or is the reference's own rounding.
    """
    found = run(selective_ssm, make_inputs(problem, device=device), problem.case)
    compare(found, reference(problem), *tolerances(problem.dtype), floor)


def compare(found: Outcome, wanted: Outcome, forward: float, gradient: float, floor: float) -> None:
    failures = []
    for kind, limit in (("forward", forward), ("gradients", gradient)):
        for name, expected in getattr(wanted, kind).items():
            value = getattr(found, kind)[name].cpu()
            if float(expected.abs().max() if expected.numel() else 0) < floor:
                error = float(value.abs().max()) if value.numel() else 0.0
            else:
                error = relative_error(value, expected)
            if not error <= limit:
                failures.append(f"{kind} {name} {tuple(expected.shape)}: {error:.1e} > {limit:.0e}")
    assert not failures, "; ".join(failures)


__all__ = ["Inputs", "Outcome", "Problem", "check", "compare", "leaves", "make_inputs", "reference", "run"]
