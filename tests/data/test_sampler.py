"""Length buckets: every series once, similar lengths together, orders that can be repeated."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tides.data import LengthBucketSampler
from tides.errors import ConfigError


@given(
    st.lists(st.integers(1, 100), max_size=60),
    st.integers(1, 9),
    st.none() | st.integers(1, 200),
    st.booleans(),
    st.integers(1, 4),
)
def test_every_series_exactly_once(
    lengths: list[int], batch_size: int, max_steps: int | None, shuffle: bool, pool: int
) -> None:
    sampler = LengthBucketSampler(lengths, batch_size, max_steps=max_steps, shuffle=shuffle, pool=pool)
    for _ in range(2):
        batches = list(sampler)
        assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
        for batch in batches:
            assert 1 <= len(batch) <= batch_size
            padded = len(batch) * max(lengths[i] for i in batch)
            assert max_steps is None or len(batch) == 1 or padded <= max_steps


def test_orders_repeat_by_seed_and_epoch() -> None:
    lengths = np.random.default_rng(0).integers(1, 50, 40)
    one, other = LengthBucketSampler(lengths, 4, seed=3), LengthBucketSampler(lengths, 4, seed=3)
    first, second = list(one), list(one)
    assert first == list(other)
    assert first != second
    other.set_epoch(1)
    assert list(other) == second
    assert list(LengthBucketSampler(lengths, 4, seed=4)) != first


def test_buckets_save_padding() -> None:
    lengths = np.random.default_rng(0).integers(1, 500, 400)

    def padded(batches: list[list[int]]) -> int:
        return sum(len(batch) * max(lengths[batch]) for batch in batches)

    plain = [list(range(i, i + 8)) for i in range(0, 400, 8)]
    assert padded(list(LengthBucketSampler(lengths, 8))) < 0.7 * padded(plain)


def test_without_shuffling_from_short_to_long() -> None:
    assert list(LengthBucketSampler([5, 1, 3], 2, shuffle=False)) == [[1, 2], [0]]


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(ConfigError, match="batch_size=0"):
        LengthBucketSampler([1], 0)
    with pytest.raises(ConfigError, match="seed=-1"):
        LengthBucketSampler([1], 2, seed=-1)
