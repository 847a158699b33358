"""The scan of short sequences as a quadratic form, made to run on the CPU here, under the contract of all backends."""

from importlib import import_module

import pytest
import torch

from tests.functional.layers import Case, describe, random_layer
from tests.kernels.contract import Problem, check
from tides.kernels import explain, use_backend
from tides.kernels.chunked import quadratic

PROBLEMS = [
    *(Problem(Case("tides"), l=l) for l in (1, 2, 63, 128)),
    Problem(Case("tides", hold="preceding"), l=63, state=True),
    Problem(Case("tides"), l=63, state=True, layout="packed"),
    Problem(Case("tides", hold="preceding"), l=128, state=True, layout="packed"),
    Problem(Case("tides", discretisation="dirac"), l=65, layout="valid"),
    Problem(Case("tides", bidirectional=True), l=63, layout="packed"),
    Problem(Case("tides", hold="preceding", bidirectional=True, reverse="release"), l=128),
    Problem(Case("tides", reparam="standard"), l=63, layout="packed"),
    Problem(Case("tides", reparam="standard"), l=63, dtype=torch.float64),
    Problem(Case("tides-full"), l=128, gap_scale=1e-6),
    Problem(Case("tides-full"), l=128, gap_scale=1e3),
    Problem(Case("mamba-s"), l=63),
]


def name(problem: Problem) -> str:
    return f"{describe(problem.case)} {problem.layout} l={problem.l} gaps={problem.gap_scale:g} {problem.dtype}"


@pytest.fixture
def _on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quadratic, "_LONGEST", {"cpu": 128})


@pytest.mark.usefixtures("_on_cpu")
@pytest.mark.parametrize("problem", PROBLEMS, ids=name)
def test_short_sequences_keep_the_contract(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    weights = quadratic.scan_weights

    def counted(*arguments: object) -> torch.Tensor:
        calls.append(1)
        return weights(*arguments)  # type: ignore[arg-type]

    # Not by its name: the package has a function of the module's name.
    monkeypatch.setattr(import_module("tides.kernels.chunked.evolve"), "scan_weights", counted)
    with use_backend("torch"):
        check(problem, "cpu")
    assert len(calls) == (4 if problem.case.bidirectional else 2)


@pytest.mark.usefixtures("_on_cpu")
def test_growing_modes_stay_finite_beside_zeros() -> None:
    """A mode that grows beyond every number contributes nothing where nothing drives it."""
    lam, delta = torch.full((1, 40, 1), 50 + 1j, dtype=torch.complex64), torch.ones(1, 40, 1)
    first = (torch.arange(40) == 0).unsqueeze(-1)
    s = quadratic.weigh(quadratic.scan_weights(lam, delta, first, False), torch.zeros(1, 40, 1, dtype=torch.complex64))
    assert (s == 0).all()


@pytest.mark.parametrize(
    ("shape", "discretisation", "short"),
    [
        ((8, 128, 16), "zoh", True),
        ((8, 128, 16), "bilinear", False),
        ((8, 129, 16), "zoh", False),
        ((64, 128, 16), "zoh", False),
    ],
)
def test_long_sequences_and_large_batches_are_scanned(
    shape: tuple[int, int, int], discretisation: str, short: bool
) -> None:
    assert quadratic.is_short(shape, torch.device("cuda"), discretisation) is short
    assert not quadratic.is_short(shape, torch.device("cpu"), discretisation)


@pytest.mark.usefixtures("_on_cpu")
def test_explain_says_so() -> None:
    case = Case("tides")
    weights = random_layer(case)
    with use_backend("torch"):
        assert "quadratic" in explain(torch.ones(2, 60, 5), weights, case.spec).reason
        assert "two-level" in explain(torch.ones(2, 500, 5), weights, case.spec).reason
