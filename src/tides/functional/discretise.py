"""From continuous to discrete time: the only place where the gap between observations enters the model.

    ZOH       λ̄ = exp(λδ)                gain = (λ̄ − 1)/λ = δ φ₁(λδ),  φ₁(z) = (e^z − 1)/z     (eq. ZOH, appendix B)
    bilinear  λ̄ = (1 + λδ/2)/(1 − λδ/2)  gain = δ/(1 − λδ/2)
    dirac     λ̄ = exp(λδ)                gain = 1 (the input is an impulse)

Numerics: the textbook (e^z − 1)/λ loses every digit as z → 0 in float32, and its derivative loses them far earlier.
φ₁ is therefore a Taylor polynomial for |z| < ½, whose derivatives are polynomials too, and expm1 in half-angle
form elsewhere. All results are finite for δ from 1e-12 to 1e12 whenever Re λ ≤ 0.
"""

from math import factorial
from typing import Literal

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from tides.errors import ConfigError

Discretisation = Literal["zoh", "bilinear", "dirac"]

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
    # Compared in components: |z|² would underflow its gradient and sqrt has none at zero.
    small = z.abs() < _TAYLOR_RADIUS if not z.is_complex() else _inside_radius(z)
    near = torch.where(small, z, torch.zeros_like(z))
    far = torch.where(small, torch.ones_like(z), z)
    terms = _TAYLOR_TERMS[z.real.dtype if z.is_complex() else z.dtype]
    series = torch.full_like(near, 1 / factorial(terms))
    for n in range(terms - 1, 0, -1):
        series = series * near + 1 / factorial(n)
    return torch.where(small, series, expm1(far) / far)


def _inside_radius(z: Tensor) -> Tensor:
    return (z.real.square() + z.imag.square()) < _TAYLOR_RADIUS**2


def discretise(
    lam: Inexact[Tensor, "*#n"], delta: Float[Tensor, "*#n"], method: Discretisation = "zoh"
) -> tuple[Inexact[Tensor, "*n"], Inexact[Tensor, "*n"]]:
    """(λ̄, gain) for eigenvalues `lam` and steps `delta` ≥ 0 (gap × learned scale); they broadcast together.

    The caller forms gain ⊙ (B_k u_k): B_k itself is never discretised, so it never has to be built.
    """
    z = lam * delta
    if method == "zoh":
        return torch.exp(z), delta * phi1(z)
    if method == "bilinear":
        denominator = 1 - z / 2
        return (1 + z / 2) / denominator, delta / denominator
    if method == "dirac":
        lam_bar = torch.exp(z)
        return lam_bar, torch.ones_like(lam_bar)
    raise ConfigError(f"discretisation: found {method!r}, wanted one of zoh, bilinear, dirac")
