"""How many threads a model is worth: the threads of a small one spend their time waiting for each other.

On a busy machine, or in a container that may use fewer processors than it sees, that is many times slower than a single
thread.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from tides.data.dataset import IrregularDataset

# Weights × time steps of a batch for which two threads begin to be faster than one on an idle machine: 20 ms of a
# training step.
_WORTH = 100_000_000


@contextmanager
def worthwhile_threads(model: nn.Module, data: IrregularDataset, batch_size: int) -> Iterator[None]:
    """On a CPU, limit torch's threads during the block to those that batches of this data keep busy."""
    weights = sum(parameter.numel() for parameter in model.parameters() if parameter.device.type == "cpu")
    steps = float(data.lengths.mean()) * min(batch_size, len(data))
    before = torch.get_num_threads()
    if weights:
        torch.set_num_threads(max(1, min(before, int(weights * steps / _WORTH))))
    try:
        yield
    finally:
        torch.set_num_threads(before)
