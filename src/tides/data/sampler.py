"""Batches of similar lengths, so that little is spent on padding."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike
from torch.utils.data import Sampler

from tides.data.counts import require_whole
from tides.errors import ConfigError


class LengthBucketSampler(Sampler[list[int]]):
    """A batch sampler: `DataLoader(ds, batch_sampler=LengthBucketSampler(ds.lengths, 32), collate_fn=collate)`.

    Each epoch shuffles all series, cuts the shuffle into pools of `pool` batches, sorts each pool by length and
    cuts batches from it; the order of batches is shuffled again. Every series appears exactly once per epoch.
    `max_steps` limits the padded size (series × longest) of a batch, so that a batch of long series holds fewer.
    With `shuffle=False` batches go from short to long. Orders depend on `seed` and the epoch only.
    """

    def __init__(
        self,
        lengths: ArrayLike,
        batch_size: int,
        *,
        max_steps: int | None = None,
        shuffle: bool = True,
        pool: int = 50,
        seed: int = 0,
    ) -> None:
        for name, number in (("batch_size", batch_size), ("pool", pool), ("max_steps", max_steps)):
            if number is not None and number < 1:
                raise ConfigError(f"{name}={number}; wanted at least 1")
        require_whole("seed", seed, 0)
        self.lengths = np.asarray(lengths, np.int64)
        self.batch_size = batch_size
        self.max_steps = max_steps
        self.shuffle = shuffle
        self.pool = pool
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order comes next (for resumed and distributed runs); otherwise it advances by
        itself.
        """
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        batches = self._batches(self.epoch)
        self.epoch += 1
        return iter(batches)

    def __len__(self) -> int:
        return len(self._batches(self.epoch))

    def _batches(self, epoch: int) -> list[list[int]]:
        generator = np.random.default_rng((self.seed, epoch))
        order = generator.permutation(len(self.lengths)) if self.shuffle else np.arange(len(self.lengths))
        pool = self.pool * self.batch_size if self.shuffle else max(len(order), 1)
        batches: list[list[int]] = []
        for begin in range(0, len(order), pool):
            part = order[begin : begin + pool]
            batches += self._cut(part[np.argsort(self.lengths[part], kind="stable")].tolist())
        if self.shuffle:
            batches = [batches[i] for i in generator.permutation(len(batches))]
        return batches

    def _cut(self, members: Sequence[int]) -> list[list[int]]:
        """Cut a run of series, sorted by length, into batches."""
        batches: list[list[int]] = []
        current: list[int] = []
        for member in members:
            size = (len(current) + 1) * int(self.lengths[member])
            if current and (len(current) == self.batch_size or (self.max_steps and size > self.max_steps)):
                batches.append(current)
                current = []
            current.append(member)
        return [*batches, current] if current else batches
