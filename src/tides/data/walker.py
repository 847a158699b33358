"""The permutations of the Walker protocol, computed rather than stored.

The published splits were drawn with JAX's threefry-2x32 generator in the layout that was the default before
JAX 0.5 (`jax_threefry_partitionable=False`). Newer versions of JAX give other permutations for the same seed.
"""

import math

import numpy as np
from numpy.typing import NDArray

WALKER_SEEDS = (2345, 3456, 4567, 5678, 6789)

_Words = NDArray[np.uint32]
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def prng_key(seed: int) -> _Words:
    """A seed as two 32-bit words, the high one first."""
    return np.array([(seed >> 32) & 0xFFFFFFFF, seed & 0xFFFFFFFF], dtype=np.uint32)


def split(key: _Words, num: int = 2) -> _Words:
    """`num` new keys, shape (num, 2)."""
    return _random_words(key, 2 * num).reshape(num, 2)


def permutation(key: _Words, size: int) -> NDArray[np.int64]:
    """A random order of 0 … size − 1: the numbers are sorted by random 32-bit words, in enough rounds that
    collisions among the words do not matter."""
    order = np.arange(size, dtype=np.int64)
    rounds = math.ceil(3 * math.log(max(1, size)) / math.log(0xFFFFFFFF))
    for _ in range(rounds):
        key, subkey = split(key)
        order = order[np.argsort(_random_words(subkey, size), kind="stable")]
    return order


def walker_permutation(seed: int, size: int) -> NDArray[np.int64]:
    """The order in which the Walker protocol deals out `size` cases: its first 70 % are the training set."""
    data_key = split(prng_key(seed), 4)[0]
    return permutation(split(data_key)[0], size)


def _random_words(key: _Words, size: int) -> _Words:
    """`size` random words: the counters 0 … size − 1, first half paired with second half, enciphered."""
    counters = np.zeros(size + size % 2, dtype=np.uint32)
    counters[:size] = np.arange(size, dtype=np.uint32)
    left, right = np.split(counters, 2)
    return np.concatenate(_threefry(key, left, right))[:size]


def _threefry(key: _Words, left: _Words, right: _Words) -> tuple[_Words, _Words]:
    """Threefry-2x32, twenty rounds (Salmon et al., 2011): five groups of four rotations, a key after each."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(_PARITY))
    # 0-d operands warn when they wrap around; arrays do not, and wrapping is what the cipher wants.
    left, right = left + keys[0], right + keys[1]
    for group in range(5):
        for shift in _ROTATIONS[group % 2]:
            left = left + right
            right = (right << np.uint32(shift)) | (right >> np.uint32(32 - shift))
            right = right ^ left
        left = left + keys[(group + 1) % 3]
        # The group number is added through a Python int so that the key may wrap around silently.
        right = right + np.uint32((int(keys[(group + 2) % 3]) + group + 1) & 0xFFFFFFFF)
    return left, right
