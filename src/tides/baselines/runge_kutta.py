"""Autonomous differential equations over gaps of any length by a fixed number of steps."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor


def runge_kutta(
    field: Callable[[Tensor], Tensor], state: Float[Tensor, "*b h"], elapsed: Float[Tensor, "*b 1"], steps: int
) -> Float[Tensor, "*b h"]:
    """z(elapsed) of dz/dt = f(z), z(0) = state, by the classical method of fourth order.

    Every row has steps of its own length, so that all gaps of a batch are crossed together and end exactly.
    """
    step = elapsed / steps
    half, sixth = step / 2, step / 6
    for _ in range(steps):
        first = field(state)
        second = field(state + half * first)
        third = field(state + half * second)
        fourth = field(state + step * third)
        state = state + sixth * (first.add(second + third, alpha=2) + fourth)
    return state
