"""Sorting many rows by (series, time): the step that decides how fast a large table is read."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer[Any]]


def stable_order(key: Ints, time: NDArray[Any]) -> Ints | None:
    """The order by (key, time) that keeps equal rows in place; None where the rows are sorted already.

    The same as `np.lexsort((time, key))`, about twice as fast on ten million shuffled rows.
    """
    same = key[1:] == key[:-1]
    if bool(((key[1:] > key[:-1]) | (same & (time[1:] >= time[:-1]))).all()):
        return None
    if len(key) >= 2**31:
        return np.lexsort((time, key))
    order = np.argsort(time).astype(np.int32)
    order = order[_by_digits(key[order])]
    return _ties_in_place(order, key, time)


def _by_digits(key: Ints) -> Ints:
    """Stable order of whole numbers, 16 bits at a time: numpy sorts 16-bit integers in linear time."""
    rest = key.astype(np.uint64) - np.uint64(int(key.min()) % 2**64)  # wraps around for negative keys, as it should
    highest = int(rest.max())
    order: Ints = np.argsort((rest & np.uint64(0xFFFF)).astype(np.uint16), kind="stable").astype(np.int32)
    for shift in range(16, highest.bit_length(), 16):
        digit = ((rest >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(np.uint16)
        order = order[np.argsort(digit[order], kind="stable")]
    return order


def _ties_in_place(order: Ints, key: Ints, time: NDArray[Any]) -> Ints:
    """Rows of one series at one time in the order of the table; sorting by time alone may have mixed them."""
    sorted_key, sorted_time = key[order], time[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (sorted_key[1:] != sorted_key[:-1]) | (sorted_time[1:] != sorted_time[:-1])
    del sorted_key, sorted_time
    if new.all():
        return order
    run = np.cumsum(new, dtype=np.int64)
    run <<= 32
    run |= order
    run.sort()
    return (run & 0xFFFFFFFF).astype(np.int32)
