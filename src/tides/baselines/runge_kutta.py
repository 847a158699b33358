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
    for _ in range(steps):
        first = field(state)
        second = field(state + step / 2 * first)
        third = field(state + step / 2 * second)
        fourth = field(state + step * third)
        state = state + step / 6 * (first + 2 * second + 2 * third + fourth)
    return state
