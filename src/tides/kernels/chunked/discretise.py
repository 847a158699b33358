"""The discretisation on real planes: complex exponentials and quotients are slow in torch, real ones are not.

With z = λδ = a + ib, σ = sin(b/2) and κ = cos(b/2), e^z − 1 = expm1(a)(1 − 2σ²) − 2σ² + i e^a 2σκ has no cancellation
where Re λ ≤ 0. φ₁(z) = (e^z − 1)/z is taken as ((e^z − 1) z* + t)/(|z|² + t): the same to the last digit, and one at
zero. φ₁'(z) = (e^z − φ₁)/z is a Taylor polynomial where that cancels: for |z| < 1/8 in float32, where it leaves 1e-6,
for |z| < ½ in float64. Nothing is selected by a mask: on a CPU a `where` takes as long as ten products.
"""

from collections.abc import Sequence
from math import factorial
from typing import NamedTuple

import torch
from torch import Tensor

# t: the error is below √t, and δ/t does not overflow.
_NOTHING = {torch.float32: 1e-30, torch.float64: 1e-60}
_TAYLOR_RADIUS = {torch.float32: 0.125, torch.float64: 0.5}
# The first dropped term of φ₁' is below half an ulp inside the radius.
_TAYLOR_TERMS = {torch.float32: 6, torch.float64: 17}
# Numbers of a block on a CPU: some forty temporaries are made, and those at hand stay in a core's cache.
_BLOCK = 1 << 17


class Interval(NamedTuple):
    """λ̄ = e^z, gain = δ φ₁(z) and, where asked for, δ² φ₁'(z)."""

    lam_bar: Tensor
    gain: Tensor
    slope: Tensor | None = None


def zoh_interval(decay: Tensor, frequency: Tensor, delta: Tensor, *, with_slope: bool = False) -> Interval:
    """Everything the zero-order hold needs of every interval (b, l, p), for λ = decay + i·frequency."""
    inputs = decay, frequency, delta
    b, l, p = torch.broadcast_shapes(*(x.shape for x in inputs))
    steps = max(1, _BLOCK // max(1, b * p))
    if decay.device.type != "cpu" or l <= steps:
        return Interval(*_interval(inputs, with_slope))
    found = [decay.new_empty(b, l, p, dtype=decay.dtype.to_complex()) for _ in range(2 + with_slope)]
    for start in range(0, l, steps):
        rows = slice(start, start + steps)
        block = [x if x.shape[1] == 1 else x[:, rows] for x in inputs]
        for whole, part in zip(found, _interval(block, with_slope), strict=True):
            whole[:, rows] = part
    return Interval(*found)


def _interval(inputs: Sequence[Tensor], with_slope: bool) -> list[Tensor]:
    """The parts of an `Interval`, from λ and δ of some steps."""
    decay, frequency, delta = inputs
    a, b = torch.broadcast_tensors(decay * delta, frequency * delta)
    nothing = _NOTHING[a.dtype]
    growth, minus, half = torch.exp(a), torch.expm1(a), b / 2
    sine = torch.sin(half)
    turn = torch.cos(half).mul_(sine).mul_(2).mul_(growth)  # Im e^z
    versine = sine.square_().mul_(2)
    bent = torch.addcmul(minus, minus, versine, value=-1).sub_(versine)  # Re e^z − 1
    square = (a * a).addcmul_(b, b)
    inverse = delta / (square + nothing)
    u, w = a * inverse, b * inverse  # δ/z = u − iw
    gain_re = (bent * u).addcmul_(turn, w).add_(inverse, alpha=nothing)
    gain_im = (turn * u).addcmul_(bent, w, value=-1)
    lam_bar = torch.complex(growth.addcmul_(growth, versine, value=-1), turn)
    found = [lam_bar, torch.complex(gain_re, gain_im)]
    if not with_slope:
        return found
    # (δ e^z − gain) δ/z, with weight one or zero beside the polynomial.
    x, y = bent.add_(1).mul_(delta).sub_(gain_re), turn.mul_(delta).sub_(gain_im)
    far = (square - _TAYLOR_RADIUS[a.dtype] ** 2).mul_(1 / nothing).clamp_(0, 1)
    near = 1 - far
    u.mul_(far), w.mul_(far)
    re, im = _taylor_slope(a * near, b * near, square.mul_(near))
    weight = near.mul_(delta).mul_(delta)
    slope_re = re.mul_(weight).addcmul_(x, u).addcmul_(y, w)
    slope_im = im.mul_(weight).addcmul_(y, u).addcmul_(x, w, value=-1)
    return [*found, torch.complex(slope_re, slope_im)]


def _taylor_slope(a: Tensor, b: Tensor, square: Tensor) -> tuple[Tensor, Tensor]:
    """φ₁'(z) = Σ c_n zⁿ, c_n = (n+1)/(n+2)!, by division with t² − 2at + |z|²: two products per term, all real."""
    terms = _TAYLOR_TERMS[a.dtype]
    twice = a * 2
    later, last = torch.zeros_like(a), torch.full_like(a, (terms + 1) / factorial(terms + 2))
    for n in range(terms - 1, 0, -1):
        following = (twice * last).addcmul_(square, later, value=-1).add_((n + 1) / factorial(n + 2))
        later, last = last, following
    return (a * last).addcmul_(square, later, value=-1).add_(0.5), last.mul_(b)
