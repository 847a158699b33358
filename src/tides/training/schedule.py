"""Learning rates over time, as a factor between 0 and 1."""

import math

from tides.training.config import TrainConfig


def rate_factor(config: TrainConfig, step: int, steps_per_epoch: int) -> float:
    """The factor of the learning rates at `step` (counted from 0).

    Warm-up rises linearly, (step + 1)/w over its w steps. Then the rate stays constant, or falls along half a cosine,
    ½(1 + cos(π·s/n)) for the s-th of the n remaining steps.
    """
    warmup = config.warmup_epochs * steps_per_epoch
    if step < warmup:
        return (step + 1) / warmup
    if config.schedule == "constant":
        return 1.0
    remaining = config.epochs * steps_per_epoch - warmup
    return 0.5 * (1 + math.cos(math.pi * min(step - warmup, remaining) / remaining))
