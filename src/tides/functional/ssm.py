"""The selective state-space layer composed from its parts: the oracle for `kernels` and `nn`.

    λ_k = ρ(g_Λ(u_k)) + i Im λ      v_k = B_k u_k      y_k = Re(C_k s_k) + skip ⊙ u_k

`hold="following"` lets u_k drive the interval after it (the paper's equation), `hold="preceding"` the one before it:

    following   s_k = λ̄(λ_{k−1}, δ_k) s_{k−1} + gain(λ_{k−1}, δ_k) ⊙ v_{k−1}
    preceding   s_k = λ̄(λ_k, δ_k) s_{k−1} + gain(λ_k, δ_k) ⊙ v_k
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from tides.errors import NotStreamable
from tides.functional.discretise import Discretisation, discretise
from tides.functional.mixes import Mix, mix_in, mix_out
from tides.functional.norm import rms_norm
from tides.functional.reparam import Reparam, reparameterise
from tides.functional.scan import linear_scan, sequence_bounds

Hold = Literal["following", "preceding"]
Reverse = Literal["exact", "release"]


@runtime_checkable
class Scan(Protocol):
    """Anything with the contract of `linear_scan`, without packing."""

    def __call__(
        self, a: Tensor, b: Tensor, s0: Tensor | None = None, *, reverse: bool = False
    ) -> tuple[Tensor, Tensor]: ...


class GLUWeights(NamedTuple):
    """One residual gated block x ← x + (W1 x + b1) ⊙ σ(W2 x + b2) at constant width."""

    value: Float[Tensor, "h h"]
    value_bias: Float[Tensor, "h"]
    gate: Float[Tensor, "h h"]
    gate_bias: Float[Tensor, "h"]


class ModeHead(NamedTuple):
    """A per-mode quantity: static (`bias` alone) or W g(u) + bias, then RMSNorm over the modes if `norm` is given."""

    bias: Float[Tensor, "p"]
    weight: Float[Tensor, "p h"] | None = None
    norm: Float[Tensor, "p"] | None = None
    blocks: tuple[GLUWeights, ...] = ()


class StepHead(NamedTuple):
    """Mamba_S: δ_k = softplus(W [u_k, gap_k] + b) replaces the physical step."""

    weight: Float[Tensor, "p h1"]
    bias: Float[Tensor, "p"]


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
    """The choices of one layer that are not numbers to learn."""

    reparam: Reparam = "exp"
    discretisation: Discretisation = "zoh"
    hold: Hold = "following"
    bidirectional: bool = False
    reverse: Reverse = "exact"
    clip: float | None = None
    conjugate: bool = False
    """The modes are one half of conjugate pairs: the output is 2·Re(C s)."""
    eps: float = 1e-6


class SSMState(NamedTuple):
    """What a layer remembers: its state and the pending pair (λ_k, v_k) that acts until the next observation."""

    s: Tensor
    lam: Tensor
    drive: Tensor


def glu_residual(x: Float[Tensor, "*b h"], block: GLUWeights) -> Float[Tensor, "*b h"]:
    """b(x) = x + (W1 x + b1) ⊙ σ(W2 x + b2)."""
    return x + F.linear(x, block.value, block.value_bias) * torch.sigmoid(F.linear(x, block.gate, block.gate_bias))


def apply_head(u: Float[Tensor, "*b h"], head: ModeHead, eps: float) -> Float[Tensor, "*b p"]:
    """The head's value for every input row; a static head broadcasts over them."""
    if head.weight is None:
        return head.bias.expand(*u.shape[:-1], -1)
    features = u
    for block in head.blocks:
        features = glu_residual(features, block)
    theta = F.linear(features, head.weight, head.bias)
    return theta if head.norm is None else rms_norm(theta, head.norm, eps)


def eigenvalues(u: Float[Tensor, "*b h"], weights: SSMWeights, spec: SSMSpec) -> Tensor:
    """λ_k = ρ(θ_k) + i Im λ_k; with `clip` = ε the real part is at most −ε."""
    decay = reparameterise(apply_head(u, weights.decay, spec.eps), spec.reparam)
    if spec.clip is not None:
        decay = decay.clamp(max=-spec.clip)
    return torch.complex(decay, apply_head(u, weights.frequency, spec.eps))


