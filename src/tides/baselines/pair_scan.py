"""A linear recurrence of pairs, s_k = M_k s_{k−1} + f_k with 2×2 matrices: what a diagonal scan cannot do.

Eigenvalues would not serve: M is not diagonalisable where an oscillator stands still.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Pair(NamedTuple):
    """Two numbers for every step and mode, each (b, l, p)."""

    first: Tensor
    second: Tensor


class Matrix(NamedTuple):
    """[[a, b], [c, d]] for every step and mode; the batch axis may have length one."""

    a: Tensor
    b: Tensor
    c: Tensor
    d: Tensor

    def apply(self, s: Pair) -> Pair:
        return Pair(self.a * s.first + self.b * s.second, self.c * s.first + self.d * s.second)

    def after(self, other: "Matrix") -> "Matrix":
        """The product self · other."""
        first, second = self.apply(Pair(other.a, other.c)), self.apply(Pair(other.b, other.d))
        return Matrix(first.first, second.first, first.second, second.second)


def pair_scan(matrices: Matrix, drive: Pair) -> Pair:
    """All states, starting from zero; real matrices, real or complex drive.

    Time is cut into about √l pieces that are run side by side; the states at their beginnings follow from the
    products of each piece's matrices. That is 2√l vectorised steps instead of l.
    """
    l = drive.first.shape[1]
    size = max(1, math.isqrt(l))
    m, f = Matrix(*(_cut(x, size) for x in matrices)), Pair(*(_cut(x, size) for x in drive))
    steps = [(Matrix(*(x[:, :, i] for x in m)), Pair(*(x[:, :, i] for x in f))) for i in range(size)]
    product, state = steps[0]
    products, states = [product], [state]
    for matrix, force in steps[1:]:
        product = matrix.after(product)
        state = _add(matrix.apply(state), force)
        products.append(product)
        states.append(state)
    # The state at the beginning of every piece.
    begin = Pair(torch.zeros_like(state.first[:, 0]), torch.zeros_like(state.second[:, 0]))
    begins = [begin]
    for piece in range(state.first.shape[1] - 1):
        moved = Matrix(*(x[:, piece] for x in product)).apply(begin)
        begin = _add(moved, Pair(*(x[:, piece] for x in state)))
        begins.append(begin)
    entry = Pair(*(torch.stack(parts, dim=1) for parts in zip(*begins, strict=True)))
    full = [_add(matrix.apply(entry), own) for matrix, own in zip(products, states, strict=True)]
    joined = (torch.stack(parts, dim=2).flatten(1, 2)[:, :l] for parts in zip(*full, strict=True))
    return Pair(*joined)


def _cut(x: Tensor, size: int) -> Tensor:
    """(b, pieces, size, p), with zeros behind the end: what happens there is cut off again."""
    b, l, p = x.shape
    return F.pad(x, (0, 0, 0, -l % size)).view(b, -1, size, p)


def _add(s: Pair, t: Pair) -> Pair:
    return Pair(s.first + t.first, s.second + t.second)
