"""Discretise and scan as one operator: λ̄ and gain are computed again in the backward pass instead of kept.

Gradients, with μ the adjoint of the scan and s' the state before the step (∂s/∂δ = λ s + v because ṡ = λ s + v):

    ZOH       dλ = conj(δ λ̄ s' + δ² φ₁'(z) v) μ     dδ = Re conj(λ s + v) μ            dv = conj(gain) μ
    bilinear  dλ = conj((δ s' + δ²/2 v)/D²) μ        dδ = Re conj((λ s' + v)/D²) μ      D = 1 − λδ/2
    dirac     dλ = conj(δ λ̄ x) μ                     dδ = Re conj(λ λ̄ x) μ              x = s' (+ v when following)
"""

from typing import Any

import torch
from torch import Tensor

from tides.functional.discretise import Discretisation
from tides.functional.evolve import Hold, beginnings, transition
from tides.functional.phi import phi1_and_derivative
from tides.kernels.batching import merge_leading_axis
from tides.kernels.chunked.scan import adjoint, previous, scan_from_zero


def evolve(
    decay: Tensor,
    frequency: Tensor,
    gaps: Tensor,
    scale: Tensor,
    drive: Tensor,
    s0: Tensor | None = None,
    *,
    discretisation: Discretisation = "zoh",
    hold: Hold = "following",
    reverse: bool = False,
    cu_seqlens: Tensor | None = None,
) -> Tensor:
    """`functional.evolve` with constant extra memory per step."""
    b, _, p = drive.shape
    frequency = frequency.expand(b, 1, p) if frequency.ndim == 1 else frequency
    s: Tensor = evolve_op(
        decay, frequency, gaps, scale.expand(b, 1, p), drive, s0, cu_seqlens, discretisation, hold, reverse
    )
    return s


