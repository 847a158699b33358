"""φ₁(z) = (e^z − 1)/z and its derivative, accurate in every digit down to z = 0."""

from math import factorial

import torch
from jaxtyping import Inexact
from torch import Tensor

# |z| < ½: the first dropped term is z^n/(n+1)!, below half an ulp of φ₁ and of its derivative.
_TAYLOR_RADIUS = 0.5
_TAYLOR_TERMS = {torch.float32: 11, torch.float64: 18}


def expm1(z: Inexact[Tensor, "*n"]) -> Inexact[Tensor, "*n"]:
    """e^z − 1 without cancellation, real or complex.

    With z = a + ib and σ = sin(b/2): e^z − 1 = expm1(a)(1 − 2σ²) − 2σ² + i e^a 2σ cos(b/2).
    """
    if not z.is_complex():
        return torch.expm1(z)
    growth = torch.expm1(z.real)
    sine, cosine = torch.sin(z.imag / 2), torch.cos(z.imag / 2)
    versine = 2 * sine * sine
    return torch.complex(growth * (1 - versine) - versine, (growth + 1) * (2 * sine * cosine))


def phi1(z: Inexact[Tensor, "*n"]) -> Inexact[Tensor, "*n"]:
    """φ₁(z) = (e^z − 1)/z with φ₁(0) = 1, smooth through zero together with all its derivatives."""
    small = _inside_radius(z)
    near = torch.where(small, z, torch.zeros_like(z))
    far = torch.where(small, torch.ones_like(z), z)
    terms = _TAYLOR_TERMS[z.real.dtype if z.is_complex() else z.dtype]
    series = torch.full_like(near, 1 / factorial(terms))
    for n in range(terms - 1, 0, -1):
        series = series * near + 1 / factorial(n)
    return torch.where(small, series, expm1(far) / far)


def _inside_radius(z: Tensor) -> Tensor:
    # Squared: the modulus of a complex number has no gradient at zero.
    square = z.real.square() + z.imag.square() if z.is_complex() else z.square()
    return square < _TAYLOR_RADIUS**2
