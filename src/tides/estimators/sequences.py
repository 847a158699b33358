"""What classifier and regressor share: one label for each series, static covariates beside it."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tides.data.dataset import IrregularDataset
from tides.data.series import IrregularSeries
from tides.errors import DataError
from tides.estimators.base import TIDESEstimator
from tides.estimators.inputs import is_table
from tides.estimators.labels import in_order_of
from tides.estimators.scikit import check_is_fitted
from tides.nn.heads import SequenceHead


class SequenceEstimator(TIDESEstimator):
    """A `SequenceHead` behind scikit-learn's methods."""

    model_: SequenceHead

    def _truth(self, X: Any, y: Any, times: Any, *, fitted: bool) -> tuple[IrregularDataset, Any]:
        """The series, and `y` or what labels them; None where nothing does."""
        own = y is None and self.label is not None and is_table(X)
        data = self._read(X, times, labels="required" if own else "ignored", fitted=fitted)
        if y is not None:
            return data, in_order_of(data.ids, y, X, self.id) if is_table(X) and self.id is not None else y
        if isinstance(X, IrregularDataset) or own or _are_series(X):
            return data, data.labels
        return data, None

    def _answers(self, X: Any, times: Any) -> Tensor:
        """Raw outputs (n, k)."""
        check_is_fitted(self)
        data = self._read(X, times, labels="ignored", fitted=True)
        self._check_static(data)
        # Series of similar length are computed together, which needs least padding.
        order = np.argsort(data.lengths, kind="stable")
        answers = torch.cat(list(self._outputs(data[order]))).cpu().double()
        return answers[np.argsort(order)]

    def _check_static(self, data: IrregularDataset) -> None:
        found = static_size(data)
        if found != self.model_.static_size:
            raise DataError(
                f"X: found {found} static features; the model was trained on {self.model_.static_size} "
                f"({', '.join(self.schema_.static_names) or 'unnamed'})"
            )

    def _train(self, data: IrregularDataset, labels: Any) -> None:
        """Train on these series with these class indices or numbers."""
        self.schema_ = data.schema
        series = [one.replace(label=label) for one, label in zip(data, labels, strict=True)]
        self._fit_network(IrregularDataset(series, schema=replace(data.schema, class_names=None)))


def static_size(data: IrregularDataset) -> int:
    static = data.static
    return 0 if static is None else int(static.shape[1])


def _are_series(X: Any) -> bool:
    return isinstance(X, (list, tuple)) and bool(X) and isinstance(X[0], IrregularSeries)
