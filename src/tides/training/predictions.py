"""What a model answered on a data set, ready to be scored."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, Self

import numpy as np

from tides.errors import DataError
from tides.training.metrics import (
    Array,
    Labels,
    accuracy,
    auprc,
    auroc,
    brier,
    log_loss,
    macro_f1,
    mean_over_entries,
)

CLASS_METRICS = {
    "accuracy": accuracy,
    "auroc": auroc,
    "auprc": auprc,
    "f1": macro_f1,
    "brier": brier,
    "nll": log_loss,
}


class Predictions(Protocol):
    """Answers for n series and the metrics they can be scored with; weights of series are taken into account."""

    def __len__(self) -> int: ...
    def metrics(self) -> Mapping[str, Callable[[Array], Array]]:
        """Each metric by name, as a function of weights (r, n) over the series; see `training.metrics`."""

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """The answers of several batches, one after another."""


@dataclass(frozen=True, eq=False)
class ClassPredictions:
    """Probabilities (n, k) beside the true classes (n,)."""

    probabilities: Array
    labels: Labels
    weights: Array | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def metrics(self) -> Mapping[str, Callable[[Array], Array]]:
        plain = {name: partial(metric, self.probabilities, self.labels) for name, metric in CLASS_METRICS.items()}
        return _weighing(plain, self.weights)

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        return cls(
            np.concatenate([part.probabilities for part in parts]),
            np.concatenate([part.labels for part in parts]),
            _joined([part.weights for part in parts]),
        )


@dataclass(frozen=True, eq=False)
class NumberPredictions:
    """Scored entries (m,) of n series: prediction, truth, the predicted standard deviation if there is one, and the
    position of the series that each entry belongs to."""

    values: Array
    targets: Array
    spreads: Array | None
    owners: Labels
    series: int
    weights: Array | None = None

    def __len__(self) -> int:
        return self.series

    def metrics(self) -> Mapping[str, Callable[[Array], Array]]:
        error = self.values - self.targets
        entries = {"mse": error**2, "mae": np.abs(error)}
        if self.spreads is not None:
            entries["nll"] = 0.5 * np.log(2 * np.pi) + np.log(self.spreads) + 0.5 * (error / self.spreads) ** 2
        counts = np.bincount(self.owners, minlength=self.series).astype(np.float64)
        totals = {
            name: np.bincount(self.owners, entry, minlength=self.series).astype(np.float64)
            for name, entry in entries.items()
        }
        plain = {name: partial(mean_over_entries, total, counts) for name, total in totals.items()}
        return _weighing(plain, self.weights)

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        offsets = np.cumsum([0, *(part.series for part in parts)])
        return cls(
            values=np.concatenate([part.values for part in parts]),
            targets=np.concatenate([part.targets for part in parts]),
            spreads=_joined([part.spreads for part in parts]),
            owners=np.concatenate([part.owners + begin for part, begin in zip(parts, offsets, strict=False)]),
            series=int(offsets[-1]),
            weights=_joined([part.weights for part in parts]),
        )


def _joined(parts: Sequence[Array | None]) -> Array | None:
    given = [part for part in parts if part is not None]
    if 0 < len(given) < len(parts):
        raise DataError("weight: some batches of series have weights and others none, wanted all or none")
    return np.concatenate(given) if given else None


def _weighing(
    metrics: Mapping[str, Callable[[Array], Array]], own: Array | None
) -> Mapping[str, Callable[[Array], Array]]:
    """These metrics with the series' own weights, which multiply those of each resample."""
    if own is None:
        return metrics
    return {name: partial(_weighed, metric, own) for name, metric in metrics.items()}


def _weighed(metric: Callable[[Array], Array], own: Array, weights: Array) -> Array:
    return metric(weights * own)


def point_metrics(predictions: Predictions) -> dict[str, float]:
    """Every metric once, without intervals."""
    ones = np.ones((1, len(predictions)))
    return {name: float(metric(ones)[0]) for name, metric in predictions.metrics().items()}
