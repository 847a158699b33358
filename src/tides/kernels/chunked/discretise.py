"""The discretisation on real planes: complex exponentials and quotients are slow in torch, real ones are not.

With z = λδ = a + ib, σ = sin(b/2) and κ = cos(b/2), e^z − 1 = expm1(a)(1 − 2σ²) − 2σ² + i e^a 2σκ has no cancellation
where Re λ ≤ 0, and φ₁(z) = (e^z − 1)/z needs a special case only where |z|² underflows. φ₁'(z) = (e^z − φ₁)/z is a
Taylor polynomial where that cancels: for |z| < 1/8 in float32, where it leaves 1e-6, for |z| < ½ in float64.
"""

from math import factorial
from typing import NamedTuple

import torch
from torch import Tensor

_SMALLEST_SQUARE = 1e-30
_TAYLOR_RADIUS = {torch.float32: 0.125, torch.float64: 0.5}
# The first dropped term of φ₁' is below half an ulp inside the radius.
_TAYLOR_TERMS = {torch.float32: 6, torch.float64: 17}


class Interval(NamedTuple):
    """λ̄ = e^z, φ₁(z) and, where asked for, φ₁'(z)."""

    lam_bar: Tensor
    phi: Tensor
    slope: Tensor | None


def zoh_interval(decay: Tensor, frequency: Tensor, delta: Tensor, *, with_slope: bool = False) -> Interval:
    """Everything the zero-order hold needs of one interval, for λ = decay + i·frequency."""
    a, b = torch.broadcast_tensors(decay * delta, frequency * delta)
    growth, minus = torch.exp(a), torch.expm1(a)
    half = b / 2
    sine = torch.sin(half)
    turn = (sine * torch.cos(half)).mul_(2).mul_(growth)  # Im e^z
    versine = sine.square_().mul_(2)
    bent = torch.addcmul(minus, minus, versine, value=-1).sub_(versine)  # Re e^z − 1
    lam_bar = torch.complex(torch.addcmul(growth, growth, versine, value=-1), turn)
    square = a.square().addcmul_(b, b)
    tiny = square < _SMALLEST_SQUARE
    inverse = square.masked_fill_(tiny, 1).reciprocal_()
    u, w = a * inverse, -b * inverse  # 1/z
    phi_re, phi_im = _product(bent, turn, u, w)
    phi_re, phi_im = torch.where(tiny, 1 + a / 2, phi_re), torch.where(tiny, b / 2, phi_im)
    phi = torch.complex(phi_re, phi_im)
    if not with_slope:
        return Interval(lam_bar, phi, None)
    far = _product(bent.add_(1).sub_(phi_re), turn.sub_(phi_im), u, w)
    inside = a.square().addcmul_(b, b) < _TAYLOR_RADIUS[a.dtype] ** 2
    near = _taylor_slope(a, b)
    return Interval(lam_bar, phi, torch.complex(*(torch.where(inside, x, y) for x, y in zip(near, far, strict=True))))


def _product(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """(a + ib)(c + id)."""
    return (a * c).addcmul_(b, d, value=-1), (a * d).addcmul_(b, c)


def _taylor_slope(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """φ₁'(z) = Σ (n+1) zⁿ/(n+2)! by Horner's rule."""
    terms = _TAYLOR_TERMS[a.dtype]
    re, im = torch.full_like(a, (terms + 1) / factorial(terms + 2)), torch.zeros_like(a)
    for n in range(terms - 1, -1, -1):
        re, im = (re * a).addcmul_(im, b, value=-1).add_((n + 1) / factorial(n + 2)), im.mul_(a).addcmul_(re, b)
    return re, im
