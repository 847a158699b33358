"""Our metrics against scikit-learn's, with and without weights."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk

from tides.errors import ConfigError
from tides.training.bootstrap import bootstrap
from tides.training.predictions import CLASS_METRICS, ClassPredictions, NumberPredictions, point_metrics


def draw(seed: int, n: int, k: int, coarse: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities (with many ties if coarse), labels in which every class occurs, and integer weights."""
    rng = np.random.default_rng(seed)
    scores = rng.random((n, k))
    scores = np.ceil(3 * scores) if coarse else scores
    labels = np.concatenate([np.arange(k), rng.integers(0, k, n - k)])
    weights = rng.integers(0, 4, n).astype(float)
    weights[:k] += 1
    return scores / scores.sum(1, keepdims=True), labels, weights


def reference(name: str, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> float:
    two = p.shape[1] == 2
    if name == "accuracy":
        return sk.accuracy_score(y, p.argmax(1), sample_weight=w)
    if name == "auroc":
        return sk.roc_auc_score(y, p[:, 1] if two else p, sample_weight=w, multi_class="ovr")
    if name == "auprc":
        return sk.average_precision_score(y, p[:, 1] if two else p, sample_weight=w)
    if name == "f1":
        return sk.f1_score(y[w > 0], p.argmax(1)[w > 0], sample_weight=w[w > 0], average="macro")
    if name == "brier":
        return sk.brier_score_loss(y, p[:, 1] if two else p, sample_weight=w)
    return sk.log_loss(y, p, sample_weight=w)


@given(st.integers(0, 10**6), st.integers(6, 40), st.integers(2, 4), st.booleans())
def test_class_metrics_agree_with_scikit_learn(seed: int, n: int, k: int, coarse: bool) -> None:
    p, y, w = draw(seed, n, k, coarse)
    sets = np.stack([np.ones(n), w])
    for name, metric in CLASS_METRICS.items():
        found = metric(p, y, sets)
        assert found.shape == (2,)
        assert found[0] == pytest.approx(reference(name, p, y, np.ones(n)), abs=1e-12), name
        assert found[1] == pytest.approx(reference(name, p, y, w), abs=1e-12), name


@pytest.mark.filterwarnings("error")
def test_metrics_that_one_class_leaves_undefined_are_nan() -> None:
    p, y = np.array([[0.2, 0.8], [0.6, 0.4]]), np.array([1, 1])
    found = point_metrics(ClassPredictions(p, y))
    assert math.isnan(found["auroc"])
    assert found["auprc"] == 1.0
    assert found["accuracy"] == 0.5
    assert math.isnan(point_metrics(ClassPredictions(p, np.array([0, 0])))["auprc"])


@given(st.integers(0, 10**6), st.integers(1, 12))
def test_number_metrics_agree_with_scikit_learn(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    owners = np.repeat(np.arange(n), rng.integers(1, 5, n))
    values, targets = rng.normal(size=(2, len(owners)))
    weights = rng.integers(0, 3, n).astype(float) + np.eye(n)[0]
    metrics = NumberPredictions(values, targets, np.full(len(owners), 2.0), owners, n).metrics()
    for name, score in (("mse", sk.mean_squared_error), ("mae", sk.mean_absolute_error)):
        assert metrics[name](np.ones((1, n)))[0] == pytest.approx(score(targets, values))
        assert metrics[name](weights[None])[0] == pytest.approx(score(targets, values, sample_weight=weights[owners]))
    nll = np.mean(0.5 * np.log(2 * np.pi * 4) + (values - targets) ** 2 / 8)
    assert metrics["nll"](np.ones((1, n)))[0] == pytest.approx(nll)


def test_joined_batches_score_like_one() -> None:
    rng = np.random.default_rng(0)
    parts = [
        NumberPredictions(*rng.normal(size=(2, m)), None, np.sort(rng.integers(0, n, m)), n)
        for m, n in ((9, 3), (4, 2))
    ]
    whole = NumberPredictions.join(parts)
    assert len(whole) == 5
    total = sum(((p.values - p.targets) ** 2).sum() for p in parts)
    assert point_metrics(whole)["mse"] == pytest.approx(total / 13)
    assert whole.owners.max() == 3 + parts[1].owners.max()


def test_an_interval_is_that_of_resampled_series() -> None:
    rng = np.random.default_rng(1)
    p, y, _ = draw(2, 60, 3, coarse=False)
    metric = ClassPredictions(p, y).metrics()["auroc"]
    found = bootstrap(metric, 60, resamples=400, coverage=0.8, seed=3)
    assert found.value == pytest.approx(sk.roc_auc_score(y, p, multi_class="ovr"))
    loop = []
    for _ in range(400):
        rows = rng.integers(0, 60, 60)
        loop.append(sk.roc_auc_score(y[rows], p[rows], multi_class="ovr"))
    low, high = np.quantile(loop, [0.1, 0.9])
    # Two independent sets of 400 resamples: the quantiles agree within their sampling error.
    assert found.low == pytest.approx(low, abs=0.02)
    assert found.high == pytest.approx(high, abs=0.02)
    assert bootstrap(metric, 60, resamples=400, coverage=0.8, seed=3) == found
    with pytest.raises(ConfigError, match="resamples=0"):
        bootstrap(metric, 60, resamples=0)
    once = bootstrap(metric, 60, resamples=1)
    assert once.low == once.high != found.value


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for seed in range(100):
        right = rng.random(80) < 0.7
        p = np.where(right[:, None], [0.2, 0.8], [0.8, 0.2])
        metric = ClassPredictions(p, np.ones(80, np.int64)).metrics()["accuracy"]
        found = bootstrap(metric, 80, resamples=200, coverage=0.9, seed=seed)
        covered += found.low <= 0.7 <= found.high
    assert 82 <= covered <= 97
