"""The composed layer against the loop over steps: outputs, final state and every gradient, in every configuration."""

import random

import pytest
import torch
from torch import Tensor

from tests.comparison import assert_close
from tests.functional.layers import RANKS, VARIANTS, Case, describe, leaves, random_input, random_layer, random_state
from tests.functional.loop_oracle import run_batch
from tests.tolerances import EXACT, IDENTITY
from tides.errors import NotStreamable, ShapeError
from tides.functional import SSMState, advance, selective_ssm, zero_state

REPARAMS = ("standard", "exp", "stable", "softplus")
METHODS = ("zoh", "bilinear", "dirac")
HOLDS = ("following", "preceding")

# What the released checkpoints exercise (preceding, the release's backward pass), one line per file of theirs.
RELEASED = [
    Case("s5", hold="preceding", conjugate=True, reparam="standard"),
    Case("s5", hold="preceding", conjugate=True, reparam="stable", bidirectional=True, reverse="release"),
    Case("tides-bc", hold="preceding", reparam="exp"),
    Case("tides-bc", hold="preceding", reparam="standard"),
    Case("tides", hold="preceding", reparam="standard", bidirectional=True, reverse="release"),
    Case("tides", hold="preceding", reparam="stable", discretisation="bilinear", bidirectional=True, reverse="release"),
    Case("tides", hold="preceding", reparam="exp", discretisation="bilinear"),
    Case("tides", hold="preceding", reparam="standard", norm=False, clip=0.5),
    Case("tides", hold="preceding", reparam="exp"),
    Case("tides", hold="preceding", reparam="stable", depth=2),
    Case("tides", hold="preceding", reparam="exp", rank="diag"),
    Case("tides-full", hold="preceding", reparam="standard"),
    Case("tides", hold="preceding", reparam="stable", rank="full"),
    Case("tides-lambda", hold="preceding", reparam="standard"),
    Case("tides", hold="preceding", reparam="softplus", norm=False),
    Case("tides", hold="preceding", reparam="stable", clip=1e-4),
    Case("tides", hold="preceding", reparam="standard"),
]
OURS = [
    *(Case(variant, discretisation=method, hold=hold) for variant in VARIANTS for method in METHODS for hold in HOLDS),
    *(Case(variant, rank=rank, norm=False) for variant in ("tides-bc", "tides", "mamba-s") for rank in RANKS),
    *(Case("tides-full", rank=rank, hold="preceding") for rank in RANKS),
    *(Case("tides", reparam=reparam, depth=1, clip=clip) for reparam in REPARAMS for clip in (None, 0.6)),
    *(Case(variant, bidirectional=True, hold=hold) for variant in VARIANTS for hold in HOLDS),
    *(Case("tides", bidirectional=True, hold=hold, discretisation="dirac", rank="diag") for hold in HOLDS),
    *(Case("s5", conjugate=True, bidirectional=both, hold=hold) for both in (False, True) for hold in HOLDS),
]
CASES = list(dict.fromkeys([*RELEASED, *OURS]))


def compare_with_loop(case: Case, *, lengths: list[int] | None = None, continued: bool = False) -> None:
    weights, (u, gaps) = random_layer(case), random_input()
    b, l, _ = u.shape
    state = random_state(b) if continued else None
    valid = None if lengths is None else torch.arange(l) < torch.tensor(lengths)[:, None]
    found, found_last = selective_ssm(u, gaps, weights, case.spec, valid=valid, state=state)
    wanted, wanted_last = run_batch(u, gaps, weights, case.spec, lengths=lengths, state=state)

    assert_close(found, wanted, EXACT, "y")
    names = ("s", "lam", "drive") if case.hold == "following" else ("s",)
    for name in names:
        assert_close(getattr(found_last, name), getattr(wanted_last, name), EXACT, f"final {name}")

    inputs = [u, gaps, *leaves(weights), *([] if state is None else state)]
    cotangents = [torch.randn_like(found), torch.randn_like(found_last.s), torch.randn_like(found_last.drive)]

    def gradients(y: Tensor, last: SSMState) -> list[Tensor | None]:
        outputs = [y, last.s] + ([last.drive] if case.hold == "following" else [])
        products = (
            torch.view_as_real(out * ct).sum() if out.is_complex() else (out * ct).sum()
            for out, ct in zip(outputs, cotangents, strict=False)
        )
        return list(torch.autograd.grad(sum(products), inputs, allow_unused=True))

    pairs = zip(inputs, gradients(found, found_last), gradients(wanted, wanted_last), strict=True)
    for index, (leaf, ours, theirs) in enumerate(pairs):
        zero = torch.zeros_like(leaf)
        ours, theirs = zero if ours is None else ours, zero if theirs is None else theirs
        if float(theirs.abs().max()) == 0:
            assert float(ours.abs().max()) <= IDENTITY, f"gradient {index} of shape {tuple(leaf.shape)} is not zero"
        else:
            assert_close(ours, theirs, IDENTITY, f"gradient {index} of shape {tuple(leaf.shape)}")


@pytest.mark.parametrize("case", CASES, ids=describe)
def test_equals_the_loop(case: Case) -> None:
    compare_with_loop(case)


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.reparam == "exp" and case.depth == 0 and case.norm],
    ids=describe,
)
def test_equals_the_loop_with_padding(case: Case) -> None:
    compare_with_loop(case, lengths=[3, 0] if case.bidirectional else [1, 4])


