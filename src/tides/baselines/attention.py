"""Attention over a changing number of entries, dense and without branches."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def masked_softmax(logits: Float[Tensor, "..."], mask: Bool[Tensor, "..."], dim: int) -> Float[Tensor, "..."]:
    """Softmax over the entries in `mask` along `dim`; all weights are zero where there is none."""
    return logits.masked_fill(~mask, torch.finfo(logits.dtype).min).softmax(dim) * mask
