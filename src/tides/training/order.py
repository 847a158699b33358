"""The order in which series are seen: a function of seed and epoch alone, so that a run can be resumed anywhere."""

import numpy as np
from numpy.typing import NDArray

from tides.data.sampler import LengthBucketSampler
from tides.training.config import TrainConfig


def epoch_batches(lengths: NDArray[np.int64], config: TrainConfig, epoch: int) -> list[list[int]]:
    """The batches of one epoch as positions in the training data; their number is the same in every epoch."""
    if config.bucketed:
        sampler = LengthBucketSampler(lengths, config.batch_size, seed=config.seed)
        sampler.set_epoch(epoch)
        return list(sampler)
    shuffled = np.random.default_rng((config.seed, epoch)).permutation(len(lengths)).tolist()
    return [shuffled[begin : begin + config.batch_size] for begin in range(0, len(shuffled), config.batch_size)]


def shares(lengths: NDArray[np.int64], parts: int) -> list[list[int]]:
    """Positions of series divided into `parts` of nearly equal numbers of steps, each in the order given.

    The longest series go first, each to the part that has the fewest steps so far: no part then holds more than the
    mean and one series. With fewer series than parts some parts are empty.
    """
    found: list[list[int]] = [[] for _ in range(parts)]
    steps = [0] * parts
    for position in np.argsort(-lengths, kind="stable").tolist():
        lightest = steps.index(min(steps))
        found[lightest].append(position)
        steps[lightest] += int(lengths[position])
    return [sorted(part) for part in found]
