"""Discretise and scan as one operator: λ̄ and gain are computed again in the backward pass instead of kept.

Gradients, with μ the adjoint of the scan and s' the state before the step:

    ZOH       dλ = conj(δ λ̄ s' + δ² φ₁'(z) v) μ     dδ = Re conj(λ̄ (λ s' + v)) μ       dv = conj(gain) μ
    bilinear  dλ = conj((δ s' + δ²/2 v)/D²) μ        dδ = Re conj((λ s' + v)/D²) μ      D = 1 − λδ/2
    dirac     dλ = conj(δ λ̄ x) μ                     dδ = Re conj(λ λ̄ x) μ              x = s' (+ v when following)

λ̄ (λ s' + v) is ∂s/∂δ = λ s + v without its cancellation after long intervals, where s has settled at −v/λ.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from tides.functional.evolve import beginnings
from tides.kernels.chunked.discretise import zoh_interval
from tides.kernels.chunked.quadratic import is_short, scan_weights, weigh
from tides.kernels.chunked.scan import adjoint_coefficients, previous, scan_from_zero
from tides.kernels.operators import evolve_operator


class _Intervals(NamedTuple):
    """What governs the interval that ends at each step: λ, δ, v, and (λ̄, gain) with whatever their gradient needs."""

    decay: Tensor
    frequency: Tensor
    delta: Tensor
    v: Tensor
    lam_bar: Tensor
    gain: Tensor
    slope: Tensor | None

    @property
    def lam(self) -> Tensor:
        return _lam(self.decay, self.frequency)


def _lam(decay: Tensor, frequency: Tensor) -> Tensor:
    return torch.complex(*torch.broadcast_tensors(decay, frequency))


def _intervals(
    decay: Tensor,
    frequency: Tensor,
    delta: Tensor,
    v: Tensor,
    discretisation: str,
    hold: str,
    reverse: bool,
    slope: bool,
) -> _Intervals:
    if hold == "following":
        shift = -1 if reverse else 1
        decay, v = decay.roll(shift, dims=1), v.roll(shift, dims=1)
        frequency = frequency if frequency.shape[1] == 1 else frequency.roll(shift, dims=1)
    given = decay, frequency, delta, v
    if discretisation == "bilinear":
        inverse = 1 / (1 - _lam(decay, frequency) * (delta / 2))
        return _Intervals(*given, 2 * inverse - 1, delta * inverse, inverse.square() if slope else None)
    found = zoh_interval(decay, frequency, delta, with_slope=slope and discretisation == "zoh")
    if discretisation == "zoh":
        return _Intervals(*given, *found)
    lam_bar = found.lam_bar
    return _Intervals(*given, lam_bar, lam_bar if hold == "following" else torch.ones_like(lam_bar), None)


class _Beginnings:
    """Where sequences begin, and with which states."""

    def __init__(self, drive: Tensor, s0: Tensor | None, reverse: bool, cu_seqlens: Tensor | None) -> None:
        self.first, self.initial = beginnings(drive, s0, reverse, cu_seqlens)
        self._edge = None if cu_seqlens is not None else slice(-1, None) if reverse else slice(1)

    def put(self, x: Tensor, value: Tensor) -> Tensor:
        """x with `value` where sequences begin; sequences that are not packed need no mask, and x itself changes."""
        if self._edge is None:
            return torch.where(self.first, value, x)
        x[:, self._edge] = value[:, self._edge]
        return x

    def clear(self, x: Tensor) -> Tensor:
        """The same with zeros; x itself changes."""
        if self._edge is None:
            return x.masked_fill_(self.first, 0)
        x[:, self._edge].zero_()
        return x


def _forward(
    decay: Tensor,
    frequency: Tensor,
    gaps: Tensor,
    scale: Tensor,
    drive: Tensor,
    s0: Tensor | None,
    cu_seqlens: Tensor | None,
    discretisation: str,
    hold: str,
    reverse: bool,
) -> Tensor:
    parts = _intervals(decay, frequency, gaps * scale, drive, discretisation, hold, reverse, slope=False)
    begin = _Beginnings(drive, s0, reverse, cu_seqlens)
    b = parts.gain * parts.v
    if hold == "following":
        b = begin.put(b, begin.initial)
    elif s0 is not None:
        b = begin.put(b, b + parts.lam_bar * begin.initial)
    if is_short(drive.shape, drive.device, discretisation):
        return weigh(scan_weights(parts.lam, parts.delta, begin.first, reverse), b)
    return scan_from_zero(begin.clear(parts.lam_bar), b, reverse, resets=cu_seqlens is not None)


def _backward(
    gradient: Tensor,
    s: Tensor,
    decay: Tensor,
    frequency: Tensor,
    gaps: Tensor,
    scale: Tensor,
    drive: Tensor,
    s0: Tensor | None,
    cu_seqlens: Tensor | None,
    discretisation: str,
    hold: str,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of decay, frequency, gaps, scale, drive and s0."""
    following = hold == "following"
    parts = _intervals(decay, frequency, gaps * scale, drive, discretisation, hold, reverse, slope=True)
    begin = _Beginnings(drive, s0, reverse, cu_seqlens)
    if is_short(drive.shape, drive.device, discretisation):
        mu = weigh(scan_weights(parts.lam, parts.delta, begin.first, reverse).mH, gradient)
    else:
        # Nothing comes back over a beginning; the one of a sequence that is not packed is outside of the coefficients.
        a = parts.lam_bar if cu_seqlens is None else parts.lam_bar.masked_fill(begin.first, 0)
        mu = scan_from_zero(adjoint_coefficients(a, reverse), gradient, not reverse, resets=cu_seqlens is not None)
    d_initial = mu if following or s0 is None else parts.lam_bar.conj() * mu
    ds0 = _collect(d_initial, s0, reverse, cu_seqlens)
    before = begin.put(previous(s, reverse), begin.initial)
    if following:
        mu = begin.clear(mu)
    # conj(a) μ as the conjugate of a conj(μ): one conjugation serves all.
    mu = mu.conj_physical()
    d_decay, d_frequency, d_delta = _interval_gradients(parts, before, mu, discretisation, following)
    d_drive = (parts.gain * mu).conj_physical_()
    d_decay, d_frequency = d_decay.sum_to_size(decay.shape), d_frequency.sum_to_size(frequency.shape).neg()
    if following:
        shift = 1 if reverse else -1
        d_decay, d_drive = d_decay.roll(shift, dims=1), d_drive.roll(shift, dims=1)
        d_frequency = d_frequency if frequency.shape[1] == 1 else d_frequency.roll(shift, dims=1)
    return (
        d_decay.contiguous(),
        d_frequency.contiguous(),
        (d_delta * scale).sum_to_size(gaps.shape).contiguous(),
        (d_delta * gaps).sum_to_size(scale.shape).contiguous(),
        d_drive.contiguous(),
        ds0,
    )


