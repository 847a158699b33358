"""`TIDESRegressor`: one number, or several, for each series."""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from torch import nn

from tides.data.attributes import LabelKind
from tides.data.dataset import IrregularDataset
from tides.errors import DataError
from tides.estimators.labels import refuse_dates
from tides.estimators.scikit import RegressorMixin, check_array, check_is_fitted, r2_score
from tides.estimators.sequences import Labelled, SequenceEstimator, static_size
from tides.nn.config import TIDESConfig
from tides.nn.heads import SequenceRegressor
from tides.training.tasks import Regression


class TIDESRegressor(RegressorMixin, SequenceEstimator):  # type: ignore[misc]
    """Predicts numbers from irregular, partly observed series; NaN is missing. y is (n,) or (n, targets).

    X and the arguments are those of `TIDESClassifier`. Targets are standardised inside; predictions are in their units.
    Learnt: `model_` (a `tides.SequenceRegressor`), `schema_`, `history_`, `best_epoch_`.
    """

    _label_kind: ClassVar[LabelKind] = "number"
    _network_kind: ClassVar[type[nn.Module]] = SequenceRegressor

    def fit(self, X: Any, y: Any = None, *, times: Any = None, sample_weight: Any = None) -> Self:
        """Train on n series X with numbers y, (n,) or (n, targets). Tables, data sets and dictionaries
        may have their own labels.

        `sample_weight` (n,) says how much each series counts in the loss and in the choice of the epoch; it is matched
        to the series as y is, and a weight of 0 leaves a series out.

        Unreadable input raises `DataError` naming column, row or series; a wrong argument raises `ConfigError`.
        """
        data, truth, weights, _ = self._truth(X, y, times, sample_weight, fitted=False)
        if truth is None:
            raise DataError(
                f"{type(self).__name__} requires y to be passed, but the target y is None (tables may name a label=)"
            )
        numbers = _numbers(truth)
        self._check_count(data, numbers)
        self.targets_: int | None = None if numbers.ndim == 1 else numbers.shape[1]
        self._train(data, numbers if numbers.ndim == 2 else numbers.tolist(), weights)
        return self

    def predict(self, X: Any, *, times: Any = None) -> NDArray[np.float64]:
        """Numbers (n,) or (n, targets), in the shape and units of y and in the order of `to_dataset(X).ids`."""
        check_is_fitted(self)
        answers: NDArray[np.float64] = self._answers(X, times).numpy()
        return answers[:, 0] if self.targets_ is None else answers

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, *, times: Any = None) -> float:
        """R², the share of the variance that is explained; all series count equally without `sample_weight`."""
        check_is_fitted(self)
        found = self._truth(X, y, times, sample_weight, fitted=True)
        return float(r2_score(self._values(found), self.predict(found.data), sample_weight=found.weights))

    def true_values(self, X: Any, y: Any = None, *, times: Any = None) -> NDArray[np.float64]:
        """The numbers from y, the table's label column or the series."""
        return self._values(self._truth(X, y, times, None, fitted=True))

    def _values(self, found: Labelled) -> NDArray[np.float64]:
        if found.truth is None:
            raise DataError(f"{type(self).__name__}.score requires y to be passed, but the target y is None")
        return _numbers(found.truth)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _network(self, config: TIDESConfig, train: IrregularDataset) -> nn.Module:
        return SequenceRegressor(config, self.targets_ or 1, static_size=static_size(train))

    def _task(self, train: IrregularDataset) -> Regression:
        return Regression.standardised(train, input_drop=self.input_drop)

    def _facts(self) -> dict[str, Any]:
        return {"targets": self.targets_}

    def _width(self, facts: dict[str, Any]) -> int:
        return int(facts["targets"] or 1)

    def _restore(self, facts: dict[str, Any]) -> None:
        self.targets_ = facts["targets"]
        self.task_ = Regression()


def _numbers(y: Any) -> NDArray[np.float64]:
    refuse_dates(y)
    found: NDArray[np.float64] = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
    return found
