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

    lam: Tensor
    delta: Tensor
    v: Tensor
    lam_bar: Tensor
    gain: Tensor
    slope: Tensor | None


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
    lam = torch.complex(*torch.broadcast_tensors(decay, frequency))
    if discretisation == "bilinear":
        inverse = 1 / (1 - lam * (delta / 2))
        return _Intervals(lam, delta, v, 2 * inverse - 1, delta * inverse, inverse.square() if slope else None)
    lam_bar, phi, derivative = zoh_interval(decay, frequency, delta, with_slope=slope and discretisation == "zoh")
    if discretisation == "zoh":
        torch.view_as_real(phi).mul_(delta.unsqueeze(-1))
        return _Intervals(lam, delta, v, lam_bar, phi, derivative)
    return _Intervals(lam, delta, v, lam_bar, lam_bar if hold == "following" else torch.ones_like(lam_bar), None)


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
    first, initial = beginnings(drive, s0, reverse, cu_seqlens)
    b = parts.gain * parts.v
    b = torch.where(first, initial if hold == "following" else b + parts.lam_bar * initial, b)
    if is_short(drive.shape, drive.device, discretisation):
        return weigh(scan_weights(parts.lam, parts.delta, first, reverse), b)
    a = parts.lam_bar.masked_fill_(first, 0)
    return scan_from_zero(a, b, reverse, resets=cu_seqlens is not None).contiguous()


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
    first, initial = beginnings(drive, s0, reverse, cu_seqlens)
    if is_short(drive.shape, drive.device, discretisation):
        mu = weigh(scan_weights(parts.lam, parts.delta, first, reverse).mH, gradient)
    else:
        a = adjoint_coefficients(parts.lam_bar.masked_fill(first, 0), reverse)
        mu = scan_from_zero(a, gradient, not reverse, resets=cu_seqlens is not None)
    d_initial = mu if following else parts.lam_bar.conj() * mu
    ds0 = _collect(d_initial, s0, reverse, cu_seqlens)
    before = torch.where(first, initial, previous(s, reverse))
    by_lam, by_delta = _sensitivities(parts, before, discretisation, following)
    if following:
        mu = mu.masked_fill(first, 0)
    # Re conj(a) μ without complex arithmetic, and conj(a) μ as the conjugate of a conj(μ): one conjugation serves all.
    ddelta = (torch.view_as_real(by_delta) * torch.view_as_real(mu)).sum(-1)
    mu = mu.conj_physical()
    dlam, ddrive = by_lam.mul_(mu), (parts.gain * mu).conj_physical_()
    if following:
        shift = 1 if reverse else -1
        dlam, ddrive = dlam.roll(shift, dims=1), ddrive.roll(shift, dims=1)
    return (
        # A clone: the two planes of a single number would share their memory.
        dlam.real.sum_to_size(decay.shape).clone(memory_format=torch.contiguous_format),
        -dlam.imag.sum_to_size(frequency.shape),
        (ddelta * scale).sum_to_size(gaps.shape).contiguous(),
        (ddelta * gaps).sum_to_size(scale.shape).contiguous(),
        ddrive.contiguous(),
        ds0,
    )


def _sensitivities(parts: _Intervals, before: Tensor, discretisation: str, following: bool) -> tuple[Tensor, Tensor]:
    """(∂s/∂λ, ∂s/∂δ) of one interval."""
    lam, delta, v, lam_bar, _, slope = parts
    if slope is None:
        carried = lam_bar * (before + v if following else before)
        return delta * carried, lam * carried
    if discretisation == "bilinear":
        return (delta * before + delta.square() / 2 * v) * slope, (lam * before + v) * slope
    carried, step = lam_bar * before, delta.unsqueeze(-1)
    by_delta = torch.addcmul(lam * carried, lam_bar, v)
    # A real factor times pairs of reals: torch would make it complex first.
    by_lam = torch.view_as_real(slope * v).mul_(step).add_(torch.view_as_real(carried)).mul_(step)
    return torch.view_as_complex(by_lam), by_delta


def _collect(d_initial: Tensor, s0: Tensor | None, reverse: bool, cu_seqlens: Tensor | None) -> Tensor:
    """The gradient of every initial state: that of the first step of its sequence."""
    if s0 is None:
        return d_initial.new_zeros(d_initial.shape[0], 0)
    if cu_seqlens is None:
        return d_initial[:, -1 if reverse else 0].clone()
    bounds = cu_seqlens.to(d_initial.device).long()
    return d_initial[0, bounds[1:] - 1 if reverse else bounds[:-1]].contiguous()


evolve = evolve_operator("torch", _forward, _backward)