def _interval_gradients(
    parts: _Intervals, before: Tensor, mu: Tensor, discretisation: str, following: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """(dRe λ, −dIm λ, dδ) of one interval for conj(μ): planes, because a real factor times a complex one is slow."""
    decay, frequency, delta, v, lam_bar, _, slope = parts
    if slope is None:
        carried = lam_bar * (before + v if following else before)
        by_lam, by_delta = delta * carried, parts.lam * carried
    elif discretisation == "bilinear":
        by_lam, by_delta = (delta * before + delta.square() / 2 * v) * slope, (parts.lam * before + v) * slope
    else:
        driven, carried = v * mu, (before * mu).mul_(lam_bar)
        d_delta = torch.addcmul((driven * lam_bar).real, decay, carried.real)
        d_delta = d_delta.addcmul_(frequency, carried.imag, value=-1)
        d_lam = driven.mul_(slope)
        return torch.addcmul(d_lam.real, delta, carried.real), torch.addcmul(d_lam.imag, delta, carried.imag), d_delta
    d_lam = by_lam * mu
    # Clones: the two planes of a single number would share their memory.
    return d_lam.real.clone(), d_lam.imag.clone(), (by_delta * mu).real


def _collect(d_initial: Tensor, s0: Tensor | None, reverse: bool, cu_seqlens: Tensor | None) -> Tensor:
    """The gradient of every initial state: that of the first step of its sequence."""
    if s0 is None:
        return d_initial.new_zeros(d_initial.shape[0], 0)
    if cu_seqlens is None:
        return d_initial[:, -1 if reverse else 0].clone()
    bounds = cu_seqlens.to(d_initial.device).long()
    return d_initial[0, bounds[1:] - 1 if reverse else bounds[:-1]].contiguous()


evolve = evolve_operator("torch", _forward, _backward)
