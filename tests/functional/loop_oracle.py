"""The layer as its equations state it: one series, one step at a time, B_k and C_k built, in float64.

Nothing here calls the library; its NamedTuples are read as plain records. Zero-order hold comes from the exponential
of the augmented matrix [[λ, 1], [0, 0]]·δ = [[λ̄, gain], [0, 1]], so that it shares no formula with what it checks.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor


class State(NamedTuple):
    """State and pending pair of one series."""

    s: Tensor
    lam: Tensor
    drive: Tensor


def pairs(x: Tensor) -> Tensor:
    """(…, 2) real numbers as complex ones."""
    return x[..., 0] + 1j * x[..., 1]


def flow(lam: Tensor, delta: Tensor, method: str) -> tuple[Tensor, Tensor]:
    """(λ̄, gain) of every mode over one interval."""
    if method == "zoh":
        zero, one = torch.zeros_like(lam), torch.ones_like(lam)
        rows = torch.stack([torch.stack([lam, one], -1), torch.stack([zero, zero], -1)], -2)
        result = torch.linalg.matrix_exp(rows * delta[..., None, None])
        return result[..., 0, 0], result[..., 0, 1]
    half = lam * delta / 2
    if method == "bilinear":
        return (1 + half) / (1 - half), delta / (1 - half)
    return torch.exp(lam * delta), torch.ones_like(lam)


def decay_rate(theta: Tensor, kind: str) -> Tensor:
    match kind:
        case "standard":
            return theta
        case "exp":
            return -torch.exp(theta)
        case "stable":
            return -1 / (theta**2 + 0.5)
        case "softplus":
            return -torch.logaddexp(theta, torch.zeros_like(theta))
    raise AssertionError(kind)


def root_mean_square(x: Tensor, eps: float) -> Tensor:
    return ((x * x.conj()).real.mean() + eps).sqrt()


def mode_head(u: Tensor, head: Any, eps: float) -> Tensor:
    """One per-mode quantity for one input row u (H)."""
    if head.weight is None:
        return head.bias
    for glu in head.blocks:
        u = u + (glu.value @ u + glu.value_bias) * torch.sigmoid(glu.gate @ u + glu.gate_bias)
    theta = head.weight @ u + head.bias
    return theta if head.norm is None else theta / root_mean_square(theta, eps) * head.norm


def eigenvalue(u: Tensor, weights: Any, spec: Any) -> Tensor:
    real = decay_rate(mode_head(u, weights.decay, spec.eps), spec.reparam)
    if spec.clip is not None:
        real = torch.minimum(real, torch.full_like(real, -spec.clip))
    return real + 1j * mode_head(u, weights.frequency, spec.eps)


def step_size(u: Tensor, gap: Tensor, step: Any) -> Tensor:
    """δ of every mode: gap · e^log_step, or Mamba_S's softplus(W [u, gap] + b)."""
    if isinstance(step, Tensor):
        return gap * torch.exp(step)
    argument = step.weight @ torch.cat([u, gap.reshape(1)]) + step.bias
    return torch.logaddexp(argument, torch.zeros_like(argument))


def matrix(u: Tensor, mix: Any, eps: float) -> Tensor:
    """B_k, or C_kᵀ, as a (P, H) complex matrix for one input row."""
    base = pairs(mix.base)
    if hasattr(mix, "up"):
        code = u if mix.down is None else mix.down @ u
        if mix.down_bias is not None:
            code = code + mix.down_bias
        built = pairs((mix.up * code).sum(-1)) + base
        if mix.norm is None:
            return built
        columns = [built[:, h] / root_mean_square(built[:, h], eps) * mix.norm for h in range(built.shape[1])]
        return torch.stack(columns, dim=1)
    if hasattr(mix, "weight"):
        modulation = pairs(mix.weight @ u + mix.bias)
        if mix.norm is not None:
            modulation = modulation / root_mean_square(modulation, eps) * mix.norm
        return torch.diag(modulation) @ base
    return base