@pytest.mark.parametrize(
    "case", [Case(v, hold=hold, discretisation=m) for v in VARIANTS for hold in HOLDS for m in METHODS], ids=describe
)
def test_equals_the_loop_from_a_state_with_padding(case: Case) -> None:
    compare_with_loop(case, lengths=[0, 4], continued=True)


def sampled_cases(count: int) -> list[Case]:
    """Random combinations of everything, for the slow tier."""
    draw = random.Random(0)
    cases = set()
    while len(cases) < count:
        bidirectional = draw.random() < 0.5
        hold = draw.choice(HOLDS)
        variant = draw.choice(VARIANTS)
        cases.add(
            Case(
                variant=variant,
                rank=draw.choice(RANKS),
                norm=draw.random() < 0.5,
                depth=draw.choice((0, 1, 2)),
                reparam=draw.choice(REPARAMS),
                discretisation=draw.choice(METHODS),
                hold=hold,
                bidirectional=bidirectional,
                reverse=draw.choice(("exact", "release")) if bidirectional and hold == "preceding" else "exact",
                clip=draw.choice((None, 1e-4, 0.6)),
                conjugate=variant == "s5" and draw.random() < 0.5,
            )
        )
    return sorted(cases, key=str)


@pytest.mark.slow
@pytest.mark.parametrize("case", sampled_cases(300), ids=describe)
def test_equals_the_loop_in_random_combinations(case: Case) -> None:
    compare_with_loop(case)
    compare_with_loop(case, lengths=[5, 2])
    if not case.bidirectional:
        compare_with_loop(case, lengths=[0, 3], continued=True)


@pytest.mark.parametrize("case", [Case(v, hold=hold) for v in VARIANTS for hold in HOLDS], ids=describe)
def test_packed_sequences_equal_separate_ones(case: Case) -> None:
    weights, (u, gaps) = random_layer(case), random_input(1, 9)
    state = random_state(3)
    bounds = [0, 4, 5, 9]
    found, last = selective_ssm(u, gaps, weights, case.spec, state=state, cu_seqlens=torch.tensor(bounds))
    for i in range(3):
        part = slice(bounds[i], bounds[i + 1])
        alone = SSMState(*(x[i : i + 1] for x in state))
        wanted, wanted_last = run_batch(u[:, part], gaps[:, part], weights, case.spec, state=alone)
        assert_close(found[:, part], wanted, EXACT, f"sequence {i}")
        assert_close(last.s[i : i + 1], wanted_last.s, EXACT, f"state of sequence {i}")


def test_packed_bidirectional_sequences_do_not_see_each_other() -> None:
    case = Case(bidirectional=True)
    weights, (u, gaps) = random_layer(case), random_input(1, 6)
    found, _ = selective_ssm(u, gaps, weights, case.spec, cu_seqlens=torch.tensor([0, 2, 6]))
    for part in (slice(0, 2), slice(2, 6)):
        assert_close(found[:, part], run_batch(u[:, part], gaps[:, part], weights, case.spec)[0], EXACT)


@pytest.mark.parametrize("bounds", [[0, 3], [1, 6], [0, 4, 4, 6], [0, 5, 3, 6], [6]])
def test_bad_boundaries_are_named(bounds: list[int]) -> None:
    case = Case()
    weights, (u, gaps) = random_layer(case), random_input(1, 6)
    with pytest.raises(ShapeError, match="cu_seqlens"):
        selective_ssm(u, gaps, weights, case.spec, cu_seqlens=torch.tensor(bounds))


@pytest.mark.parametrize("hold", HOLDS)
def test_padding_may_hold_anything(hold: str) -> None:
    case = Case(hold=hold, bidirectional=True)
    weights, (u, gaps) = random_layer(case), random_input(2, 6)
    valid = torch.arange(6) < torch.tensor([[4], [6]])
    wanted, wanted_last = selective_ssm(u, gaps, weights, case.spec, valid=valid)
    spoilt = u.detach().masked_fill(~valid[..., None], torch.nan).requires_grad_()
    found, last = selective_ssm(spoilt, gaps.masked_fill(~valid, torch.nan), weights, case.spec, valid=valid)
    assert torch.equal(found, wanted)
    assert torch.equal(last.s, wanted_last.s)
    inputs = [spoilt, *leaves(weights)]
    for gradient in torch.autograd.grad(found.sum(), inputs):
        assert torch.isfinite(gradient).all()


def test_a_bidirectional_layer_takes_no_state() -> None:
    case = Case(bidirectional=True)
    weights, (u, gaps) = random_layer(case), random_input()
    with pytest.raises(NotStreamable, match="state"):
        selective_ssm(u, gaps, weights, case.spec, state=random_state(2))


def test_the_first_observation_shows_only_through_the_readout_until_time_passes() -> None:
    """The price of `following`: s is still zero at the first step."""
    case = Case()
    weights, (u, gaps) = random_layer(case), random_input()
    y, _ = selective_ssm(u, gaps, weights, case.spec)
    assert_close(y[:, 0], (weights.skip * u)[:, 0], EXACT)


def test_zero_state_is_nothing_observed() -> None:
    case = Case()
    weights, (u, gaps) = random_layer(case), random_input()
    empty = zero_state((2,), weights)
    assert empty.s.dtype == torch.complex128
    assert all(float(part.abs().max()) == 0 for part in empty)
    with_state, _ = selective_ssm(u, gaps, weights, case.spec, state=empty)
    without, _ = selective_ssm(u, gaps, weights, case.spec)
    assert_close(with_state, without, EXACT)
    later = advance(empty, torch.full((2, 4), 1e12, dtype=torch.float64), case.spec)
    assert float(later.s.abs().max()) == 0
