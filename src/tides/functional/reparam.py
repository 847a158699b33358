"""Reparameterisations of the decay rate, Re λ = ρ(θ), and their inverses (paper §3, "Λ reparameterization").

`exp`, `stable` and `softplus` send every real θ to the stable half-plane, so no token can make the recurrence
explode; `standard` leaves Re λ free.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from tides.errors import ConfigError

Reparam = Literal["standard", "exp", "stable", "softplus"]


class _Map(NamedTuple):
    forward: Callable[[Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor]
    range: str


def _softplus_inverse(decay: Tensor) -> Tensor:
    # log(e^y - 1) = y + log(1 - e^-y), which neither overflows for large y nor cancels for small y.
    y = -decay
    return y + torch.log(-torch.expm1(-y))


_MAPS: dict[str, _Map] = {
    "standard": _Map(lambda theta: theta, lambda decay: decay, "(-inf, inf)"),
    "exp": _Map(lambda theta: -torch.exp(theta), lambda decay: torch.log(-decay), "(-inf, 0)"),
    "stable": _Map(
        lambda theta: -1 / (theta.square() + 0.5),
        lambda decay: torch.sqrt((-1 / decay - 0.5).clamp_min(0)),
        "[-2, 0)",
    ),
    # Linear beyond 40 only: the library's own 20 costs float64 its last six digits.
    "softplus": _Map(lambda theta: -F.softplus(theta, threshold=40), _softplus_inverse, "(-inf, 0)"),
}


def _lookup(kind: str) -> _Map:
    if kind not in _MAPS:
        raise ConfigError(f"reparam: found {kind!r}, wanted one of {', '.join(_MAPS)}")
    return _MAPS[kind]


def reparameterise(theta: Float[Tensor, "*n"], kind: Reparam) -> Float[Tensor, "*n"]:
    """Re λ = ρ(θ): θ | −e^θ | −1/(θ² + ½) | −log(1 + e^θ)."""
    return _lookup(kind).forward(theta)


def reparameterise_inverse(decay: Float[Tensor, "*n"], kind: Reparam) -> Float[Tensor, "*n"]:
    """θ = ρ⁻¹(Re λ), the non-negative root for `stable`. Defined on the range of ρ; NaN or ±inf outside it."""
    return _lookup(kind).inverse(decay)


def reparam_range(kind: Reparam) -> str:
    """The interval of Re λ that ρ reaches, for error messages and documents."""
    return _lookup(kind).range
