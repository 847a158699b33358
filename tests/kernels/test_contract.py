"""The contract suite: every backend × a pairwise-covering set of options, sizes and layouts."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
import torch

from tests.comparison import assert_close
from tests.functional.layers import VARIANTS, Case, describe
from tests.kernels.backends import Target, over_targets, running
from tests.kernels.contract import Problem, check, make_inputs
from tests.kernels.pairwise import Row, pairwise_cover
from tests.tolerances import IDENTITY
from tides import functional as tf
from tides.errors import BackendUnavailable
from tides.kernels import selective_ssm
from tides.kernels.dispatch import last_backend

OPTIONS = {
    "variant": VARIANTS,
    "rank": (3, "full", "diag"),
    "norm": (True, False),
    "reparam": ("standard", "exp", "stable", "softplus"),
    "discretisation": ("zoh", "bilinear", "dirac"),
    "hold": ("following", "preceding"),
    "direction": ("causal", "exact", "release"),
    "conjugate": (False, True),
    "layout": ("dense", "valid", "packed"),
    "state": (False, True),
    "dtype": (torch.float32, torch.float64),
    "l": (1, 2, 63, 65, 500),
    "p": (1, 3, 16),
    "h": (1, 5, 32),
}
# What `cpu` and `triton` must run; anything else may be refused with a reason.
_REQUIRED = {"variant": ("tides", "s5", "tides-bc", "tides-lambda"), "discretisation": ("zoh", "bilinear")}


def allowed(row: Row) -> bool:
    """Layers that make sense.

    A bidirectional one takes no state, the release's backward pass is `preceding`, and a norm over a single mode
    leaves nothing but its sign, with gradients that are all rounding.
    """
    if (row["direction"] != "causal" and row["state"]) or (row["norm"] and row["p"] == 1):
        return False
    return row["direction"] != "release" or row["hold"] == "preceding"


def as_problem(row: Row) -> Problem:
    case = Case(
        variant=row["variant"],
        rank=row["rank"],
        norm=row["norm"],
        reparam=row["reparam"],
        discretisation=row["discretisation"],
        hold=row["hold"],
        bidirectional=row["direction"] != "causal",
        reverse="release" if row["direction"] == "release" else "exact",
        conjugate=row["conjugate"],
    )
    sizes = {name: row[name] for name in ("layout", "state", "l", "p", "h", "dtype")}
    return Problem(case, **sizes)


def name_problem(problem: Problem) -> str:
    precision = "double" if problem.dtype == torch.float64 else "single"
    state = " state" if problem.state else ""
    return f"{describe(problem.case)} {problem.layout}{state} {precision} l={problem.l} p={problem.p} h={problem.h}"


COVER = [as_problem(row) for row in pairwise_cover(OPTIONS, allowed)]
LONG = [
    Problem(Case("tides", rank=8), l=1000, p=16, h=32),
    Problem(Case("tides", rank=8, hold="preceding", bidirectional=True), l=1000, p=16, h=32),
    Problem(Case("tides", rank=8), l=1000, p=16, h=32, layout="packed", state=True),
    Problem(Case("s5"), l=1000, p=16, h=32),
]


@pytest.fixture
def _poisoned() -> Iterator[None]:
    """Uninitialised memory holds NaN, so that an element that no kernel writes is seen."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.isnan(torch.empty(3)).all()
    yield
    torch.use_deterministic_algorithms(before)


def must_run(case: Case) -> bool:
    return (
        case.variant in _REQUIRED["variant"]
        and case.discretisation in _REQUIRED["discretisation"]
        and not (case.rank == "diag" and case.variant in ("tides", "tides-bc"))
    )


def check_or_refuse(problem: Problem, target: Target) -> None:
    with running(target):
        try:
            check(problem, target.device)
        except BackendUnavailable as refusal:
            if target.backend in ("cpu", "triton") and not must_run(problem.case):
                pytest.skip(str(refusal))
            raise
        assert last_backend() == target.backend


@over_targets(Target("reference", "cpu"))
@pytest.mark.parametrize("problem", COVER, ids=name_problem)
@pytest.mark.usefixtures("_poisoned")
@pytest.mark.filterwarnings("ignore:.*deterministic:UserWarning")
def test_every_pair_of_options(target: Target, problem: Problem) -> None:
    check_or_refuse(problem, target)


@over_targets()
@pytest.mark.parametrize("problem", LONG, ids=name_problem)
@pytest.mark.usefixtures("_poisoned")
@pytest.mark.filterwarnings("ignore:.*deterministic:UserWarning")
def test_a_thousand_steps(target: Target, problem: Problem) -> None:
    check_or_refuse(problem, target)


@over_targets()
def test_strided_inputs(target: Target) -> None:
    """Views with unusual strides give the numbers of their contiguous copies."""
    problem = Problem(dtype=torch.float32 if target.backend == "triton" else torch.float64)
    inputs = make_inputs(problem, device=target.device)
    u = inputs.u.detach().mT.contiguous().mT
    gaps = inputs.gaps.detach()[:1].expand(2, -1)
    with running(target):
        found, last = selective_ssm(u, gaps, inputs.weights, problem.case.spec)
        wanted, wanted_last = selective_ssm(u.contiguous(), gaps.contiguous(), inputs.weights, problem.case.spec)
    assert torch.allclose(found, wanted, rtol=1e-13, atol=1e-13)
    assert torch.allclose(last.s, wanted_last.s, rtol=1e-13, atol=1e-13)


@over_targets()
def test_broadcast_inputs_and_gradients(target: Target) -> None:
    """Constant gaps, a static Λ and the gradient of a sum are views without memory of their own."""
    problem = Problem(Case("s5"), dtype=torch.float64)
    inputs = make_inputs(problem, device=target.device)
    gaps = torch.full((), 0.3, dtype=torch.float64, device=target.device).expand(2, problem.l)
    leaves = [inputs.u, inputs.weights.decay.bias, inputs.weights.frequency.bias, inputs.weights.step]

    def gradients(layer: Any) -> tuple[torch.Tensor, ...]:
        y, _ = layer(inputs.u, gaps, inputs.weights, problem.case.spec)
        return torch.autograd.grad(y.sum(), leaves)

    with running(target):
        found = gradients(selective_ssm)
    for ours, theirs in zip(found, gradients(tf.selective_ssm), strict=True):
        assert_close(ours, theirs, IDENTITY)


def test_the_cover_is_pairwise() -> None:
    """The generator's own promise, and a number that says how small the cover is."""
    rows = pairwise_cover(OPTIONS, allowed)
    assert all(map(allowed, rows))
    assert len(rows) < 60
    seen = {pair for row in rows for pair in combinations(row.items(), 2)}
    missing = [
        ((one, this), (two, that))
        for (one, these), (two, those) in combinations(OPTIONS.items(), 2)
        for this in these
        for that in those
        if ((one, this), (two, that)) not in seen
    ]
    # What is missing is what the rules of `allowed` exclude.
    assert {frozenset({one, two}) for (one, _), (two, _) in missing} <= {
        frozenset({"direction", "state"}),
        frozenset({"direction", "hold"}),
        frozenset({"norm", "p"}),
    }
