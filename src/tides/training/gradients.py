"""The backward pass of a training step."""

import torch
from torch import Tensor


def backpropagate(loss: Tensor) -> None:
    """`loss.backward()` in the calling thread.

    torch runs a GPU's part in a separate thread. A small model is bound by the time its launches take, and two threads
    that wait for each other in every step take longer than one (measured: docs/kernels-gpu.md).
    """
    with torch.autograd.set_multithreading_enabled(False):
        loss.backward()
