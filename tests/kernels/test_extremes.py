"""Numbers at the edge: tiny and huge steps, growing modes, and what a textbook ZOH makes of them."""

import pytest
import torch
from torch import Tensor

from tests.comparison import relative_error
from tests.functional.layers import Case
from tests.kernels.backends import Target, over_targets, running
from tests.kernels.contract import Problem, check, make_inputs, run
from tests.tolerances import FLOAT32_FORWARD, FLOAT32_GRADIENT
from tides import functional as tf
from tides.functional import SSMOps
from tides.kernels import linear_scan, selective_ssm


@over_targets()
@pytest.mark.parametrize("gap_scale", [1e-12, 1e-9, 1e-6, 1e-3, 1e2, 1e4, 1e6])
@pytest.mark.parametrize("discretisation", ["zoh", "bilinear"])
def test_steps_of_every_size(target: Target, discretisation: str, gap_scale: float) -> None:
    problem = Problem(Case("tides", discretisation=discretisation), l=63, gap_scale=gap_scale)
    if discretisation == "zoh" or gap_scale < 1e2:
        # After 1e6 time constants nothing depends on the step any more; the reference leaves rounding there.
        with running(target):
            check(problem, target.device, floor=1e-12 if gap_scale == 1e6 else 1e-20)
        return
    # A bilinear step of 1e4 turns the state by almost −1 each time: nothing of it decays, so only finiteness is asked.
    with running(target):
        found = run(selective_ssm, make_inputs(problem, device=target.device), problem.case)
    for kind in found:
        assert all(torch.isfinite(torch.view_as_real(x) if x.is_complex() else x).all() for x in kind.values())


@over_targets()
@pytest.mark.parametrize("gap_scale", [1e-12, 1e-6, 1e4])
def test_steps_of_every_size_in_double(target: Target, gap_scale: float) -> None:
    with running(target):
        check(Problem(Case("tides"), l=63, gap_scale=gap_scale, dtype=torch.float64), target.device)


@over_targets()
@pytest.mark.parametrize("hold", ["following", "preceding"])
def test_growing_modes(target: Target, hold: str) -> None:
    """Re λ > 0 is possible with `standard`: the state grows by eight orders of magnitude and stays right."""
    problem = Problem(Case("s5", reparam="standard", hold=hold), l=500, gap_scale=0.02, dtype=torch.float64)
    inputs = make_inputs(problem)
    lifted = inputs.weights.decay._replace(bias=(inputs.weights.decay.bias.detach().abs() * 4).requires_grad_())
    wanted = run(tf.selective_ssm, _with_decay(inputs, lifted), problem.case)
    assert float(wanted.forward["s"].abs().max()) > 1e4
    placed = make_inputs(problem, device=target.device)
    lifted = lifted._replace(bias=lifted.bias.detach().to(target.device).requires_grad_())
    with running(target):
        found = run(selective_ssm, _with_decay(placed, lifted), problem.case)
    for kind in ("forward", "gradients"):
        for name, expected in getattr(wanted, kind).items():
            assert relative_error(getattr(found, kind)[name].cpu(), expected) < 1e-10, name


@over_targets()
def test_overflow_stays_in_its_mode(target: Target) -> None:
    """A mode that overflows spoils neither the others nor the steps before it, and packing keeps it in its sequence."""
    l, p = 300, 2
    a = torch.tensor([10.0, 0.5]).expand(1, l, p).clone()
    b = torch.ones(1, l, p)
    a, b = a.to(target.device), b.to(target.device)
    bounds = torch.tensor([0, 200, 230, l], device=target.device)
    with running(target):
        s, _ = linear_scan(a, b, cu_seqlens=bounds)
    wanted, _ = tf.linear_scan(a.cpu(), b.cpu(), cu_seqlens=bounds.cpu())
    assert torch.equal(torch.isfinite(s).cpu(), torch.isfinite(wanted))
    assert torch.allclose(s.cpu()[torch.isfinite(wanted)], wanted[torch.isfinite(wanted)], rtol=1e-5)


def textbook_evolve(
    decay: Tensor, frequency: Tensor, gaps: Tensor, scale: Tensor, drive: Tensor, s0: None = None, **_: object
) -> Tensor:
    """ZOH as it is usually written, gain = (exp(λδ) − 1)/λ, preceding, from zero."""
    lam = torch.complex(decay, frequency.expand_as(decay))
    lam_bar = torch.exp(lam * (gaps * scale))
    s, _last = tf.linear_scan(lam_bar, (lam_bar - 1) / lam * drive)
    return s


@over_targets()
def test_a_textbook_zoh_loses_everything_at_small_gaps(target: Target) -> None:
    """float32, gaps of 1e-6: the textbook formula keeps no digit of the Λ head's gradient, ours keeps four."""
    problem = Problem(Case("tides", hold="preceding"), l=63, gap_scale=1e-6)
    wanted = run(tf.selective_ssm, make_inputs(problem, dtype=torch.float64), problem.case, parts=("y", "s"))

    def layer(*args: object, **options: object) -> object:
        return tf.selective_ssm(*args, **options, ops=SSMOps(evolve=textbook_evolve))  # type: ignore[arg-type]

    textbook = run(layer, make_inputs(problem), problem.case, parts=("y", "s"))
    assert relative_error(textbook.forward["s"], wanted.forward["s"]) > 1e-3
    assert relative_error(textbook.gradients["weights.decay.bias"], wanted.gradients["weights.decay.bias"]) > 0.5
    with running(target):
        ours = run(selective_ssm, make_inputs(problem, device=target.device), problem.case, parts=("y", "s"))
    for name, expected in wanted.forward.items():
        assert relative_error(ours.forward[name].cpu(), expected) < FLOAT32_FORWARD, name
    for name, expected in wanted.gradients.items():
        assert relative_error(ours.gradients[name].cpu(), expected) < FLOAT32_GRADIENT, name


def _with_decay(inputs, decay):  # type: ignore[no-untyped-def]
    return inputs._replace(weights=inputs.weights._replace(decay=decay))
