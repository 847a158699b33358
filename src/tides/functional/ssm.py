"""The selective state-space layer composed from its parts: the oracle for `kernels` and `nn`.

λ_k = ρ(g_Λ(u_k)) + i Im λ      v_k = B_k u_k      s = evolve(λ, Δ, v)      y_k = Re(C_k s_k) + skip ⊙ u_k
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tides.errors import NotStreamable, ShapeError
from tides.functional.checks import check_layer_input, check_precision, describe_shape
from tides.functional.discretise import Discretisation, discretise
from tides.functional.evolve import Hold, evolve, transition
from tides.functional.heads import ModeHead, StepHead, apply_head, decay_rates, step_sizes
from tides.functional.layout import first_rows, last_rows, reversed_gaps
from tides.functional.mixes import Mix, mix_in, mix_out
from tides.functional.reparam import Reparam
from tides.functional.scan import sequence_bounds
from tides.functional.tail import TailWeights, gated_tail


class SSMWeights(NamedTuple):
    """Everything one layer learns. `step` is log_step (p), so δ_k = gap_k · exp(log_step), or a `StepHead`."""

    decay: ModeHead
    frequency: ModeHead
    drive: Mix
    readout: Mix
    step: Tensor | StepHead
    skip: Float[Tensor, "h"]


@dataclass(frozen=True)
class SSMSpec:
    """The choices of one layer that are not learned numbers."""

    reparam: Reparam = "exp"
    discretisation: Discretisation = "zoh"
    hold: Hold = "following"
    bidirectional: bool = False
    reverse: Literal["exact", "release"] = "exact"
    clip: float | None = None
    conjugate: bool = False
    """The modes are one half of conjugate pairs: the output is 2·Re(C s)."""
    eps: float = 1e-6


class SSMState(NamedTuple):
    """What a layer remembers: its state and the pending pair (λ_k, v_k) that acts until the next observation."""

    s: Tensor
    lam: Tensor
    drive: Tensor


class SSMOps(NamedTuple):
    """The operations that take most of a block's time; a backend is another set of them."""

    mix_in: Callable[[Tensor, Mix, float], Tensor] = mix_in
    mix_out: Callable[[Tensor, Tensor, Mix, float], Tensor] = mix_out
    evolve: Callable[..., Tensor] = evolve
    gated_tail: Callable[[Tensor, Tensor, TailWeights], Tensor] = gated_tail
    decay_rates: Callable[[Tensor, ModeHead, Reparam, float | None, float], Tensor] = decay_rates
    read_out: Callable[[Tensor, Tensor, SSMWeights, SSMSpec], Tensor] | None = None
    """The out-mix with the skip connection, where a backend fuses them; `mix_out` and a sum otherwise."""


PLAIN = SSMOps()


def eigenvalues(u: Float[Tensor, "*b h"], weights: SSMWeights, spec: SSMSpec) -> Tensor:
    """λ_k = ρ(θ_k) + i Im λ_k; with `clip` = ε the real part is at most −ε."""
    decay = decay_rates(u, weights.decay, spec.reparam, spec.clip, spec.eps)
    return torch.complex(decay, apply_head(u, weights.frequency, spec.eps))


def zero_state(batch: tuple[int, ...], weights: SSMWeights) -> SSMState:
    """The state before any observation: s, λ and drive are zero, so that passing time changes nothing."""
    check_precision(weights.frequency.bias.dtype, "weights")
    # dtype.to_complex() would break the graph under torch.compile.
    real = weights.frequency.bias.new_zeros(*batch, weights.frequency.bias.shape[-1])
    zero = torch.complex(real, real)
    return SSMState(zero, zero, zero)


def advance(state: SSMState, delta: Tensor, spec: SSMSpec) -> SSMState:
    """Let time pass without an observation: the pending pair keeps acting. `delta` = 0 is the identity."""
    lam_bar, gain = discretise(state.lam, delta, spec.discretisation)
    if spec.discretisation != "dirac":
        return state._replace(s=lam_bar * state.s + gain * state.drive)
    # The pending impulse has happened as soon as any time has passed, and is then part of the state.
    passed = (delta > 0).expand_as(state.s)
    return state._replace(
        s=torch.where(passed, lam_bar * (state.s + state.drive), state.s),
        drive=torch.where(passed, torch.zeros_like(state.drive), state.drive),
    )


def read_out(s: Tensor, u: Tensor, weights: SSMWeights, spec: SSMSpec, ops: SSMOps = PLAIN) -> Tensor:
    """y_k = Re(C_k s_k) + skip ⊙ u_k, C_k projected from u_k; twice the real part for conjugate halves."""
    if ops.read_out is not None:
        return ops.read_out(s, u, weights, spec)
    y = ops.mix_out(s, u, weights.readout, spec.eps)
    return (2 * y if spec.conjugate else y) + weights.skip * u


