"""The linear recurrence s_k = a_k s_{k−1} + b_k as a plain definition: every faster scan is tested against it."""

from itertools import pairwise
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Inexact, Int
from torch import Tensor

from tides.errors import ShapeError


@runtime_checkable
class Scan(Protocol):
    """Anything with the contract of `linear_scan`, without packing."""

    def __call__(
        self, a: Tensor, b: Tensor, s0: Tensor | None = None, *, reverse: bool = False
    ) -> tuple[Tensor, Tensor]: ...


def linear_scan(
    a: Inexact[Tensor, "*b l p"],
    b: Inexact[Tensor, "*b l p"],
    s0: Inexact[Tensor, "*n p"] | None = None,
    *,
    reverse: bool = False,
    cu_seqlens: Int[Tensor, "n1"] | None = None,
) -> tuple[Inexact[Tensor, "*b l p"], Inexact[Tensor, "*n p"]]:
    """All states and the last one; with `reverse` time runs backwards and `s_last` is the state at index 0.

    `cu_seqlens` = [0, l₁, l₁+l₂, …] marks the boundaries of sequences packed one after another along `l` in a
    batch of one; each starts from its own row of `s0` (n, p), or from zero, and `s_last` is (n, p).
    """
    if cu_seqlens is not None:
        return _packed_scan(a, b, s0, reverse, sequence_bounds(cu_seqlens, a.shape))
    state = torch.zeros_like(b[..., 0, :]) if s0 is None else s0.to(b.dtype)
    # Unbound once: the gradient of an indexed slice is a whole tensor of zeros, at every step.
    steps = list(zip(a.unbind(-2), b.unbind(-2), strict=True))
    states = []
    for a_k, b_k in reversed(steps) if reverse else steps:
        state = a_k * state + b_k
        states.append(state)
    if reverse:
        states.reverse()
    return torch.stack(states, dim=-2), state


def sequence_bounds(cu_seqlens: Tensor, shape: torch.Size | tuple[int, ...]) -> list[int]:
    """The boundaries as integers, after checking that they partition the packed axis of `shape` (1, l, p)."""
    bounds: list[int] = cu_seqlens.tolist()
    ordered = all(lower < upper for lower, upper in pairwise(bounds))
    if len(shape) != 3 or shape[0] != 1:
        raise ShapeError(f"cu_seqlens: found a batch of shape {tuple(shape)}, wanted packed sequences (1, l, p)")
    if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != shape[1] or not ordered:
        raise ShapeError(f"cu_seqlens: found {bounds}, wanted increasing boundaries from 0 to l = {shape[1]}")
    return bounds


def _packed_scan(a: Tensor, b: Tensor, s0: Tensor | None, reverse: bool, bounds: list[int]) -> tuple[Tensor, Tensor]:
    pieces, lasts = [], []
    for i, (start, stop) in enumerate(pairwise(bounds)):
        first = None if s0 is None else s0[i : i + 1]
        s, last = linear_scan(a[:, start:stop], b[:, start:stop], first, reverse=reverse)
        pieces.append(s)
        lasts.append(last)
    return torch.cat(pieces, dim=1), torch.cat(lasts, dim=0)