def step_sizes(u: Float[Tensor, "*b h"], gaps: Float[Tensor, "*b"], weights: SSMWeights) -> Tensor:
    """δ_k per mode: the gap times the learned scale, or Mamba_S's learned function of both."""
    if isinstance(weights.step, StepHead):
        features = torch.cat([u, gaps.unsqueeze(-1)], dim=-1)
        return F.softplus(F.linear(features, weights.step.weight, weights.step.bias))
    return gaps.unsqueeze(-1) * torch.exp(weights.step)


def transition(lam: Tensor, delta: Tensor, drive: Tensor, spec: SSMSpec) -> tuple[Tensor, Tensor]:
    """(a, b) of s ← a s + b over one interval governed by (λ, v).

    An impulse that *precedes* the interval (dirac, following) decays together with the state.
    """
    lam_bar, gain = discretise(lam, delta, spec.discretisation)
    if spec.discretisation == "dirac" and spec.hold == "following":
        gain = lam_bar
    return lam_bar, gain * drive


def advance(state: SSMState, delta: Tensor, spec: SSMSpec) -> SSMState:
    """Time passes and nothing is observed: the pending pair keeps acting. `delta` = 0 is the identity."""
    lam_bar, gain = discretise(state.lam, delta, spec.discretisation)
    if spec.discretisation != "dirac":
        return state._replace(s=lam_bar * state.s + gain * state.drive)
    # The pending impulse has happened as soon as any time has passed, and is then part of the state.
    passed = (delta > 0).expand_as(state.s)
    return state._replace(
        s=torch.where(passed, lam_bar * (state.s + state.drive), state.s),
        drive=torch.where(passed, torch.zeros_like(state.drive), state.drive),
    )


def zero_state(batch: tuple[int, ...], weights: SSMWeights) -> SSMState:
    """Nothing has been observed: s, λ and drive are zero, so that time passing changes nothing."""
    modes = weights.frequency.bias
    zero = torch.zeros(*batch, modes.shape[-1], dtype=modes.dtype.to_complex(), device=modes.device)
    return SSMState(zero, zero, zero)


def shift_pending(x: Tensor, first: Tensor) -> Tensor:
    """[first, x_0, …, x_{l−2}] along time: what was pending when each observation arrived."""
    return torch.cat([first.unsqueeze(-2), x[..., :-1, :]], dim=-2)


def selective_ssm(
    u: Float[Tensor, "b l h"],
    gaps: Float[Tensor, "b l"],
    weights: SSMWeights,
    spec: SSMSpec,
    *,
    valid: Bool[Tensor, "b l"] | None = None,
    state: SSMState | None = None,
    cu_seqlens: Int[Tensor, "n1"] | None = None,
    scan: Scan = linear_scan,
) -> tuple[Float[Tensor, "b l h"], SSMState]:
    """One layer over a batch: outputs and the state after the last valid step.

    Padding (`valid` false, at the end) leaves the state alone and outputs zero. `cu_seqlens` packs sequences into a
    batch of one; `state` then has one row per sequence. A bidirectional layer takes no state, because its output
    needs the future; the state it returns is the forward half's. `scan` is the recurrence to use.
    """
    if cu_seqlens is not None:
        return _packed(u, gaps, weights, spec, state, sequence_bounds(cu_seqlens, u.shape), scan)
    if spec.bidirectional and state is not None:
        raise NotStreamable("state: a bidirectional layer needs the whole sequence, so it cannot continue from a state")
    if valid is not None:
        # Not a product: padding may hold NaN.
        u, gaps = u.masked_fill(~valid.unsqueeze(-1), 0), gaps.masked_fill(~valid, 0)
    trace, last = ssm_states(u, gaps, weights, spec, valid=valid, state=state, scan=scan)
    y = read_out(trace.s, u, weights, spec)
    return (y if valid is None else y.masked_fill(~valid.unsqueeze(-1), 0)), last


def read_out(s: Tensor, u: Tensor, weights: SSMWeights, spec: SSMSpec) -> Tensor:
    """y_k = Re(C_k s_k) + skip ⊙ u_k, C_k projected from u_k; twice the real part for conjugate halves."""
    y = mix_out(s, u, weights.readout, spec.eps)
    return (2 * y if spec.conjugate else y) + weights.skip * u


