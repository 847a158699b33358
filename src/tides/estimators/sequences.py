"""What classifier and regressor share: one label for each series, static covariates beside it."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tides.data.dataset import IrregularDataset
from tides.data.series import IrregularSeries
from tides.errors import DataError
from tides.estimators.base import TIDESEstimator
from tides.estimators.inputs import is_table
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
            return data, _by_id(y, data.ids) if is_table(X) and self.id is not None else y
        if isinstance(X, IrregularDataset) or own or _are_series(X):
            return data, data.labels
        return data, None

    def _answers(self, X: Any, times: Any) -> Tensor:
        """Raw outputs (n, k)."""
        check_is_fitted(self)
        data = self._read(X, times, labels="ignored", fitted=True)
        self._check_static(data)
        return torch.cat(list(self._outputs(data))).cpu().double()

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


def _by_id(y: Any, ids: list[Any]) -> Any:
    """`y` in the order of the series where its index is their ids, as a frame grouped by id has it.

    Row numbers, and an index that has nothing to do with the ids, leave it as it is; one that has only some of them
    would give series the labels of others.
    """
    index = getattr(y, "index", None)
    if not hasattr(y, "loc") or index is None or len(y) != len(ids):
        return y
    if set(index) == set(ids):
        return y.loc[ids]
    if type(index).__name__ == "RangeIndex" or not {str(one) for one in index} & {str(one) for one in ids}:
        return y
    known = set(index)
    missing = next(one for one in ids if one not in known)
    raise DataError(
        f"y: found an index without {missing!r}, the id of a series; wanted all ids as the table has them (a number is "
        "no text), or y in their order without an index"
    )


def _are_series(X: Any) -> bool:
    return isinstance(X, (list, tuple)) and bool(X) and isinstance(X[0], IrregularSeries)
