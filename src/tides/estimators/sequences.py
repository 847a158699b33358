"""What classifier and regressor share: one label per series, and static covariates."""

import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tides.data.dataset import IrregularDataset
from tides.data.series import IrregularSeries
from tides.data.sources import shown
from tides.errors import ConfigError, DataError
from tides.estimators.base import TIDESEstimator
from tides.estimators.inputs import is_dictionary, is_table
from tides.estimators.labels import in_order_of, stated
from tides.estimators.scikit import check_consistent_length, check_is_fitted, pick_rows
from tides.estimators.weights import Weights, own_weights, sample_weights
from tides.nn.heads import SequenceHead


class Labelled(NamedTuple):
    """Series with their labels as they were given (None where there are none), and their weights.

    `stated`: labels were given as y, by itself or in a dictionary, and are not the series' own.
    """

    data: IrregularDataset
    truth: Any
    weights: Weights | None
    stated: bool


class SequenceEstimator(TIDESEstimator):
    """A `SequenceHead` behind scikit-learn's methods."""

    model_: SequenceHead

    def _truth(self, X: Any, y: Any, times: Any, sample_weight: Any, *, fitted: bool) -> Labelled:
        """The series with `y` or their own labels; in a fit, series with weight 0 are left out."""
        if self.unlabelled not in ("error", "drop"):
            raise ConfigError(f"unlabelled: found {self.unlabelled!r}, wanted 'error' or 'drop'")
        if y is None and is_dictionary(X):
            y = X.get("y")
        if np.ma.is_masked(y):
            y = np.where(np.ma.getmaskarray(y), np.array(None), np.ma.getdata(y))
        own = y is None and self.label is not None and is_table(X)
        weights = not fitted and sample_weight is None
        data = self._read(X, times, labels="required" if own else "ignored", fitted=fitted, weights=weights)
        if y is not None and is_table(X) and self.id is not None:
            y = in_order_of(data.ids, y, X, self.id)
        counts = own_weights(data) if weights else None
        if sample_weight is not None:
            counts = sample_weights(sample_weight, data, X, self.id)
        labelled = y is not None or own or isinstance(X, IrregularDataset) or _are_series(X)
        rows = np.ones(len(data), np.bool_)
        if labelled and self.unlabelled == "drop":
            rows &= self._with_label(data, y)
        if counts is not None and not fitted:
            rows &= counts > 0
        if not rows.all():
            if y is not None:
                check_consistent_length(range(len(data)), y)
                y = pick_rows(y, np.flatnonzero(rows))
            data, counts = data[rows], None if counts is None else counts[rows]
        return Labelled(data, data.labels if y is None and labelled else y, counts, y is not None)

    def _with_label(self, data: IrregularDataset, y: Any) -> NDArray[np.bool_]:
        """Which series have a label; a warning says which have none."""
        has = data.labelled if y is None else stated(y)
        if has.any() and not has.all() and len(has) == len(data):
            without = [one for one, known in zip(data.ids, has, strict=True) if not known]
            warnings.warn(
                f"{len(without)} of {len(data)} series without a label: {shown(without)}; left out", stacklevel=4
            )
            return has
        # Where nothing is labelled, or the numbers differ, what comes next knows what to say.
        return np.ones(len(data), np.bool_)

    def _answers(self, X: Any, times: Any) -> Tensor:
        """Raw outputs (n, k)."""
        check_is_fitted(self)
        data = self._read(X, times, labels="ignored", fitted=True)
        self._check_static(data)
        # Series of similar length are computed together, which needs least padding.
        order = np.argsort(data.lengths, kind="stable")
        answers = torch.cat(list(self._outputs(data[order].map(_asked)))).cpu().double()
        return answers[np.argsort(order)]

    def _check_static(self, data: IrregularDataset) -> None:
        found = static_size(data)
        if found != self.model_.static_size:
            raise DataError(
                f"X: found {found} static features; the model was trained on {self.model_.static_size} "
                f"({', '.join(self.schema_.static_names) or 'unnamed'})"
            )

    def _train(self, data: IrregularDataset, labels: Any, weights: Weights | None) -> None:
        """Train on these series with these class indices or numbers, and weights."""
        self.schema_ = data.schema
        counts = [None] * len(data) if weights is None else weights.tolist()
        triples = zip(data, labels, counts, strict=True)
        series = [one.replace(label=label, weight=weight) for one, label, weight in triples]
        self._fit_network(IrregularDataset(series, schema=replace(data.schema, class_names=None)))


def _asked(series: IrregularSeries) -> IrregularSeries:
    """A series without label and weight, for prediction: there it does not matter whether all series have them."""
    return series.replace(label=None, weight=None)


def static_size(data: IrregularDataset) -> int:
    static = data.static
    return 0 if static is None else int(static.shape[1])


def _are_series(X: Any) -> bool:
    return isinstance(X, (list, tuple)) and bool(X) and isinstance(X[0], IrregularSeries)
