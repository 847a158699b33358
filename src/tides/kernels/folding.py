"""Initial states and packed sequences folded into a plain scan, exactly and with gradients.

At the beginning of every sequence a_k s_0 is added to b_k and a_k becomes 0: nothing leaks across the boundary, and
one scan over the whole axis serves all sequences.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tides.functional.layout import first_rows, last_rows
from tides.functional.scan import sequence_bounds


def folded_scan(
    scan: Callable[[Tensor, Tensor, bool], Tensor],
    a: Tensor,
    b: Tensor,
    s0: Tensor | None,
    *,
    reverse: bool,
    cu_seqlens: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """`linear_scan` in terms of `scan(a, b, reverse)` over (b, l, p), which starts from zero."""
    if s0 is None and cu_seqlens is None:
        s = scan(a, b, reverse)
        return s, s[:, 0] if reverse else s[:, -1]
    if cu_seqlens is not None:
        sequence_bounds(cu_seqlens, b.shape)
        bounds = cu_seqlens.to(b.device).long()
        begins = bounds[1:] - 1 if reverse else bounds[:-1]
    else:
        begins = torch.full((1,), b.shape[1] - 1 if reverse else 0, device=b.device)
    if s0 is not None:
        rows = s0.to(b.dtype).unsqueeze(0 if cu_seqlens is not None else 1)
        b = b.index_add(1, begins, a[:, begins] * rows)
    a = a.index_fill(1, begins, 0)
    s = scan(a, b, reverse)
    return s, first_rows(s, cu_seqlens) if reverse else last_rows(s, None, None, cu_seqlens)
