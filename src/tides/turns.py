"""Work in turns: a generator that pauses whenever the device is busy with it, so that others can have their turn."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Turns = Generator[None, int | None, T]
"""On being resumed it may be told how many are at work, and can then count its share of the time."""


def finished(turns: Turns[T]) -> T:
    """Take all turns one after another; the result."""
    while True:
        try:
            next(turns)
        except StopIteration as end:
            result: T = end.value
            return result
