"""The properties that define this project, on the functions (whole models: tests/nn/test_properties.py)."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.comparison import assert_close
from tests.functional.layers import VARIANTS, Case, describe, leaves, random_input, random_layer, random_state
from tests.tolerances import EXACT, IDENTITY
from tides.functional import (
    ModeHead,
    SSMState,
    StaticMix,
    advance,
    eigenvalues,
    mix_in,
    selective_ssm,
    step_sizes,
)

seeds = st.integers(0, 2**20)
PHYSICAL = tuple(v for v in VARIANTS if v != "mamba-s")
CAUSAL = [Case(v, hold=h, discretisation=m) for v in VARIANTS for h in ("following", "preceding") for m in ("zoh",)]
CAUSAL += [Case("tides", hold=h, discretisation=m) for h in ("following", "preceding") for m in ("bilinear", "dirac")]


def assert_same_state(found: SSMState, wanted: SSMState, tolerance: float = EXACT) -> None:
    for name in SSMState._fields:
        assert_close(getattr(found, name), getattr(wanted, name), tolerance, name)


# 1. time passing


@pytest.mark.parametrize("method", ["zoh", "bilinear", "dirac"])
@given(seed=seeds)
def test_no_time_changes_nothing(method: str, seed: int) -> None:
    torch.manual_seed(seed)
    state = random_state(3)
    assert_same_state(advance(state, torch.zeros(3, 4, dtype=torch.float64), Case(discretisation=method).spec), state)


@pytest.mark.parametrize("method", ["zoh", "dirac"])
@given(seed=seeds, first=st.floats(0, 1e3), second=st.floats(0, 1e3))
def test_time_passes_in_two_parts_as_in_one(method: str, seed: int, first: float, second: float) -> None:
    torch.manual_seed(seed)
    state, spec = random_state(3), Case(discretisation=method).spec
    scale = torch.rand(4, dtype=torch.float64) * 0.1
    both = advance(advance(state, first * scale, spec), second * scale, spec)
    assert_same_state(both, advance(state, (first + second) * scale, spec), IDENTITY)


# 2. concatenation


@pytest.mark.parametrize("case", CAUSAL, ids=describe)
@settings(max_examples=4)
@given(seed=seeds, cut=st.integers(1, 4))
def test_a_sequence_continues_from_its_state(case: Case, seed: int, cut: int) -> None:
    torch.manual_seed(seed)
    weights, (u, gaps), state = random_layer(case), random_input(), random_state(2)
    whole, last = selective_ssm(u, gaps, weights, case.spec, state=state)
    y1, middle = selective_ssm(u[:, :cut], gaps[:, :cut], weights, case.spec, state=state)
    y2, end = selective_ssm(u[:, cut:], gaps[:, cut:], weights, case.spec, state=middle)
    assert_close(torch.cat([y1, y2], dim=1), whole, EXACT)
    assert_same_state(end, last)
    steps = []
    for k in range(5):
        y, state = selective_ssm(u[:, k : k + 1], gaps[:, k : k + 1], weights, case.spec, state=state)
        steps.append(y)
    assert_close(torch.cat(steps, dim=1), whole, EXACT)
    assert_same_state(state, last)


@pytest.mark.parametrize("case", [*(Case(v) for v in PHYSICAL), Case(discretisation="dirac")], ids=describe)
def test_time_that_passes_before_an_observation_counts_once(case: Case) -> None:
    """advance(g₁) and then an observation after g₂ is an observation after g₁ + g₂."""
    weights, (u, gaps), state = random_layer(case), random_input(), random_state(2)
    early = advance(state, step_sizes(u[:, 0], 0.25 * gaps[:, 0], weights.step), case.spec)
    shorter = torch.cat([0.75 * gaps[:, :1], gaps[:, 1:]], dim=1)
    found, last = selective_ssm(u, shorter, weights, case.spec, state=early)
    wanted, wanted_last = selective_ssm(u, gaps, weights, case.spec, state=state)
    assert_close(found, wanted, EXACT)
    assert_same_state(last, wanted_last)


# 3. a held input


@pytest.mark.parametrize("variant", PHYSICAL)
@pytest.mark.parametrize("hold", ["following", "preceding"])
@given(seed=seeds, share=st.floats(0, 1))
@settings(max_examples=5)
def test_observing_the_same_again_adds_nothing(variant: str, hold: str, seed: int, share: float) -> None:
    """The same u over Δ₁ and then Δ₂ is u over Δ₁ + Δ₂."""
    torch.manual_seed(seed)
    case = Case(variant, hold=hold)
    weights, (u, gaps) = random_layer(case), random_input()
    wanted, last = selective_ssm(u, gaps, weights, case.spec)
    repeated = torch.cat([u[:, :3], u[:, 2:]], dim=1)
    # Following: u₂ acts over the gap after it, which the repetition splits; preceding: over the gap before it.
    split = gaps[:, 3:4] if hold == "following" else gaps[:, 2:3]
    at = 3 if hold == "following" else 2
    denser = torch.cat([gaps[:, :at], share * split, (1 - share) * split, gaps[:, at + 1 :]], dim=1)
    found, found_last = selective_ssm(repeated, denser, weights, case.spec)
    assert_close(found[:, 4:], wanted[:, 3:], EXACT, "y")
    assert_close(found_last.s, last.s, EXACT, "s")


# 4. padding


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("bidirectional", [False, True])
@settings(max_examples=4)
@given(seed=seeds, extra=st.integers(1, 4))
def test_padding_changes_nothing(variant: str, bidirectional: bool, seed: int, extra: int) -> None:
    torch.manual_seed(seed)
    case = Case(variant, bidirectional=bidirectional)
    weights, (u, gaps) = random_layer(case), random_input()
    inputs = [u, gaps, *leaves(weights)]
    wanted, wanted_last = selective_ssm(u, gaps, weights, case.spec)
    longer = torch.cat([u, 9 * torch.randn(2, extra, 3, dtype=u.dtype)], dim=1)
    padded_gaps = torch.cat([gaps, 9 * torch.rand(2, extra, dtype=u.dtype)], dim=1)
    valid = (torch.arange(5 + extra) < 5).expand(2, -1)
    found, last = selective_ssm(longer, padded_gaps, weights, case.spec, valid=valid)
    assert_close(found[:, :5], wanted, EXACT, "y")
    assert float(found[:, 5:].detach().abs().max()) == 0
    assert_same_state(last, wanted_last)
    ours = torch.autograd.grad(found.square().sum() + last.s.abs().sum(), inputs, allow_unused=True)
    theirs = torch.autograd.grad(wanted.square().sum() + wanted_last.s.abs().sum(), inputs, allow_unused=True)
    for x, y in zip(ours, theirs, strict=True):
        assert (x is None) == (y is None)
        if x is not None and float(y.abs().max()) > 0:
            assert_close(x, y, IDENTITY, "gradient")


# 5. order of the batch


@pytest.mark.parametrize("variant", VARIANTS)
@given(seed=seeds, order=st.permutations(range(4)))
@settings(max_examples=4)
def test_series_do_not_see_each_other(variant: str, seed: int, order: list[int]) -> None:
    torch.manual_seed(seed)
    case = Case(variant, bidirectional=True)
    weights, (u, gaps) = random_layer(case), random_input(4)
    y, last = selective_ssm(u, gaps, weights, case.spec)
    permuted, permuted_last = selective_ssm(u[order], gaps[order], weights, case.spec)
    assert_close(permuted, y[order], EXACT)
    assert_close(permuted_last.s, last.s[order], EXACT)
    alone, _ = selective_ssm(u[:1], gaps[:1], weights, case.spec)
    assert_close(alone, y[:1], EXACT)


# 6. conjugate halves


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("hold", ["following", "preceding"])
@given(seed=seeds)
@settings(max_examples=4)
def test_half_of_the_conjugate_pairs_is_enough(bidirectional: bool, hold: str, seed: int) -> None:
    torch.manual_seed(seed)
    case = Case("s5", conjugate=True, bidirectional=bidirectional, hold=hold)
    half, (u, gaps) = random_layer(case), random_input()

    def conjugated(base: Tensor, directions: int) -> Tensor:
        mirrored = base * torch.tensor([1.0, -1.0], dtype=base.dtype)
        parts = zip(base.chunk(directions), mirrored.chunk(directions), strict=True)
        return torch.cat([piece for pair in parts for piece in pair])

    full = half._replace(
        decay=ModeHead(half.decay.bias.repeat(2)),
        frequency=ModeHead(torch.cat([half.frequency.bias, -half.frequency.bias])),
        drive=StaticMix(conjugated(half.drive.base, 1)),
        readout=StaticMix(conjugated(half.readout.base, 2 if bidirectional else 1)),
        step=half.step.repeat(2),
    )
    found, _ = selective_ssm(u, gaps, half, case.spec)
    wanted, _ = selective_ssm(u, gaps, full, case._replace(conjugate=False).spec)
    assert_close(found, wanted, EXACT)


# 7. reversed time


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("hold", ["following", "preceding"])
@given(seed=seeds, lengths=st.tuples(st.integers(1, 5), st.integers(1, 5)))
@settings(max_examples=4)
def test_the_backward_pass_is_the_forward_pass_of_reversed_time(
    variant: str, hold: str, seed: int, lengths: tuple[int, int]
) -> None:
    torch.manual_seed(seed)
    case = Case(variant, hold=hold, bidirectional=True)
    weights, (u, gaps) = random_layer(case), random_input()
    base = torch.randn(8, 3, 2, dtype=torch.float64)
    # Only the backward half of the state is read, by a static C.
    weights = weights._replace(readout=StaticMix(torch.cat([torch.zeros_like(base[:4]), base[4:]])))
    valid = torch.arange(5) < torch.tensor(lengths)[:, None]
    found, _ = selective_ssm(u, gaps, weights, case.spec, valid=valid)
    one_way = weights._replace(readout=StaticMix(base[4:]))
    for i, n in enumerate(lengths):
        after = torch.cat([gaps[i, 1:n], gaps[i, :1]])
        flipped, _ = selective_ssm(
            u[i : i + 1, :n].flip(1), after.flip(0).unsqueeze(0), one_way, case._replace(bidirectional=False).spec
        )
        assert_close(found[i, :n], flipped[0].flip(0), EXACT)


# 9. units of time


@pytest.mark.parametrize("variant", PHYSICAL)
@pytest.mark.parametrize("method", ["zoh", "bilinear", "dirac"])
@given(seed=seeds, exponent=st.floats(-9, 9))
@settings(max_examples=4)
def test_the_unit_of_time_is_a_learned_scale(variant: str, method: str, seed: int, exponent: float) -> None:
    torch.manual_seed(seed)
    case = Case(variant, discretisation=method, bidirectional=True)
    weights, (u, gaps) = random_layer(case), random_input()
    wanted, _ = selective_ssm(u, gaps, weights, case.spec)
    unit = 10.0**exponent
    rescaled = weights._replace(step=weights.step - math.log(unit))
    found, _ = selective_ssm(u, gaps * unit, rescaled, case.spec)
    assert_close(found, wanted, IDENTITY)


# 10. extremes


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("method", ["zoh", "bilinear", "dirac"])
@pytest.mark.parametrize("hold", ["following", "preceding"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_for_extreme_gaps_and_inputs(variant: str, method: str, hold: str, dtype: torch.dtype) -> None:
    # Projector norms keep B_k and C_k bounded; without them B_k u_k grows with the square of the input.
    case = Case(variant, discretisation=method, hold=hold, bidirectional=True)
    weights = random_layer(case, dtype=dtype)
    gaps = torch.tensor([[1e-12, 1e12, 0.0, 1.0, 1e-6, 1e6]], dtype=dtype)
    u = (1e6 * torch.randn(1, 6, 3, dtype=torch.float64)).to(dtype).requires_grad_()
    frozen = weights._replace(decay=ModeHead(torch.full((4,), -1e4, dtype=dtype, requires_grad=True)))
    for layer in (weights, frozen):
        y, last = selective_ssm(u, gaps, layer, case.spec)
        assert torch.isfinite(y).all()
        assert torch.isfinite(torch.view_as_real(last.s)).all()
        for gradient in torch.autograd.grad(y.abs().mean(), [u, *leaves(layer)], allow_unused=True):
            assert gradient is None or torch.isfinite(gradient).all()


# 12. where time enters


@pytest.mark.parametrize("variant", VARIANTS)
@given(seed=seeds)
@settings(max_examples=5)
def test_what_is_projected_from_an_input_does_not_depend_on_the_gaps(variant: str, seed: int) -> None:
    torch.manual_seed(seed)
    case = Case(variant)
    weights, (u, gaps) = random_layer(case), random_input()
    _, last = selective_ssm(u, gaps, weights, case.spec)
    _, other = selective_ssm(u, 3 * gaps + 1, weights, case.spec)
    assert torch.equal(last.lam, other.lam)
    assert torch.equal(last.drive, other.drive)
    assert_close(last.lam, eigenvalues(u, weights, case.spec)[:, -1], EXACT)
    assert_close(last.drive, mix_in(u, weights.drive)[:, -1], EXACT)
    assert not torch.allclose(last.s, other.s)
