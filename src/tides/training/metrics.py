"""Metrics as functions of weights: one definition serves the point estimate and every bootstrap resample.

Each function takes `weights` (r, n), r sets of weights over n series, and returns r values; all ones give the plain
metric. A value is NaN where the metric is undefined, such as a ranking with one class only.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

HIGHER_IS_BETTER = frozenset({"accuracy", "auroc", "auprc", "f1"})
"""Metrics not named here are errors: lower is better."""


def accuracy(probabilities: Array, labels: Labels, weights: Array) -> Array:
    """Share of series whose most probable class is theirs."""
    return _mean((probabilities.argmax(axis=1) == labels).astype(np.float64), weights)


def log_loss(probabilities: Array, labels: Labels, weights: Array) -> Array:
    """Mean negative log-likelihood of the true class."""
    likelihood = probabilities[np.arange(len(labels)), labels]
    return _mean(-np.log(np.maximum(likelihood, np.finfo(np.float64).tiny)), weights)


def brier(probabilities: Array, labels: Labels, weights: Array) -> Array:
    """Mean squared distance between probabilities and truth; of one class if there are two, else of all."""
    distance = (probabilities - np.eye(probabilities.shape[1])[labels]) ** 2
    return _mean(distance[:, 1] if distance.shape[1] == 2 else distance.sum(axis=1), weights)


def macro_f1(probabilities: Array, labels: Labels, weights: Array) -> Array:
    """2·TP/(2·TP + FP + FN), averaged over the classes that occur in truth or prediction."""
    predicted = probabilities.argmax(axis=1)
    k = probabilities.shape[1]
    true, found = weights @ np.eye(k)[labels], weights @ np.eye(k)[predicted]  # (r, k)
    hits = weights @ (np.eye(k)[labels] * (predicted == labels)[:, None])
    occurs = true + found > 0
    scores = np.where(occurs, 2 * hits / np.where(occurs, true + found, 1.0), np.nan)
    return _nanmean(scores)


def auroc(probabilities: Array, labels: Labels, weights: Array) -> Array:
    """Area under the ROC curve, ties counted half; one class against the rest, averaged, beyond two classes."""
    return _over_classes(_rank_area, probabilities, labels, weights)


def auprc(probabilities: Array, labels: Labels, weights: Array) -> Array:
    """Average precision Σ (R_i − R_{i−1}) P_i; one class against the rest, averaged, beyond two classes."""
    return _over_classes(_average_precision, probabilities, labels, weights)


def mean_over_entries(totals: Array, counts: Array, weights: Array) -> Array:
    """Mean over all scored entries, from each series' total and count: MSE, MAE and NLL of numbers."""
    entries = weights @ counts
    return np.where(entries > 0, weights @ totals / np.where(entries > 0, entries, 1.0), np.nan)


def _mean(values: Array, weights: Array) -> Array:
    return mean_over_entries(values, np.ones_like(values), weights)


def _nanmean(scores: Array) -> Array:
    """Mean over the last axis without NaN; NaN where nothing is left."""
    known = ~np.isnan(scores)
    count = known.sum(axis=1)
    return np.where(count > 0, np.where(known, scores, 0.0).sum(axis=1) / np.maximum(count, 1), np.nan)


def _over_classes(
    score: Callable[[Array, NDArray[np.bool_], Array], Array], probabilities: Array, labels: Labels, weights: Array
) -> Array:
    classes = [1] if probabilities.shape[1] == 2 else range(probabilities.shape[1])
    return _nanmean(np.stack([score(probabilities[:, c], labels == c, weights) for c in classes], axis=1))


def _rank_area(scores: Array, positive: NDArray[np.bool_], weights: Array) -> Array:
    hits, misses = _by_threshold(scores, positive, weights)
    below = misses.sum(axis=1, keepdims=True) - misses.cumsum(axis=1)
    pairs = hits.sum(axis=1) * misses.sum(axis=1)
    area = (hits * (below + 0.5 * misses)).sum(axis=1)
    return np.where(pairs > 0, area / np.where(pairs > 0, pairs, 1.0), np.nan)


def _average_precision(scores: Array, positive: NDArray[np.bool_], weights: Array) -> Array:
    hits, misses = _by_threshold(scores, positive, weights)
    true, named = hits.cumsum(axis=1), (hits + misses).cumsum(axis=1)
    precision = true / np.where(named > 0, named, 1.0)
    total = hits.sum(axis=1)
    return np.where(total > 0, (hits * precision).sum(axis=1) / np.where(total > 0, total, 1.0), np.nan)


def _by_threshold(scores: Array, positive: NDArray[np.bool_], weights: Array) -> tuple[Array, Array]:
    """Weights of positives and negatives at each distinct score (r, thresholds), highest score first."""
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    first = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    ordered = weights[:, order]
    hits = np.add.reduceat(ordered * positive[order], first, axis=1)
    misses = np.add.reduceat(ordered * ~positive[order], first, axis=1)
    return hits, misses
