"""The computed permutations are the published ones."""

import json
from pathlib import Path

import numpy as np
import pytest

from tides.data import walker

SPLITS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "uea" / "walker_splits.json"


@pytest.mark.parametrize(
    ("word", "left", "right"),
    [(0x00000000, 0x6B200159, 0x99BA4EFE), (0xFFFFFFFF, 0x1CB996FC, 0xBB002BE7)],
)
def test_cipher_known_answers(word: int, left: int, right: int) -> None:
    key, block = np.array([word, word], np.uint32), np.array([word], np.uint32)
    got = walker._threefry(key, block, block)
    assert [int(got[0][0]), int(got[1][0])] == [left, right]


def test_permutations_equal_the_published_ones() -> None:
    if not SPLITS.exists():
        pytest.skip("walker_splits.json is not at hand")
    published = json.loads(SPLITS.read_text())["splits"]
    assert len(published) == 6
    for name, by_seed in published.items():
        assert sorted(int(seed) for seed in by_seed) == list(walker.WALKER_SEEDS)
        for seed, order in by_seed.items():
            assert walker.walker_permutation(int(seed), len(order)).tolist() == order, (name, seed)


def test_first_cases_of_one_permutation() -> None:
    # Pinned here as well, so that a machine without the published file still notices a change.
    assert walker.walker_permutation(2345, 561)[:8].tolist() == [96, 129, 318, 480, 232, 439, 326, 208]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 17, 2000])
def test_is_a_permutation(size: int) -> None:
    # 2,000 cases need a second round of sorting.
    order = walker.permutation(walker.prng_key(7), size)
    assert sorted(order.tolist()) == list(range(size))


def test_keys_differ() -> None:
    keys = walker.split(walker.prng_key(1), 5)
    assert len({tuple(k.tolist()) for k in keys}) == 5
    assert walker.prng_key(1 << 32).tolist() == [1, 0]