@torch.library.custom_op("tides::evolve_torch", mutates_args=())
def evolve_op(
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
    a, b, _ = _folded(decay, frequency, gaps, scale, drive, s0, cu_seqlens, discretisation, hold, reverse)
    return scan_from_zero(a, b, reverse).contiguous()


@evolve_op.register_fake
def _(decay, frequency, gaps, scale, drive, s0, cu_seqlens, discretisation, hold, reverse):  # type: ignore[no-untyped-def]
    return torch.empty_like(drive, memory_format=torch.contiguous_format)


def _folded(
    decay: Tensor,
    frequency: Tensor,
    gaps: Tensor,
    scale: Tensor,
    drive: Tensor,
    s0: Tensor | None,
    cu_seqlens: Tensor | None,
    discretisation: Any,
    hold: Any,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """(a, b) with every beginning folded in, and where the beginnings are."""
    lam, drive = _governing(decay, frequency, drive, hold, reverse)
    a, b = transition(lam, gaps * scale, drive, discretisation, hold)
    first, initial = beginnings(drive, s0, reverse, cu_seqlens)
    b = torch.where(first, initial if hold == "following" else b + a * initial, b)
    return torch.where(first, torch.zeros_like(a), a.expand_as(b)), b, first


def _governing(decay: Tensor, frequency: Tensor, drive: Tensor, hold: str, reverse: bool) -> tuple[Tensor, Tensor]:
    """(λ, v) of the interval that ends at each step."""
    lam = torch.complex(*torch.broadcast_tensors(decay, frequency))
    if hold == "preceding":
        return lam, drive
    shift = -1 if reverse else 1
    return lam.roll(shift, dims=1), drive.roll(shift, dims=1)


@torch.library.custom_op("tides::evolve_torch_backward", mutates_args=())
def evolve_backward(
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
    settings = (s0, cu_seqlens, discretisation, hold, reverse)
    folded, _, first = _folded(decay, frequency, gaps, scale, drive, *settings)
    mu = adjoint(folded, gradient, reverse)
    del folded
    lam, v = _governing(decay, frequency, drive, hold, reverse)
    _, initial = beginnings(drive, s0, reverse, cu_seqlens)
    before = torch.where(first, initial, previous(s, reverse))
    following = hold == "following"
    acting = torch.where(first, torch.zeros_like(mu), mu) if following else mu
    delta = gaps * scale
    by_lam, by_delta, by_drive = _sensitivities(lam, delta, v, before, s, discretisation, following)
    d_initial = mu if following else by_before(lam, delta, discretisation).conj() * mu
    ds0 = _collect(torch.where(first, d_initial, torch.zeros_like(mu)), s0, reverse, cu_seqlens)
    dlam = by_lam.conj() * acting
    ddelta = (by_delta.conj() * acting).real
    ddrive = by_drive.conj() * acting
    if following:
        shift = 1 if reverse else -1
        dlam, ddrive = dlam.roll(shift, dims=1), ddrive.roll(shift, dims=1)
    return (
        dlam.real.sum_to_size(decay.shape).contiguous(),
        dlam.imag.sum_to_size(frequency.shape).contiguous(),
        (ddelta * scale).sum_to_size(gaps.shape).contiguous(),
        (ddelta * gaps).sum_to_size(scale.shape).contiguous(),
        ddrive,
        ds0,
    )


def by_before(lam: Tensor, delta: Tensor, discretisation: Any) -> Tensor:
    """∂s/∂s' = λ̄."""
    z = lam * delta
    return (1 + z / 2) / (1 - z / 2) if discretisation == "bilinear" else torch.exp(z)


def _sensitivities(
    lam: Tensor, delta: Tensor, v: Tensor, before: Tensor, s: Tensor, discretisation: str, following: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """(∂s/∂λ, ∂s/∂δ, ∂s/∂v) of one interval."""
    z = lam * delta
    if discretisation == "bilinear":
        square = (1 - z / 2).square()
        return (delta * before + delta.square() / 2 * v) / square, (lam * before + v) / square, delta / (1 - z / 2)
    lam_bar = torch.exp(z)
    if discretisation == "dirac":
        carried = lam_bar * (before + v if following else before)
        return delta * carried, lam * carried, lam_bar if following else torch.ones_like(lam_bar)
    phi, slope = phi1_and_derivative(z)
    return delta * lam_bar * before + delta.square() * slope * v, lam * s + v, delta * phi


def _collect(d_initial: Tensor, s0: Tensor | None, reverse: bool, cu_seqlens: Tensor | None) -> Tensor:
    if s0 is None:
        return d_initial.new_zeros(d_initial.shape[0], 0)
    if cu_seqlens is None:
        return d_initial[:, -1 if reverse else 0].contiguous()
    bounds = cu_seqlens.to(d_initial.device).long()
    return d_initial[0, bounds[1:] - 1 if reverse else bounds[:-1]].contiguous()


@evolve_backward.register_fake
def _(gradient, s, decay, frequency, gaps, scale, drive, s0, cu_seqlens, discretisation, hold, reverse):  # type: ignore[no-untyped-def]
    leaves = (decay, frequency, gaps, scale, drive)
    ds0 = drive.new_empty(drive.shape[0], 0) if s0 is None else torch.empty_like(s0)
    return (*(torch.empty_like(leaf, memory_format=torch.contiguous_format) for leaf in leaves), ds0)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.discretisation, ctx.hold, ctx.reverse = inputs
    ctx.save_for_backward(output, *tensors)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    s, *tensors = ctx.saved_tensors
    grads = evolve_backward(gradient.contiguous(), s, *tensors, ctx.discretisation, ctx.hold, ctx.reverse)
    ds0 = None if tensors[5] is None else grads[5]
    return (*grads[:5], ds0, None, None, None, None)


evolve_op.register_autograd(_backward, setup_context=_setup)
torch.library.register_vmap(evolve_op, merge_leading_axis(evolve_op))
torch.library.register_vmap(evolve_backward, merge_leading_axis(evolve_backward))