def selective_ssm(
    u: Float[Tensor, "b l h"],
    gaps: Float[Tensor, "b l"],
    weights: SSMWeights,
    spec: SSMSpec,
    *,
    valid: Bool[Tensor, "b l"] | None = None,
    state: SSMState | None = None,
    cu_seqlens: Int[Tensor, "n1"] | None = None,
    ops: SSMOps = PLAIN,
) -> tuple[Float[Tensor, "b l h"], SSMState]:
    """One layer over a batch: outputs and the state after the last valid step.

    Padding (`valid` false, at the end) leaves the state alone and outputs zero. `cu_seqlens` packs sequences into a
    batch of one; `state` then has one row per sequence. A bidirectional layer takes no state, because its output
    needs the future; the state it returns is the forward half's.
    """
    check_layer_input(u, gaps, weights.skip.shape[-1], valid)
    check_precision(u.dtype, "u")
    if cu_seqlens is not None:
        sequence_bounds(cu_seqlens, u.shape)
    if spec.bidirectional and state is not None:
        raise NotStreamable("state: a bidirectional layer needs the whole sequence, so it cannot continue from a state")
    if state is not None:
        rows = u.shape[0] if cu_seqlens is None else len(cu_seqlens) - 1
        check_layer_state(state, rows, weights.frequency.bias.shape[-1])
    if valid is not None:
        # Not a product: padding may hold NaN.
        u, gaps = u.masked_fill(~valid.unsqueeze(-1), 0), gaps.masked_fill(~valid, 0)
    trace, last = ssm_states(u, gaps, weights, spec, valid=valid, state=state, cu_seqlens=cu_seqlens, ops=ops)
    y = read_out(trace.s, u, weights, spec, ops)
    return (y if valid is None else y.masked_fill(~valid.unsqueeze(-1), 0)), last


def check_layer_state(state: Any, rows: int, modes: int) -> None:
    """Check for one row per series (or packed sequence) and one number per mode."""
    if not isinstance(state, SSMState):
        raise ShapeError(f"state: found {type(state).__name__}, wanted an SSMState (see init_state)")
    for name, part in zip(state._fields, state, strict=True):
        if not isinstance(part, Tensor) or part.shape != (rows, modes):
            raise ShapeError(f"state.{name}: found {describe_shape(part)}, wanted (b, p) = {(rows, modes)}")


def ssm_states(
    u: Tensor,
    gaps: Tensor,
    weights: SSMWeights,
    spec: SSMSpec,
    *,
    valid: Tensor | None = None,
    state: SSMState | None = None,
    cu_seqlens: Tensor | None = None,
    ops: SSMOps = PLAIN,
) -> tuple[SSMState, SSMState]:
    """State and pending pair at every step, and those after the last valid one.

    `u` and `gaps` must be zero over padding, so that nothing drives the state there and no time passes. When
    bidirectional, the forward and backward states are concatenated along the modes.
    """
    decay = ops.decay_rates(u, weights.decay, spec.reparam, spec.clip, spec.eps)
    frequency = weights.frequency.bias
    if weights.frequency.weight is not None:
        frequency = apply_head(u, weights.frequency, spec.eps)
    drive = ops.mix_in(u, weights.drive, spec.eps)

    s = ops.evolve(
        decay,
        frequency,
        *_clock(u, gaps, weights, valid),
        drive,
        _beginning(u, gaps, weights, spec, state, cu_seqlens),
        discretisation=spec.discretisation,
        hold=spec.hold,
        cu_seqlens=cu_seqlens,
    )
    pending = drive if spec.hold == "following" else torch.zeros_like(drive)
    lam = torch.complex(decay, frequency.expand_as(decay))
    before = (None, None, None) if state is None else state
    parts = zip((s, lam, pending), before, strict=True)
    last = SSMState(*(last_rows(x, first, valid, cu_seqlens) for x, first in parts))
    if spec.bidirectional:
        behind = gaps if spec.reverse == "release" else reversed_gaps(gaps, valid, cu_seqlens)
        r = ops.evolve(
            decay,
            frequency,
            *_clock(u, behind, weights, valid),
            drive,
            discretisation=spec.discretisation,
            hold="preceding" if spec.reverse == "release" else spec.hold,
            reverse=True,
            cu_seqlens=cu_seqlens,
        )
        s = torch.cat([s, r], dim=-1)
    return SSMState(s, lam, pending), last


def _clock(u: Tensor, gaps: Tensor, weights: SSMWeights, valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """(gaps, scale) with δ = gaps·scale. δ = 0 over padding: with no drive either, the state stays as it is."""
    if isinstance(weights.step, StepHead):
        delta = step_sizes(u, gaps, weights.step)
        if valid is not None:
            delta = delta.masked_fill(~valid.unsqueeze(-1), 0)
        return delta, torch.ones_like(weights.step.bias)
    return gaps.unsqueeze(-1), torch.exp(weights.step)


def _beginning(
    u: Tensor, gaps: Tensor, weights: SSMWeights, spec: SSMSpec, state: SSMState | None, cu_seqlens: Tensor | None
) -> Tensor | None:
    """`s0` of `evolve`: the given state, taken over the first gap by its own pending pair when following."""
    if state is None or spec.hold == "preceding":
        return None if state is None else state.s
    delta = step_sizes(first_rows(u, cu_seqlens), first_rows(gaps, cu_seqlens), weights.step)
    a, b = transition(state.lam, delta, state.drive, spec.discretisation, spec.hold)
    return a * state.s + b
