"""How good is a fitted estimator on series that it has not seen? Plain numbers, from which reports draw."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tides.data.dataset import IrregularDataset
from tides.errors import DataError
from tides.estimators.base import TIDESEstimator
from tides.estimators.classifier import TIDESClassifier
from tides.estimators.forecaster import TIDESForecaster
from tides.estimators.origins import ask_at
from tides.estimators.regressor import TIDESRegressor
from tides.estimators.weights import own_weights
from tides.training.bootstrap import bootstrap
from tides.training.predictions import ClassPredictions, NumberPredictions, Predictions, point_metrics

# Pictures need no more points than this; metrics always count all series.
_MOST_POINTS = 5000
_EXAMPLES = 6
_LEAD_BINS = 8
_COVERAGE = 0.9


def scorecard(estimator: TIDESEstimator, data: IrregularDataset) -> dict[str, Any]:
    """Metrics with 95 % bootstrap intervals over series, and the answers behind them; JSON.

    Weights of labelled series count; forecasts count all series alike.
    """
    if len(data) == 0:
        raise DataError("evaluation: the data set is empty")
    if isinstance(estimator, TIDESClassifier):
        return _classes(estimator, data)
    if isinstance(estimator, TIDESRegressor):
        return _numbers(estimator, data)
    assert isinstance(estimator, TIDESForecaster)
    return _forecasts(estimator, data)


def _classes(estimator: TIDESClassifier, data: IrregularDataset) -> dict[str, Any]:
    truth, classes = estimator.true_classes(data), estimator.classes_.tolist()
    unknown = [one for one in truth.tolist() if one not in classes]
    if unknown:
        raise DataError(f"label: class {unknown[0]!r} is not among those the model knows, {classes}")
    labels = np.array([classes.index(one) for one in truth.tolist()], np.int64)
    names = [str(one) for one in classes]
    probabilities = estimator.predict_proba(data)
    weights = own_weights(data)
    shown = _shown(len(labels))
    return {
        "task": "classification",
        "series": len(labels),
        "weighed": weights is not None,
        "metrics": _class_metrics(ClassPredictions(probabilities, labels, weights), names),
        "classes": names,
        "truth": labels[shown].tolist(),
        "probabilities": probabilities[shown].round(6).tolist(),
    }


def _class_metrics(found: ClassPredictions, names: list[str]) -> dict[str, list[float | None]]:
    """All metrics, and the accuracy of always naming the largest class.

    Average precision belongs to one class: that of the rare class, which is usually meant, says nothing about the
    other's.
    """
    metrics: dict[str, list[float | None]] = {}
    for name, estimate in _estimates(found).items():
        if name == "auprc" and len(names) == 2:
            mirrored = ClassPredictions(found.probabilities[:, ::-1], 1 - found.labels, found.weights)
            metrics[f"auprc of {names[0]}"] = list(bootstrap(mirrored.metrics()[name], len(found)))
            name = f"auprc of {names[1]}"
        metrics[name] = estimate
    largest = int(np.bincount(found.labels, found.weights, minlength=len(names)).argmax())
    constant = ClassPredictions(np.eye(len(names))[np.full(len(found), largest)], found.labels, found.weights)
    return metrics | {f"accuracy of always {names[largest]}": [point_metrics(constant)["accuracy"], None, None]}


def _numbers(estimator: TIDESRegressor, data: IrregularDataset) -> dict[str, Any]:
    truth = estimator.true_values(data).reshape(len(data), -1)
    found = estimator.predict(data).reshape(len(data), -1)
    owners = np.repeat(np.arange(len(data)), truth.shape[1])
    weights = own_weights(data)
    metrics = _estimates(NumberPredictions(found.ravel(), truth.ravel(), None, owners, len(data), weights))
    metrics["r2"] = [estimator.score(data, sample_weight=weights) if len(data) > 1 else None, None, None]
    shown = _shown(len(data))
    return {
        "task": "regression",
        "series": len(data),
        "weighed": weights is not None,
        "metrics": metrics,
        "truth": truth[shown].tolist(),
        "predicted": found[shown].tolist(),
    }


def _forecasts(estimator: TIDESForecaster, data: IrregularDataset) -> dict[str, Any]:
    mean, spread, truth, scored, questions = estimator.backtest(data)
    channels = estimator.schema_.channels
    method = "conformal" if estimator.calibrated_.obstacle(_COVERAGE, channels) is None else "gaussian"
    half = estimator.calibrated_.width(_COVERAGE, method, channels)
    scale = np.array(estimator.task_.scale)
    groups = [one.group for one in questions]
    counts = [len(one.query_times) for one in questions]  # type: ignore[arg-type]
    owners = np.repeat(np.array(groups, np.int64), counts)
    leads = np.concatenate([one.query_times - one.times[-1] for one in questions])
    entries = np.broadcast_to(owners[:, None], truth.shape)[scored]
    series = int(max(groups)) + 1
    scores = _estimates(NumberPredictions((mean / scale)[scored], (truth / scale)[scored], None, entries, series))
    constant = _constant_forecasts(estimator, questions, counts)
    for name, answer in constant.items():
        error = ((answer - truth) / scale)[scored]
        scores[f"mse of the {name}"] = [float((error**2).mean()), None, None]
    inside = np.abs(truth - mean) <= half * spread
    scores[f"coverage of {_COVERAGE:.0%} {method} intervals"] = [float(inside[scored].mean()), None, None]
    return {
        "task": "forecast",
        "series": series,
        "metrics": scores,
        "channels": list(channels),
        "horizon": estimator.horizon_,
        "coverage": _COVERAGE,
        "rmse": [
            float(np.sqrt(((mean - truth)[scored[:, c], c] ** 2).mean())) if scored[:, c].any() else None
            for c in range(len(scale))
        ],
        "by_lead": _by_lead(
            leads, estimator.horizon_, (mean - truth) / scale, (constant["last value"] - truth) / scale, inside, scored
        ),
        "examples": _examples(estimator, questions, half),
    }


def _constant_forecasts(
    estimator: TIDESForecaster, questions: IrregularDataset, counts: list[int]
) -> dict[str, NDArray[np.float64]]:
    """Trivial forecasts to compare with: the last value of each channel, and its training mean."""
    centre = estimator.channel_means()
    held = []
    for one in questions:
        row = centre.copy()
        for c in range(len(centre)):
            seen = np.flatnonzero(one.observed[:, c])
            if len(seen):
                row[c] = one.values[seen[-1], c]
        held.append(row)
    return {"last value": np.repeat(held, counts, axis=0), "mean": np.tile(centre, (sum(counts), 1))}


def _by_lead(
    leads: NDArray[Any],
    horizon: float,
    error: NDArray[Any],
    held: NDArray[Any],
    inside: NDArray[Any],
    scored: NDArray[Any],
) -> list[dict[str, float]]:
    """Errors and coverage by time ahead, in bins with about as many answers each; questions about the past are left
    out.
    """
    ahead = leads > 0
    # Differences of times that mean the same differ in their last bits.
    share = np.round(leads / horizon, 6)
    inner = np.quantile(share[ahead], np.linspace(0, 1, _LEAD_BINS + 1)[1:-1]) if ahead.any() else np.empty(0)
    # Leads on a grid make some of these quantiles equal.
    bins = np.searchsorted(np.unique(inner), share)
    rows = []
    for place in range(_LEAD_BINS):
        chosen = scored & (ahead & (bins == place))[:, None]
        if chosen.any():
            rows.append(
                {
                    "lead": float(np.broadcast_to(leads[:, None], chosen.shape)[chosen].mean()),
                    "rmse": float(np.sqrt((error[chosen] ** 2).mean())),
                    "rmse_of_last_value": float(np.sqrt((held[chosen] ** 2).mean())),
                    "coverage": float(inside[chosen].mean()),
                }
            )
    return rows


def _examples(
    estimator: TIDESForecaster, questions: IrregularDataset, half: NDArray[np.float64]
) -> list[dict[str, Any]]:
    """A few series as they were known, with answers on a fine grid up to the horizon and what came."""
    # Of each series the origin at which most was known.
    longest = {one.group: one for one in sorted(questions, key=len)}
    picked = [longest[group] for group in sorted(longest)[:_EXAMPLES]]
    c = len(half)
    examples = []
    for one in picked:
        grid = one.times[-1] + estimator.horizon_ * np.linspace(0, 1, 41)[1:]
        ((mean, spread),) = estimator.answer(IrregularDataset([ask_at(one, grid, c)], schema=questions.schema))
        assert one.query_times is not None
        assert one.target is not None
        assert one.target_observed is not None
        examples.append(
            {
                "id": str(one.id),
                "times": one.times.tolist(),
                "values": np.where(one.observed, one.values, np.nan)[:, :c].tolist(),
                "grid": grid.tolist(),
                "mean": mean.tolist(),
                "low": (mean - half * spread).tolist(),
                "high": (mean + half * spread).tolist(),
                "asked": one.query_times.tolist(),
                "truth": np.where(one.target_observed, one.target, np.nan).tolist(),
            }
        )
    return examples


def _estimates(predictions: Predictions) -> dict[str, list[float | None]]:
    return {name: list(bootstrap(metric, len(predictions))) for name, metric in predictions.metrics().items()}


def _shown(series: int) -> NDArray[np.int64]:
    if series <= _MOST_POINTS:
        return np.arange(series)
    return np.sort(np.random.default_rng(0).choice(series, _MOST_POINTS, replace=False))
