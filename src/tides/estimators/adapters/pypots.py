"""PyPOTS's manner: dictionaries {"X": (samples, steps, features) with NaN, "y": (samples,)} in, dictionaries out."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tides.data.dataset import IrregularDataset
from tides.errors import DataError
from tides.estimators.classifier import TIDESClassifier
from tides.estimators.labels import stated
from tides.estimators.recipe import RECIPE, Split

Dictionary = Mapping[str, Any]


class PyPOTSTIDESClassifier:
    """`TIDESClassifier` with PyPOTS's constructor, `fit(train_set, val_set)` and `predict(test_set)`.

    A dictionary may hold "times" (samples, steps) beside "X"; otherwise steps are one unit apart. Further arguments are
    those of `TIDESClassifier`.
    """

    def __init__(
        self,
        n_steps: int,
        n_features: int,
        n_classes: int,
        batch_size: int | None = None,
        epochs: int = RECIPE.epochs,
        patience: int | None = RECIPE.patience,
        device: str = "cpu",
        **options: Any,
    ) -> None:
        self.n_steps, self.n_features, self.n_classes = n_steps, n_features, n_classes
        self.estimator = _WithValidation(
            batch_size=batch_size, epochs=epochs, patience=patience, device=device, **options
        )

    def fit(self, train_set: Dictionary, val_set: Dictionary | None = None) -> Self:
        """Train; without `val_set` some of the training samples choose the best epoch."""
        X, y, times = self._open(train_set, "train_set", labelled=True)
        self.estimator._first = None
        if val_set is not None:
            more, more_y, more_times = self._open(val_set, "val_set", labelled=True)
            if (times is None) != (more_times is None):
                raise DataError("train_set, val_set: 'times' must stand in both or in neither")
            self.estimator._first = len(X)
            X, y = np.concatenate([X, more]), np.concatenate([y, more_y])
            times = None if times is None else np.concatenate([times, more_times])
        classes = len(np.unique(np.asarray(y)[stated(y)]))
        if classes > self.n_classes:
            raise DataError(f"y: found {classes} classes, wanted n_classes = {self.n_classes}")
        self.estimator.fit({"X": X}, y, times=times)
        return self

    def predict(self, test_set: Dictionary) -> dict[str, NDArray[Any]]:
        """{"classification": classes (n,), "classification_proba": probabilities (n, k)}."""
        probabilities = self.predict_proba(test_set)
        classes = self.estimator.classes_[probabilities.argmax(axis=1)]
        return {"classification": classes, "classification_proba": probabilities}

    def predict_proba(self, test_set: Dictionary) -> NDArray[np.float64]:
        X, _, times = self._open(test_set, "test_set", labelled=False)
        return self.estimator.predict_proba({"X": X}, times=times)

    def _open(self, data: Dictionary, name: str, *, labelled: bool) -> tuple[NDArray[Any], Any, Any]:
        wanted = ("X", "y") if labelled else ("X",)
        for key in wanted:
            if key not in data:
                raise DataError(f"{name}: found keys {sorted(data)}, wanted {', '.join(wanted)}")
        X = np.asarray(data["X"], np.float64)
        if X.ndim != 3 or X.shape[1:] != (self.n_steps, self.n_features):
            raise DataError(f"{name}: X has shape {X.shape}, wanted (samples, {self.n_steps}, {self.n_features})")
        if len(X) == 0:
            raise DataError(f"{name}: holds no sample")
        # Before sets are joined, where one that is too short would take the labels of the next.
        for key in ("y", "times"):
            if data.get(key) is not None and len(data[key]) != len(X):
                raise DataError(f"{name}: found {len(data[key])} entries of {key!r} for {len(X)} samples")
        return X, data.get("y"), data.get("times")


class _WithValidation(TIDESClassifier):
    """The series from the first of the validation set on choose the best epoch."""

    _first: int | None = None

    def _split(self, data: IrregularDataset, seed: int) -> Split:
        if self._first is None:
            return super()._split(data, seed)
        # Arrays number their series; those without a label may have been left out.
        chooses = np.array(data.ids) >= self._first
        self.series_ = {"training": int((~chooses).sum()), "validation": int(chooses.sum())}
        return Split(data[~chooses], data[chooses], seed)
