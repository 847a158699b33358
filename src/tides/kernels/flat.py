"""Tensors end to end as one vector, and back."""

import torch
from torch import Tensor


def flatten(tensors: list[Tensor]) -> Tensor:
    """All of them end to end, in one call that loops in C++ and does not record views; outside of autograd."""
    with torch._C._AutoDispatchBelowADInplaceOrView():
        flat: Tensor = torch._C._nn.flatten_dense_tensors(tensors)
    return flat


def unflatten(flat: Tensor, like: list[Tensor]) -> list[Tensor]:
    """Parts of `flat` with the shapes of `like`, in the same way."""
    with torch._C._AutoDispatchBelowADInplaceOrView():
        parts: list[Tensor] = torch._C._nn.unflatten_dense_tensors(flat, like)
    return parts