def ssm_states(
    u: Tensor,
    gaps: Tensor,
    weights: SSMWeights,
    spec: SSMSpec,
    *,
    valid: Tensor | None = None,
    state: SSMState | None = None,
    scan: Scan = linear_scan,
) -> tuple[SSMState, SSMState]:
    """State and pending pair at every step, and those after the last valid one.

    When bidirectional, the forward and backward states are concatenated along the modes.
    """
    first = zero_state(u.shape[:-2], weights) if state is None else state
    lam, drive = eigenvalues(u, weights, spec), mix_in(u, weights.drive, spec.eps)
    delta = step_sizes(u, gaps, weights)
    if spec.hold == "following":
        a, b = transition(shift_pending(lam, first.lam), delta, shift_pending(drive, first.drive), spec)
    else:
        a, b = transition(lam, delta, drive, spec)
    s, s_last = scan(*_hold_padding(a, b, valid), first.s)
    pending = drive if spec.hold == "following" else torch.zeros_like(drive)
    last = SSMState(s_last, last_valid(lam, first.lam, valid), last_valid(pending, first.drive, valid))
    if spec.bidirectional:
        a, b = _backward_transition(u, gaps, lam, drive, (a, b), weights, spec, valid)
        r, _ = scan(*_hold_padding(a, b, valid), reverse=True)
        s = torch.cat([s, r], dim=-1)
    return SSMState(s, lam, pending), last


def _backward_transition(
    u: Tensor,
    gaps: Tensor,
    lam: Tensor,
    drive: Tensor,
    forward: tuple[Tensor, Tensor],
    weights: SSMWeights,
    spec: SSMSpec,
    valid: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """(a, b) of the pass over reversed time: the gap *after* k separates it from what that pass saw before."""
    if spec.reverse == "release":
        return forward
    delta = step_sizes(u, reversed_gaps(gaps, valid), weights)
    if spec.hold == "preceding":
        return transition(lam, delta, drive, spec)
    zero = torch.zeros_like(lam[..., :1, :])
    # Padding carries the drive of a zero input; it must not act on the last valid step.
    acting = drive if valid is None else drive * valid.unsqueeze(-1)
    return transition(
        torch.cat([lam[..., 1:, :], zero], dim=-2), delta, torch.cat([acting[..., 1:, :], zero], dim=-2), spec
    )


def reversed_gaps(gaps: Float[Tensor, "*b l"], valid: Bool[Tensor, "*b l"] | None = None) -> Tensor:
    """g'[k] = gaps[k+1] and g'[n−1] = gaps[0], n the number of valid steps."""
    if valid is None:
        return torch.roll(gaps, -1, dims=-1)
    last = valid & ~F.pad(valid[..., 1:], (0, 1))
    return torch.where(last, gaps[..., :1], torch.roll(gaps, -1, dims=-1))


def _hold_padding(a: Tensor, b: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
    if valid is None:
        return a, b
    keep = valid.unsqueeze(-1)
    return torch.where(keep, a, torch.ones_like(a)), torch.where(keep, b, torch.zeros_like(b))


def last_valid(x: Tensor, before: Tensor, valid: Tensor | None) -> Tensor:
    """The row of the last valid step, or `before` where a series has none."""
    if valid is None:
        return x[..., -1, :]
    count = valid.sum(-1)
    index = (count - 1).clamp_min(0)[..., None, None].expand(*x.shape[:-2], 1, x.shape[-1])
    return torch.where((count > 0).unsqueeze(-1), x.gather(-2, index).squeeze(-2), before)


def _packed(
    u: Tensor, gaps: Tensor, weights: SSMWeights, spec: SSMSpec, state: SSMState | None, bounds: list[int], scan: Scan
) -> tuple[Tensor, SSMState]:
    outputs, lasts = [], []
    for i, (start, stop) in enumerate(pairwise(bounds)):
        first = None if state is None else SSMState(*(part[i : i + 1] for part in state))
        y, last = selective_ssm(u[:, start:stop], gaps[:, start:stop], weights, spec, state=first, scan=scan)
        outputs.append(y)
        lasts.append(last)
    return torch.cat(outputs, dim=1), SSMState(*(torch.cat(parts) for parts in zip(*lasts, strict=True)))
