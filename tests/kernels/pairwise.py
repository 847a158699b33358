"""A small set of cases in which every pair of option values occurs together at least once."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

Row = dict[str, Any]


def pairwise_cover(
    options: Mapping[str, Sequence[Any]], allowed: Callable[[Row], bool] = lambda row: True, *, seed: int = 0
) -> list[Row]:
    """Greedy: of some random allowed rows that contain an uncovered pair, always take the one that covers most."""
    draw = random.Random(seed)
    uncovered = {pair for pair in _all_pairs(options) if _completion(pair, options, allowed, draw) is not None}
    rows: list[Row] = []
    while uncovered:
        # Sorted, because the order of a set depends on the interpreter's hash seed.
        target = sorted(uncovered, key=repr)[0]
        candidates = [_completion(target, options, allowed, draw) for _ in range(40)]
        row = max((row for row in candidates if row is not None), key=lambda row: len(uncovered & set(_pairs(row))))
        rows.append(row)
        uncovered -= set(_pairs(row))
    return rows


def _all_pairs(options: Mapping[str, Sequence[Any]]) -> Iterator[tuple[tuple[str, Any], tuple[str, Any]]]:
    for (one, these), (two, those) in combinations(options.items(), 2):
        for this in these:
            yield from (((one, this), (two, that)) for that in those)


def _pairs(row: Row) -> Iterator[tuple[tuple[str, Any], tuple[str, Any]]]:
    return combinations(row.items(), 2)


def _completion(
    pair: tuple[tuple[str, Any], ...],
    options: Mapping[str, Sequence[Any]],
    allowed: Callable[[Row], bool],
    draw: random.Random,
) -> Row | None:
    fixed = dict(pair)
    for _ in range(200):
        row = {name: fixed.get(name, draw.choice(values)) for name, values in options.items()}
        if allowed(row):
            return row
    return None
