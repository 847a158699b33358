"""From continuous to discrete time: the only place where the gap between observations enters the model.

    ZOH       λ̄ = exp(λδ)                gain = (λ̄ − 1)/λ = δ φ₁(λδ),  φ₁(z) = (e^z − 1)/z     (eq. ZOH, appendix B)
    bilinear  λ̄ = (1 + λδ/2)/(1 − λδ/2)  gain = δ/(1 − λδ/2)
    dirac     λ̄ = exp(λδ)                gain = 1 (the input is an impulse)

Numerics: the textbook (e^z − 1)/λ loses every digit as z → 0 in float32, and its derivative loses them far earlier.
φ₁ is therefore a Taylor polynomial for |z| < ½, whose derivatives are polynomials too, and expm1 in half-angle
form elsewhere. All results are finite for δ from 1e-12 to 1e12 whenever Re λ ≤ 0.
"""

from typing import Literal

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from tides.errors import ConfigError
from tides.functional.checks import check_precision
from tides.functional.phi import phi1

Discretisation = Literal["zoh", "bilinear", "dirac"]


def discretise(
    lam: Inexact[Tensor, "*#n"], delta: Float[Tensor, "*#n"], method: Discretisation = "zoh"
) -> tuple[Inexact[Tensor, "*n"], Inexact[Tensor, "*n"]]:
    """(λ̄, gain) for eigenvalues `lam` and steps `delta` ≥ 0 (gap × learned scale); they broadcast together.

    The caller forms gain ⊙ (B_k u_k): B_k itself is never discretised, so it never has to be built.
    """
    z = lam * delta
    check_precision(z.dtype, "lam, delta")
    if method == "zoh":
        return torch.exp(z), delta * phi1(z)
    if method == "bilinear":
        # λ̄ = 2/(1 − z/2) − 1: the quotient of the two sums has a derivative that cancels for large steps.
        inverse = 1 / (1 - z / 2)
        return 2 * inverse - 1, delta * inverse
    if method == "dirac":
        lam_bar = torch.exp(z)
        return lam_bar, torch.ones_like(lam_bar)
    raise ConfigError(f"method: found {method!r}, wanted one of zoh, bilinear, dirac")
