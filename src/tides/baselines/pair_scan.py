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


def impulse_response(matrix: Matrix, drive: Pair, length: int) -> Pair:
    """Mᵏ f for k = 0 … length − 1, each (p, length), of one matrix and one drive (p,), by doubling.

    Numerics: in float64, because squaring a matrix doubles the relative error of its powers.
    """
    power = torch.stack(matrix, dim=-1).double().unflatten(-1, (2, 2))  # (p, 2, 2)
    found = torch.stack(drive, dim=-1).double().unsqueeze(-1)  # (p, 2, k)
    while found.shape[-1] < length:
        found = torch.cat([found, power @ found], dim=-1)
        power = power @ power
    return Pair(*found[..., :length].to(drive.first.dtype).unbind(1))


def convolve(response: Tensor, u: Tensor) -> Tensor:
    """Σ_j response_j u_{k−j} for a response (p, l) and inputs (b, p, l), complex, by way of their spectra."""
    l = u.shape[-1]
    size = _quick_size(2 * l)
    spectrum = torch.fft.fft(u, size) * torch.fft.fft(response, size)
    result: Tensor = torch.fft.ifft(spectrum)[..., :l]
    return result


def _quick_size(least: int) -> int:
    """A number that is not much larger and has no prime factor above five."""
    power = max(16, 1 << (least - 1).bit_length())
    return next(size for size in (power * 9 // 16, power * 5 // 8, power * 3 // 4, power) if size >= least)


def _cut(x: Tensor, size: int) -> Tensor:
    """(b, pieces, size, p), with zeros behind the end: what happens there is cut off again."""
    b, l, p = x.shape
    return F.pad(x, (0, 0, 0, -l % size)).view(b, -1, size, p)


def _add(s: Pair, t: Pair) -> Pair:
    return Pair(s.first + t.first, s.second + t.second)
