"""The discretisation on real planes: complex exponentials and quotients are slow in torch, real ones are not.

With z = λδ = a + ib, σ = sin(b/2) and κ = cos(b/2), e^z − 1 = expm1(a)(1 − 2σ²) − 2σ² + i e^a 2σκ has no cancellation
where Re λ ≤ 0. φ₁(z) = (e^z − 1)/z is taken as ((e^z − 1) z* + t)/(|z|² + t): the same to the last digit, and one at
zero. φ₁'(z) = (e^z − φ₁)/z is a Taylor polynomial where that cancels: for |z| < 1/8 in float32, where it leaves 1e-6,
for |z| < ½ in float64. Nothing is selected by a mask: on a CPU a `where` takes as long as ten products.
"""

from math import factorial
from typing import NamedTuple

import torch
from torch import Tensor

# t: the error is below √t, and δ/t does not overflow.
_NOTHING = {torch.float32: 1e-30, torch.float64: 1e-60}
_TAYLOR_RADIUS = {torch.float32: 0.125, torch.float64: 0.5}
# The first dropped term of φ₁' is below half an ulp inside the radius.
_TAYLOR_TERMS = {torch.float32: 6, torch.float64: 17}


class Interval(NamedTuple):
    """λ̄ = e^z, gain = δ φ₁(z) and, where asked for, δ² φ₁'(z)."""

    lam_bar: Tensor
    gain: Tensor
    slope: Tensor | None


def zoh_interval(decay: Tensor, frequency: Tensor, delta: Tensor, *, with_slope: bool = False) -> Interval:
    """Everything the zero-order hold needs of one interval, for λ = decay + i·frequency."""
    a, b = torch.broadcast_tensors(decay * delta, frequency * delta)
    nothing = _NOTHING[a.dtype]
    growth, half = torch.exp(a), b / 2
    minus = torch.tanh(a / 2).mul_(growth + 1)  # expm1(a), which is slow itself
    sine = torch.sin(half)
    turn = torch.cos(half).mul_(sine).mul_(2).mul_(growth)  # Im e^z
    versine = sine.square_().mul_(2)
    bent = torch.addcmul(minus, minus, versine, value=-1).sub_(versine)  # Re e^z − 1
    square = (a * a).addcmul_(b, b)
    inverse = delta / (square + nothing)
    u, w = a * inverse, b * inverse  # δ/z = u − iw
    gain_re = (bent * u).addcmul_(turn, w).add_(inverse, alpha=nothing)
    gain_im = (turn * u).addcmul_(bent, w, value=-1)
    interval = Interval(
        torch.complex(growth.addcmul_(growth, versine, value=-1), turn), torch.complex(gain_re, gain_im), None
    )
    if not with_slope:
        return interval
    # (δ e^z − gain) δ/z, with weight one or zero beside the polynomial.
    x, y = bent.add_(1).mul_(delta).sub_(gain_re), turn.mul_(delta).sub_(gain_im)
    far = (square - _TAYLOR_RADIUS[a.dtype] ** 2).mul_(1 / nothing).clamp_(0, 1)
    near = 1 - far
    u.mul_(far), w.mul_(far)
    re, im = _taylor_slope(a * near, b * near, square.mul_(near))
    weight = near.mul_(delta).mul_(delta)
    slope_re = re.mul_(weight).addcmul_(x, u).addcmul_(y, w)
    slope_im = im.mul_(weight).addcmul_(y, u).addcmul_(x, w, value=-1)
    return interval._replace(slope=torch.complex(slope_re, slope_im))


def _taylor_slope(a: Tensor, b: Tensor, square: Tensor) -> tuple[Tensor, Tensor]:
    """φ₁'(z) = Σ c_n zⁿ, c_n = (n+1)/(n+2)!, by division with t² − 2at + |z|²: two products per term, all real."""
    terms = _TAYLOR_TERMS[a.dtype]
    twice = a * 2
    later, last = torch.zeros_like(a), torch.full_like(a, (terms + 1) / factorial(terms + 2))
    for n in range(terms - 1, 0, -1):
        following = (twice * last).addcmul_(square, later, value=-1).add_((n + 1) / factorial(n + 2))
        later, last = last, following
    return (a * last).addcmul_(square, later, value=-1).add_(0.5), last.mul_(b)