def run_series(u: Tensor, gaps: Tensor, weights: Any, spec: Any, state: State | None = None) -> tuple[Tensor, State]:
    """Outputs (n, H) and the final state of one series u (n, H) with gaps (n), n ≥ 1."""
    steps = range(u.shape[0])
    lam = [eigenvalue(u[k], weights, spec) for k in steps]
    drive = [matrix(u[k], weights.drive, spec.eps) @ (u[k] + 0j) for k in steps]
    states = forward_states(u, gaps, lam, drive, weights, spec, state)
    pending = drive[-1] if spec.hold == "following" else torch.zeros_like(drive[-1])
    last = State(states[-1], lam[-1], pending)
    if spec.bidirectional:
        backward = backward_states(u, gaps, lam, drive, weights, spec)
        states = [torch.cat(both) for both in zip(states, backward, strict=True)]
    factor = 2 if spec.conjugate else 1
    y = [factor * (matrix(u[k], weights.readout, spec.eps).T @ states[k]).real + weights.skip * u[k] for k in steps]
    return torch.stack(y), last


def forward_states(
    u: Tensor, gaps: Tensor, lam: list[Tensor], drive: list[Tensor], weights: Any, spec: Any, state: State | None
) -> list[Tensor]:
    s = torch.zeros_like(lam[0]) if state is None else state.s
    pending = None if state is None else (state.lam, state.drive)
    found = []
    for k in range(u.shape[0]):
        delta = step_size(u[k], gaps[k], weights.step)
        if spec.hold == "preceding":
            s = interval(s, lam[k], delta, drive[k], spec)
        elif pending is not None:
            s = interval(s, pending[0], delta, pending[1], spec)
        pending = (lam[k], drive[k])
        found.append(s)
    return found


def backward_states(
    u: Tensor, gaps: Tensor, lam: list[Tensor], drive: list[Tensor], weights: Any, spec: Any
) -> list[Tensor]:
    n = u.shape[0]
    r = torch.zeros_like(lam[0])
    found: list[Tensor] = []
    for k in reversed(range(n)):
        if spec.hold == "preceding":
            gap = gaps[k] if spec.reverse == "release" else gaps[(k + 1) % n]
            r = interval(r, lam[k], step_size(u[k], gap, weights.step), drive[k], spec)
        elif k + 1 < n:
            r = interval(r, lam[k + 1], step_size(u[k], gaps[k + 1], weights.step), drive[k + 1], spec)
        found.insert(0, r)
    return found


def interval(s: Tensor, lam: Tensor, delta: Tensor, drive: Tensor, spec: Any) -> Tensor:
    """The state after one interval governed by (λ, v)."""
    lam_bar, gain = flow(lam, delta, spec.discretisation)
    if spec.discretisation == "dirac" and spec.hold == "following":
        return lam_bar * (s + drive)
    return lam_bar * s + gain * drive


def run_batch(
    u: Tensor,
    gaps: Tensor,
    weights: Any,
    spec: Any,
    *,
    lengths: list[int] | None = None,
    state: Any | None = None,
) -> tuple[Tensor, State]:
    """Every series by itself, cut to its length; outputs padded with zeros, states stacked."""
    outputs, lasts = [], []
    for i in range(u.shape[0]):
        n = u.shape[1] if lengths is None else lengths[i]
        before = None if state is None else State(*(part[i] for part in state))
        if n:
            y, last = run_series(u[i, :n], gaps[i, :n], weights, spec, before)
        else:
            zero = torch.zeros(weights.frequency.bias.shape[0], dtype=torch.complex128)
            y, last = u[i, :0], before or State(zero, zero, zero)
        outputs.append(torch.cat([y, torch.zeros_like(u[i, n:])]))
        lasts.append(last)
    return torch.stack(outputs), State(*(torch.stack(part) for part in zip(*lasts, strict=True)))
