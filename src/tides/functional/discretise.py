"""From continuous to discrete time: the only place where the gap between observations enters the model.

    ZOH       λ̄ = exp(λδ)                gain = (λ̄ − 1)/λ = δ φ₁(λδ),  φ₁(z) = (e^z − 1)/z     (eq. ZOH, appendix B)
    bilinear  λ̄ = (1 + λδ/2)/(1 − λδ/2)  gain = δ/(1 − λδ/2)
    dirac     λ̄ = exp(λδ)                gain = 1 (the input is an impulse)

Numerics: the textbook (e^z − 1)/λ loses every digit as z → 0 in float32, and its derivative loses them far earlier.
φ₁ is therefore a Taylor polynomial for |z| < ½, whose derivatives are polynomials too, and expm1 in half-angle
form elsewhere. All results are finite for δ from 1e-12 to 1e12 whenever Re λ ≤ 0.
"""

from typing import Any, Literal

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from tides.errors import ConfigError, ShapeError
from tides.functional.checks import check_precision, describe_shape
from tides.functional.phi import phi1

Discretisation = Literal["zoh", "bilinear", "dirac"]


def discretise(
    lam: Inexact[Tensor, "*#n"], delta: Float[Tensor, "*#n"], method: Discretisation = "zoh"
) -> tuple[Inexact[Tensor, "*n"], Inexact[Tensor, "*n"]]:
    """(λ̄, gain) for eigenvalues `lam` and steps `delta` ≥ 0 (gap × learned scale); they broadcast together.

    The caller forms gain ⊙ (B_k u_k): B_k itself is never discretised, so it never has to be built.
    """
    _check_together(lam, delta)
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


def _check_together(lam: Any, delta: Any) -> None:
    """A step may also be one number."""
    numbers = isinstance(delta, float | int)
    fits = isinstance(lam, Tensor) and (numbers or isinstance(delta, Tensor))
    if fits and not numbers:
        pairs = zip(reversed(lam.shape), reversed(delta.shape), strict=False)
        fits = all(one == other or 1 in (one, other) for one, other in pairs)
    if not fits:
        found = " and ".join(map(describe_shape, (lam, delta)))
        raise ShapeError(f"lam, delta: found {found}, wanted tensors (…, p) that broadcast together")
