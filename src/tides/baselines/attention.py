"""Attention over a changing number of entries, dense and without branches."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def masked_softmax(logits: Float[Tensor, "..."], mask: Bool[Tensor, "..."], dim: int) -> Float[Tensor, "..."]:
    """Softmax over the entries in `mask` along `dim`; all weights are zero where there is none."""
    lowest = torch.finfo(logits.dtype).min
    return torch.where(mask, logits, lowest).softmax(dim) * mask
