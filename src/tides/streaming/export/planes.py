"""The layer of `functional.ssm` on real planes, for formats without complex numbers: x = re + i·im is two tensors.

Only what is complex there is written again here; heads, norms, step sizes and tails are the functions themselves.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan as scan_operator

from tides.functional.heads import apply_head, decay_rates, step_sizes
from tides.functional.mixes import DiagonalMix, LowRankMix, Mix, inverse_rms, mix_code, mix_factors
from tides.functional.ssm import SSMSpec, SSMWeights

# Below it z² would underflow in float32, and (e^z − 1)/z is 1 + z/2 to the last digit.
_SMALLEST_SQUARE = 1e-30


class Planes(NamedTuple):
    """A complex tensor as two real ones."""

    re: Tensor
    im: Tensor

    def times(self, other: "Planes") -> "Planes":
        return Planes(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)

    def plus(self, other: "Planes") -> "Planes":
        return Planes(self.re + other.re, self.im + other.im)

    def scaled(self, factor: Tensor) -> "Planes":
        return Planes(self.re * factor, self.im * factor)


class LayerState(NamedTuple):
    """s, λ and drive, as in `SSMState`."""

    s: Planes
    lam: Planes
    drive: Planes


def discretise(lam: Planes, delta: Tensor, spec: SSMSpec) -> tuple[Planes, Planes]:
    """(λ̄, gain); with dirac the gain of the interval that an impulse acts on."""
    a, b = lam.re * delta, lam.im * delta
    if spec.discretisation == "bilinear":
        re, im = 1 - a / 2, b / 2
        square = re * re + im * im
        inverse = Planes(re / square, im / square)
        return Planes(2 * inverse.re - 1, 2 * inverse.im), inverse.scaled(delta)
    sine, cosine, growth = torch.sin(b / 2), torch.cos(b / 2), torch.exp(a)
    versine = 2 * sine * sine
    lam_bar = Planes(growth - growth * versine, 2 * sine * cosine * growth)
    if spec.discretisation == "dirac":
        following = spec.hold == "following"
        return lam_bar, lam_bar if following else Planes(torch.ones_like(a), torch.zeros_like(a))
    # e^a − 1 = tanh(a/2)(e^a + 1): ONNX has no expm1, and the difference would lose every digit of a small step.
    grown = torch.where(a > 30, growth, torch.tanh(a / 2) * (growth + 1))
    re, im = grown - grown * versine - versine, lam_bar.im
    square = a * a + b * b
    small = square < _SMALLEST_SQUARE
    factor = delta / torch.where(small, torch.ones_like(square), square)
    return lam_bar, Planes(
        torch.where(small, delta * (1 + a / 2), (re * a + im * b) * factor),
        torch.where(small, delta * b / 2, (im * a - re * b) * factor),
    )


def eigenvalues(u: Tensor, weights: SSMWeights, spec: SSMSpec) -> Planes:
    """λ_k = ρ(θ_k) + i Im λ_k."""
    decay = decay_rates(u, weights.decay, spec.reparam, spec.clip, spec.eps)
    return Planes(decay, apply_head(u, weights.frequency, spec.eps).expand_as(decay))


def mix_in(u: Tensor, mix: Mix, eps: float) -> Planes:
    """v_k = B_k u_k."""
    if isinstance(mix, LowRankMix):
        code, factors = mix_code(u, mix), mix_factors(mix)
        if mix.norm is not None:
            u = u * inverse_rms(code, factors, eps).to(u.dtype)
        p, h, _, i = factors.shape
        partial = (u @ factors.permute(1, 0, 2, 3).reshape(h, p * 2 * i)).unflatten(-1, (p, 2, i))
        pairs = (partial * code.unsqueeze(-2).unsqueeze(-2)).sum(-1)
        drive = Planes(pairs[..., 0], pairs[..., 1])
        return drive if mix.norm is None else drive.scaled(mix.norm)
    drive = Planes(u @ mix.base[..., 0].mT, u @ mix.base[..., 1].mT)
    return drive.times(_modulation(u, mix, eps)) if isinstance(mix, DiagonalMix) else drive


def mix_out(s: Planes, u: Tensor, mix: Mix, eps: float) -> Tensor:
    """Re(C_k s_k)."""
    if isinstance(mix, LowRankMix):
        code, factors = mix_code(u, mix), mix_factors(mix)
        s = s if mix.norm is None else s.scaled(mix.norm)
        p, h, _, i = factors.shape
        partial = s.re @ factors[:, :, 0].reshape(p, h * i) - s.im @ factors[:, :, 1].reshape(p, h * i)
        y: Tensor = (partial.unflatten(-1, (h, i)) * code.unsqueeze(-2)).sum(-1)
        return y if mix.norm is None else y * inverse_rms(code, factors, eps).to(y.dtype)
    s = s.times(_modulation(u, mix, eps)) if isinstance(mix, DiagonalMix) else s
    return s.re @ mix.base[..., 0] - s.im @ mix.base[..., 1]


def _modulation(u: Tensor, mix: DiagonalMix, eps: float) -> Planes:
    found = Planes(u @ mix.weight[:, 0].mT + mix.bias[:, 0], u @ mix.weight[:, 1].mT + mix.bias[:, 1])
    if mix.norm is None:
        return found
    square = (found.re.square() + found.im.square()).mean(-1, keepdim=True)
    return found.scaled(torch.rsqrt(square + eps) * mix.norm)


def read_out(s: Planes, u: Tensor, weights: SSMWeights, spec: SSMSpec) -> Tensor:
    """y_k = Re(C_k s_k) + skip ⊙ u_k."""
    y = mix_out(s, u, weights.readout, spec.eps)
    return (2 * y if spec.conjugate else y) + weights.skip * u


def advance(state: LayerState, delta: Tensor, spec: SSMSpec) -> Planes:
    """s after a time in which nothing is observed."""
    lam_bar, gain = discretise(state.lam, delta, spec)
    later = lam_bar.times(state.s).plus(gain.times(state.drive))
    if spec.discretisation != "dirac":
        return later
    # A pending impulse has not happened before any time has passed.
    return Planes(*(torch.where(delta > 0, new, old) for new, old in zip(later, state.s, strict=True)))


def layer_step(
    u: Tensor, gap: Tensor, weights: SSMWeights, spec: SSMSpec, state: LayerState
) -> tuple[Tensor, LayerState]:
    """One observation u (b, h): the output and the new state."""
    delta = step_sizes(u, gap, weights.step)
    lam, drive = eigenvalues(u, weights, spec), mix_in(u, weights.drive, spec.eps)
    following = spec.hold == "following"
    acting = state if following else LayerState(state.s, lam, drive)
    lam_bar, gain = discretise(acting.lam, delta, spec)
    s = lam_bar.times(state.s).plus(gain.times(acting.drive))
    pending = drive if following else Planes(*(torch.zeros_like(part) for part in drive))
    return read_out(s, u, weights, spec), LayerState(s, lam, pending)


def layer_sequence(
    u: Tensor, gaps: Tensor, valid: Tensor, weights: SSMWeights, spec: SSMSpec
) -> tuple[Tensor, LayerState]:
    """A whole batch u (b, l, h), gaps (b, l): outputs, and the state at every step."""
    present = valid.unsqueeze(-1)
    u, gaps = torch.where(present, u, torch.zeros_like(u)), torch.where(valid, gaps, torch.zeros_like(gaps))
    lam, drive = eigenvalues(u, weights, spec), mix_in(u, weights.drive, spec.eps)
    drive = Planes(*(torch.where(present, part, torch.zeros_like(part)) for part in drive))
    s = _evolve(lam, drive, _steps(u, gaps, present, weights), spec)
    pending = drive if spec.hold == "following" else Planes(*(torch.zeros_like(part) for part in drive))
    state = LayerState(s, lam, pending)
    if spec.bidirectional:
        s = _both(s, _backwards(u, gaps, valid, lam, drive, weights, spec))
    return read_out(s, u, weights, spec), state


def _steps(u: Tensor, gaps: Tensor, present: Tensor, weights: SSMWeights) -> Tensor:
    delta = step_sizes(u, gaps, weights.step)
    return torch.where(present, delta, torch.zeros_like(delta))


def _both(first: Planes, second: Planes) -> Planes:
    return Planes(torch.cat([first.re, second.re], -1), torch.cat([first.im, second.im], -1))


def _backwards(
    u: Tensor, gaps: Tensor, valid: Tensor, lam: Planes, drive: Planes, weights: SSMWeights, spec: SSMSpec
) -> Planes:
    """The states of reversed time, in the order of time."""
    behind, hold = gaps, spec.hold
    if spec.reverse == "release":
        hold = "preceding"
    else:
        rolled = torch.cat([gaps, gaps[:, :1]], dim=1)[:, 1:]
        behind = torch.where(last_steps(valid), gaps[:, :1], rolled)
    delta = _steps(u, behind, valid.unsqueeze(-1), weights)
    return _turned(_evolve(_turned(lam), _turned(drive), delta.flip(1), spec, hold))


def _turned(x: Planes) -> Planes:
    return Planes(x.re.flip(1), x.im.flip(1))


def _evolve(lam: Planes, drive: Planes, delta: Tensor, spec: SSMSpec, hold: str | None = None) -> Planes:
    """The state at every step, from nothing."""
    if (hold or spec.hold) == "following":
        lam, drive = _delayed(lam), _delayed(drive)
    lam_bar, gain = discretise(lam, delta, spec)
    return _scan(lam_bar, gain.times(drive))


def _delayed(x: Planes) -> Planes:
    """One step later, with zeros at the beginning."""
    # Joined first and cut then: a piece of length l − 1 would make a graph ask whether that is one.
    return Planes(*(torch.cat([torch.zeros_like(part[:, :1]), part], dim=1)[:, :-1] for part in x))


def last_steps(valid: Tensor) -> Tensor:
    """Which step (b, l) is the last valid one of its series."""
    return valid & ~torch.cat([valid, torch.zeros_like(valid[:, :1])], dim=1)[:, 1:]


def _scan(a: Planes, b: Planes) -> Planes:
    """s_k = a_k s_{k−1} + b_k as one operator of the graph, whatever the length."""

    def combine(s: tuple[Tensor, Tensor], step: tuple[Tensor, ...]) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, ...]]:
        a_re, a_im, b_re, b_im = step
        re = a_re * s[0] - a_im * s[1] + b_re
        im = a_re * s[1] + a_im * s[0] + b_im
        return (re, im), (re.clone(), im.clone())

    steps = tuple(part.movedim(1, 0) for part in (*a, *b))
    # The operator wants a start with the strides of what `combine` returns.
    start = a.re.new_zeros(a.re.shape[0], a.re.shape[2])
    _, states = scan_operator(combine, (start, start.clone()), steps)
    return Planes(*(part.movedim(0, 1) for part in states))
