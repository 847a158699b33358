"""Signatures of piecewise-linear paths up to level three: the iterated integrals that describe a path's shape.

    S^i = ∫dx_i,   S^{ij} = ∫∫dx_i dx_j,   S^{ijk} = ∫∫∫dx_i dx_j dx_k      (innermost first, no leading 1)

They follow from Chen's identity, S over two pieces = product of both, and exp(v) = (v, v⊗v/2, v⊗v⊗v/6) for a line.
Every window's signature is the quotient of two prefixes, so windows may overlap and end between two points.

Numerics: prefixes are formed in float64, whose digits outlast the quotient; results return in the path's precision.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Signature(NamedTuple):
    """Levels one to three, each (…, d, d, …); a level that was not asked for is None."""

    one: Tensor
    two: Tensor | None = None
    three: Tensor | None = None

    def flat(self) -> Tensor:
        """All levels side by side (…, d + d² + d³)."""
        lead = self.one.shape[:-1]
        return torch.cat([level.reshape(*lead, -1) for level in self if level is not None], dim=-1)

    def each(self, change: Callable[[Tensor], Tensor]) -> "Signature":
        """`change` applied to every level that is there."""
        two = None if self.two is None else change(self.two)
        return Signature(change(self.one), two, None if self.three is None else change(self.three))

    def take(self, index: Tensor) -> "Signature":
        """The entries (b, n) of axis 1."""
        rows = torch.arange(index.shape[0], device=index.device).unsqueeze(-1)
        return self.each(lambda level: level[rows, index])


def signature_size(width: int, level: int) -> int:
    """Numbers in a signature of a path with `width` channels."""
    return sum(width**n for n in range(1, level + 1))


def prefix_signatures(path: Tensor, level: int) -> Signature:
    """Signatures of path[:, :k+1] for every point k of (b, l, d), in float64; the first is zero."""
    path = path.double()
    step = path.diff(dim=1, prepend=path[:, :1])
    one = step.cumsum(1)
    if level == 1:
        return Signature(one)
    before = one - step
    square = _outer(step, step) / 2
    two = (_outer(before, step) + square).cumsum(1)
    if level == 2:
        return Signature(one, two)
    earlier = torch.cat([torch.zeros_like(two[:, :1]), two[:, :-1]], dim=1)
    three = _outer(earlier, step) + _outer(before, square) + _outer(square, step) / 3
    return Signature(one, two, three.cumsum(1))


def extend(start: Signature, step: Tensor) -> Signature:
    """The signature after one more straight piece `step` (…, d): start ⊗ exp(step)."""
    one = start.one + step
    if start.two is None:
        return Signature(one)
    square = _outer(step, step) / 2
    two = start.two + _outer(start.one, step) + square
    if start.three is None:
        return Signature(one, two)
    three = start.three + _outer(start.two, step) + _outer(start.one, square) + _outer(square, step) / 3
    return Signature(one, two, three)


def between(start: Signature, end: Signature) -> Signature:
    """The signature of the piece between two prefixes: start⁻¹ ⊗ end."""
    one = end.one - start.one
    if start.two is None or end.two is None:
        return Signature(one)
    two = end.two - start.two - _outer(start.one, one)
    if start.three is None or end.three is None:
        return Signature(one, two)
    return Signature(one, two, end.three - start.three - _outer(start.two, one) - _outer(start.one, two))


def log_signature(pieces: Tensor, level: int) -> Tensor:
    """Log-signatures of the paths (…, l, d): increments, and with level 2 the Lévy areas ½(S^{ij} − S^{ji}), i < j.

    The order is lexicographic: (…, d + d(d−1)/2). No tensor with one matrix per point is made.
    """
    step = pieces.diff(dim=-2)
    one = pieces[..., -1, :] - pieces[..., 0, :]
    if level == 1:
        return one
    middle = pieces[..., :-1, :] - pieces[..., :1, :] + step / 2
    return logarithm(Signature(one, middle.transpose(-1, -2) @ step))


def logarithm(signature: Signature) -> Tensor:
    """Levels one and two as the coordinates of `log_signature`."""
    if signature.two is None:
        return signature.one
    area = (signature.two - signature.two.transpose(-1, -2)) / 2
    i, j = torch.triu_indices(area.shape[-1], area.shape[-1], offset=1, device=area.device)
    return torch.cat([signature.one, area[..., i, j]], dim=-1)


def log_signature_size(width: int, level: int) -> int:
    return width if level == 1 else width + width * (width - 1) // 2


def _outer(x: Tensor, y: Tensor) -> Tensor:
    """x ⊗ y behind the two leading axes (batch, points) that every tensor here has."""
    b, n, *inner = x.shape
    product = x.reshape(b, n, -1, 1) * y.reshape(b, n, 1, -1)
    return product.view(b, n, *inner, *y.shape[2:])
