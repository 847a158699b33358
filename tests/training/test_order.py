"""In which batches series come, and how the series of a batch are divided among processes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tides.data import LengthBucketSampler
from tides.training.config import TrainConfig
from tides.training.order import epoch_batches, shares


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40), st.integers(1, 6))
def test_every_series_has_one_part_and_parts_are_balanced_by_steps(lengths: list[int], parts: int) -> None:
    found = shares(np.array(lengths), parts)
    assert len(found) == parts
    assert sorted(i for part in found for i in part) == list(range(len(lengths)))
    assert all(part == sorted(part) for part in found)
    steps = [sum(lengths[i] for i in part) for part in found]
    assert max(steps) - min(steps) <= max(lengths)


def test_one_long_series_is_worth_many_short_ones() -> None:
    assert shares(np.array([10, 100, 30, 60]), 2) == [[1], [0, 2, 3]]
    assert shares(np.array([5]), 3) == [[0], [], []]


def test_bucketed_batches_are_those_of_the_sampler_and_hold_less_padding() -> None:
    lengths = np.random.default_rng(0).integers(1, 50, 45)
    padding = {}
    for bucketed in (True, False):
        config = TrainConfig(batch_size=8, seed=3, bucketed=bucketed)
        batches = epoch_batches(lengths, config, 2)
        padding[bucketed] = sum(int((lengths[batch].max() - lengths[batch]).sum()) for batch in batches)
    assert padding[True] < padding[False] / 2
    sampler = LengthBucketSampler(lengths, 8, seed=3)
    sampler.set_epoch(2)
    assert epoch_batches(lengths, TrainConfig(batch_size=8, seed=3, bucketed=True), 2) == list(sampler)
