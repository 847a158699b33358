"""How sequences lie in a batch: padded at the end (`valid`), or packed one after another (`cu_seqlens`)."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F


def first_rows(x: Tensor, cu_seqlens: Int[Tensor, "n1"] | None = None) -> Tensor:
    """The first step of every sequence: (n, …)."""
    return x[:, 0] if cu_seqlens is None else x[0, cu_seqlens[:-1].to(x.device).long()]


def last_rows(
    x: Float[Tensor, "b l p"] | Tensor,
    before: Tensor | None,
    valid: Bool[Tensor, "b l"] | None = None,
    cu_seqlens: Int[Tensor, "n1"] | None = None,
) -> Tensor:
    """The last valid step of every sequence, or `before` (zeros) where a sequence has none."""
    if cu_seqlens is not None:
        return x[0, cu_seqlens[1:].to(x.device).long() - 1]
    if valid is None:
        return x[:, -1]
    count = valid.sum(-1)
    index = (count - 1).clamp_min(0)[:, None, None].expand(x.shape[0], 1, x.shape[-1])
    empty = torch.zeros_like(x[:, 0]) if before is None else before
    return torch.where((count > 0).unsqueeze(-1), x.gather(1, index).squeeze(1), empty)


def reversed_gaps(
    gaps: Float[Tensor, "b l"],
    valid: Bool[Tensor, "b l"] | None = None,
    cu_seqlens: Int[Tensor, "n1"] | None = None,
) -> Float[Tensor, "b l"]:
    """Gaps of reversed time: g'[k] = gaps[k+1], and g'[n−1] = gaps[0] for n valid steps."""
    rolled = gaps.roll(-1, dims=-1)
    if cu_seqlens is not None:
        bounds = cu_seqlens.to(gaps.device).long()
        return rolled.index_copy(-1, bounds[1:] - 1, gaps.index_select(-1, bounds[:-1]))
    if valid is None:
        return rolled
    last = valid & ~F.pad(valid[..., 1:], (0, 1))
    return torch.where(last, gaps[..., :1], rolled)
