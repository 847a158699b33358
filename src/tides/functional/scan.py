"""The linear recurrence s_k = a_k s_{k−1} + b_k as a plain definition: every faster scan is tested against it."""

from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

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
    check_scan(a, b, s0, cu_seqlens)
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


def check_scan(a: Any, b: Any, s0: Any = None, cu_seqlens: Any = None) -> None:
    """Check shapes and types: a compiled scan would read beyond the end of short tensors and drop imaginary parts
    silently.
    """
    given = {"b": b, "a": a} | ({} if s0 is None else {"s0": s0})
    for name, tensor in given.items():
        if not isinstance(tensor, Tensor):
            raise ShapeError(f"{name}: found {type(tensor).__name__}, wanted a tensor")
        if not tensor.is_complex() and not tensor.is_floating_point():
            raise ShapeError(f"{name}: found dtype {tensor.dtype}, wanted real or complex floating-point numbers")
        if tensor.is_complex() and not b.is_complex():
            raise ShapeError(f"{name}: found {tensor.dtype} beside b of {b.dtype}; wanted b complex too")
    if b.ndim < 2 or b.shape[-2] == 0:
        raise ShapeError(f"b: found {tuple(b.shape)}, wanted (b, l, p) with at least one step")
    if a.shape != b.shape:
        raise ShapeError(f"a: found {tuple(a.shape)} beside b of {tuple(b.shape)}, wanted one shape (b, l, p)")
    if cu_seqlens is not None:
        _check_boundaries(cu_seqlens)
    sequences = b.shape[:-2] if cu_seqlens is None else (len(cu_seqlens) - 1,)
    if s0 is not None and tuple(s0.shape) != (*sequences, b.shape[-1]):
        raise ShapeError(f"s0: found {tuple(s0.shape)}, wanted {(*sequences, b.shape[-1])}: a state per sequence")


def sequence_bounds(cu_seqlens: Any, shape: torch.Size | tuple[int, ...]) -> list[int]:
    """The boundaries as integers, after checking that they partition the packed axis of `shape` (1, l, p)."""
    _check_boundaries(cu_seqlens)
    bounds: list[int] = cu_seqlens.tolist()
    ordered = all(lower < upper for lower, upper in pairwise(bounds))
    if len(shape) != 3 or shape[0] != 1:
        raise ShapeError(f"cu_seqlens: found a batch of shape {tuple(shape)}, wanted packed sequences (1, l, p)")
    if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != shape[1] or not ordered:
        raise ShapeError(f"cu_seqlens: found {bounds}, wanted increasing boundaries from 0 to l = {shape[1]}")
    return bounds


def _check_boundaries(cu_seqlens: Any) -> None:
    if not isinstance(cu_seqlens, Tensor):
        raise ShapeError(f"cu_seqlens: found {type(cu_seqlens).__name__}, wanted a tensor of whole numbers (n + 1,)")
    if cu_seqlens.dtype not in (torch.int32, torch.int64) or cu_seqlens.ndim != 1:
        found = f"{cu_seqlens.dtype} of shape {tuple(cu_seqlens.shape)}"
        raise ShapeError(f"cu_seqlens: found {found}, wanted whole numbers (n + 1,)")


def _packed_scan(a: Tensor, b: Tensor, s0: Tensor | None, reverse: bool, bounds: list[int]) -> tuple[Tensor, Tensor]:
    pieces, lasts = [], []
    for i, (start, stop) in enumerate(pairwise(bounds)):
        first = None if s0 is None else s0[i : i + 1]
        s, last = linear_scan(a[:, start:stop], b[:, start:stop], first, reverse=reverse)
        pieces.append(s)
        lasts.append(last)
    return torch.cat(pieces, dim=1), torch.cat(lasts, dim=0)
