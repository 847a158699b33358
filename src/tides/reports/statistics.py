"""Statistics of small samples: means, intervals, ranks, wins, ratios and the signed-rank test. Plain numpy."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

# Up to this many pairs the distribution of the signed-rank sum is counted out.
_EXACT_PAIRS = 50
# Differences of equal size seldom agree in their last bits: they are compared to this many digits of the largest.
_DIGITS = 9
_Z95 = 1.959963984540054


class Interval(NamedTuple):
    """Both ends of a 95 % interval."""

    low: float
    high: float


class Wilcoxon(NamedTuple):
    """The paired signed-rank test: how many pairs differ, and the two-sided p-value."""

    pairs: int
    p: float


def mean_std(values: ArrayLike) -> tuple[float, float]:
    """Mean and standard deviation (n − 1; NaN for one value)."""
    x = np.asarray(values, np.float64)
    return float(x.mean()), float(x.std(ddof=1)) if len(x) > 1 else math.nan


def wilson(correct: int, cases: int) -> Interval:
    """Wilson's score interval of a share: right where counts are small or near all."""
    share, z2 = correct / cases, _Z95**2
    centre = (share + z2 / (2 * cases)) / (1 + z2 / cases)
    half = _Z95 * math.sqrt(share * (1 - share) / cases + z2 / (4 * cases**2)) / (1 + z2 / cases)
    return Interval(max(0.0, centre - half), min(1.0, centre + half))


def bootstrap_mean(values: ArrayLike, resamples: int = 10_000, seed: int = 0) -> Interval:
    """Percentile interval of the mean over resampled seeds or folds."""
    x = np.asarray(values, np.float64)
    drawn = np.random.default_rng(seed).integers(0, len(x), (resamples, len(x)))
    low, high = np.quantile(x[drawn].mean(axis=1), [0.025, 0.975])
    return Interval(float(low), float(high))


def ranks(values: ArrayLike, *, higher: bool = False, ties: Literal["average", "best"] = "average") -> Array:
    """Ranks along the last axis, 1 is best; what is not a number comes last.

    Equal values share the average of their places, or the best of them (1, 2, 2, 4).
    """
    x = np.asarray(values, np.float64)
    key = np.where(np.isnan(x), np.inf, -x if higher else x)
    below = (key[..., None, :] < key[..., :, None]).sum(-1)
    if ties == "best":
        return np.asarray(below + 1, np.float64)
    equal = (key[..., None, :] == key[..., :, None]).sum(-1)
    return np.asarray(below + (equal + 1) / 2, np.float64)


def wins(values: ArrayLike, *, higher: bool = False) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Wins of each column over the rows: one winner per row (ties to the first column), and ties counted for all."""
    x = np.asarray(values, np.float64)
    key = np.where(np.isnan(x), np.inf, -x if higher else x)
    best = key.min(axis=1, keepdims=True)
    single = np.bincount(key.argmin(axis=1), minlength=x.shape[1])
    return single.astype(np.int64), ((key == best) & np.isfinite(best)).sum(axis=0).astype(np.int64)


def ratio_to_best(errors: ArrayLike) -> Array:
    """Geometric mean over rows of error ÷ smallest error of the row, for each column."""
    x = np.asarray(errors, np.float64)
    logs = np.log(x / np.nanmin(x, axis=1, keepdims=True))
    return np.asarray(np.exp(logs.mean(axis=0)), np.float64)


def wilcoxon(ours: ArrayLike, theirs: ArrayLike) -> Wilcoxon:
    """Two-sided signed-rank test of paired values; zero differences are left out, equal ones share their ranks.

    Up to fifty pairs all signs that the differences could have are counted, with the ranks that they do have, so that
    ties are exact, too: five pairs never give less than 2/32. Beyond that, the normal approximation with its
    corrections for ties and continuity.
    """
    difference = np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)
    largest = np.abs(difference).max(initial=0.0)
    if largest > 0:
        difference = np.round(difference / largest, _DIGITS)
    difference = difference[difference != 0]
    n = len(difference)
    if n == 0:
        return Wilcoxon(0, 1.0)
    rank = ranks(np.abs(difference))
    smaller = min(rank[difference > 0].sum(), rank[difference < 0].sum())
    if n <= _EXACT_PAIRS:
        return Wilcoxon(n, min(1.0, 2 * _share_of_sums(rank, smaller)))
    sizes = np.unique(rank, return_counts=True)[1]
    variance = n * (n + 1) * (2 * n + 1) / 24 - (sizes**3 - sizes).sum() / 48
    z = (smaller - n * (n + 1) / 4 + 0.5) / math.sqrt(variance)
    return Wilcoxon(n, min(1.0, math.erfc(-z / math.sqrt(2))))


def _share_of_sums(rank: Array, limit: float) -> float:
    """The share of the 2ⁿ subsets of the ranks whose sum is at most `limit`; shared ranks are whole or half."""
    twice = np.rint(2 * rank).astype(np.int64)
    ways = np.zeros(int(twice.sum()) + 1)
    ways[0] = 1.0
    for size in twice:
        ways[size:] = ways[size:] + ways[:-size]
    return float(ways[: round(2 * limit) + 1].sum() / 2.0 ** len(rank))


def spread(values: Sequence[float], digits: int) -> str:
    """`mean ± std` as text; the mean alone for one value."""
    mean, std = mean_std(values)
    return f"{mean:.{digits}f}" if math.isnan(std) else f"{mean:.{digits}f} ± {std:.{digits}f}"
