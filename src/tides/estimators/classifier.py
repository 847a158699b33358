"""`TIDESClassifier`: to which class does a series belong?"""

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from torch import nn

from tides.data.arrays import Layout
from tides.data.attributes import LabelKind, class_name
from tides.data.dataset import IrregularDataset
from tides.data.ingest import Unlabelled
from tides.data.new_categories import NewCategories
from tides.data.pivot import Duplicates
from tides.errors import ConfigError, DataError
from tides.estimators.inputs import has_text, is_table
from tides.estimators.labels import is_missing, refuse_dates
from tides.estimators.recipe import RECIPE
from tides.estimators.scikit import (
    ClassifierMixin,
    assert_all_finite,
    check_classification_targets,
    check_is_fitted,
    column_or_1d,
)
from tides.estimators.sequences import Labelled, SequenceEstimator, static_size
from tides.nn.config import TIDESConfig
from tides.nn.heads import SequenceClassifier
from tides.training.tasks import Classification


class TIDESClassifier(ClassifierMixin, SequenceEstimator):  # type: ignore[misc]
    """Classifies irregular, partly observed series; NaN is missing.

    X is an `IrregularDataset`; a table (a frame or the path of a file; `id` and `time` name its columns, and `label`,
    `static`, `group`, or `channel` and `value` further ones); an array (cases, channels, length); a list of arrays
    (channels, length_i); a PyPOTS dictionary; or a matrix whose rows are series of one channel. `times=` gives arrays
    their times: one vector for all, or one for each; without it they are 0, 1, 2, ….

    `tides.estimators.recipe` explains the defaults. `model` and `training` are further fields of `TIDESConfig` and
    `TrainConfig`. `class_weight` is None, "balanced" or {class: weight}; weights of series (`sample_weight` of `fit`, a
    data set's own, or the column `weight`) multiply it. `unlabelled="drop"` leaves out series without a label. With
    `folder`, an interrupted `fit` can be resumed (give `random_state` a number).

    Learnt: `classes_`, `model_` (a `tides.SequenceClassifier`), `schema_`, `history_`, `best_epoch_`.
    """

    _label_kind: ClassVar[LabelKind] = "class"
    _network_kind: ClassVar[type[nn.Module]] = SequenceClassifier
    classes_: NDArray[Any]

    def __init__(
        self,
        *,
        id: str | None = None,
        time: str | None = None,
        label: str | None = None,
        weight: str | None = None,
        channel: str | None = None,
        value: str | None = None,
        channels: Sequence[str] | None = None,
        static: Sequence[str] | None = None,
        group: str | None = None,
        unit: str | None = None,
        duplicates: Duplicates = "error",
        unlabelled: Unlabelled = "error",
        new_categories: NewCategories = "error",
        layout: Layout | None = None,
        hidden_size: int = RECIPE.hidden_size,
        state_size: int = RECIPE.state_size,
        depth: int = RECIPE.depth,
        dropout: float = RECIPE.dropout,
        input_drop: float = RECIPE.input_drop,
        summary: bool = RECIPE.summary,
        model: Mapping[str, Any] | None = None,
        epochs: int = RECIPE.epochs,
        batch_size: int | None = None,
        lr: float = RECIPE.lr,
        weight_decay: float = RECIPE.weight_decay,
        patience: int | None = RECIPE.patience,
        validation: float = RECIPE.validation,
        training: Mapping[str, Any] | None = None,
        class_weight: Literal["balanced"] | Mapping[Any, float] | None = None,
        device: str = "cpu",
        folder: str | Path | None = None,
        verbose: bool | Callable[[float], None] = False,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            id=id,
            time=time,
            label=label,
            weight=weight,
            channel=channel,
            value=value,
            channels=channels,
            static=static,
            group=group,
            unit=unit,
            duplicates=duplicates,
            unlabelled=unlabelled,
            new_categories=new_categories,
            layout=layout,
            hidden_size=hidden_size,
            state_size=state_size,
            depth=depth,
            dropout=dropout,
            input_drop=input_drop,
            summary=summary,
            model=model,
            epochs=epochs,
            batch_size=batch_size,
            lr=lr,
            weight_decay=weight_decay,
            patience=patience,
            validation=validation,
            training=training,
            device=device,
            folder=folder,
            verbose=verbose,
            random_state=random_state,
        )
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any = None, *, times: Any = None, sample_weight: Any = None) -> Self:
        """Train on n series X with classes y (n,): numbers, truth values or text. Tables, data sets and
        dictionaries may have their own labels.

        `sample_weight` (n,) says how much each series counts in the loss and in the choice of the epoch; it is matched
        to the series as y is, and a weight of 0 leaves a series out.

        Unreadable input raises `DataError` naming column, row or series; a wrong argument raises `ConfigError`.
        """
        data, truth, weights, stated = self._truth(X, y, times, sample_weight, fitted=False)
        if truth is None:
            raise DataError(
                f"{type(self).__name__} requires y to be passed, but the target y is None (tables may name a label=)"
            )
        if stated:
            self._check_count(data, truth)
            truth = _stated(truth, warn=True)
            assert_all_finite(truth, input_name="y")
            check_classification_targets(truth)
            self.classes_, codes = np.unique(truth, return_inverse=True)
        else:
            names = data.class_names
            found, codes = np.unique(truth, return_inverse=True)
            text = is_table(X) and self.label is not None and has_text(X, self.label)
            self.classes_ = _natural([names[int(i)] for i in found], text=text) if names is not None else found
        if len(self.classes_) < 2:
            what = "y" if self.label is None else f"label {self.label!r}"
            raise DataError(
                f"{what}: all {len(data)} series have one class, {self.classes_.tolist()[0]!r}; wanted two or more"
            )
        self._check_count(data, None)
        self._train(data, codes.tolist(), weights)
        return self

    def predict(self, X: Any, *, times: Any = None) -> NDArray[Any]:
        """The most probable class of each series (n,), in the order of `to_dataset(X).ids`."""
        probabilities = self.predict_proba(X, times=times)
        found: NDArray[Any] = self.classes_[probabilities.argmax(axis=1)]
        return found

    def predict_proba(self, X: Any, *, times: Any = None) -> NDArray[np.float64]:
        """Probabilities (n, k) of the classes, in the order of `classes_`."""
        check_is_fitted(self)
        probabilities: NDArray[np.float64] = self._answers(X, times).softmax(-1).numpy()
        return probabilities

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, *, times: Any = None) -> float:
        """Accuracy; all series count equally unless `sample_weight` says otherwise."""
        check_is_fitted(self)
        found = self._truth(X, y, times, sample_weight, fitted=True)
        hits = self.predict(found.data) == self._classes(found)
        return float(np.average(hits, weights=found.weights))

    def true_classes(self, X: Any, y: Any = None, *, times: Any = None) -> NDArray[Any]:
        """The classes from y, the table's label column or the series, as members of `classes_`."""
        return self._classes(self._truth(X, y, times, None, fitted=True))

    def _classes(self, found: Labelled) -> NDArray[Any]:
        data, truth, _, stated = found
        if truth is None:
            raise DataError(f"{type(self).__name__}.score requires y to be passed, but the target y is None")
        names = None if stated else data.class_names
        classes = self._by_name(truth, names) if names else _stated(truth)
        if len(classes) and not set(classes.tolist()) & set(self.classes_.tolist()):
            raise DataError(
                f"{'y' if stated else 'label'}: found {classes.tolist()[0]!r}, and no class that the model knows; "
                f"wanted some of {self.classes_.tolist()}"
            )
        return classes

    def _by_name(self, codes: NDArray[Any], names: Sequence[str]) -> NDArray[Any]:
        """The classes behind a data set's codes, or the codes themselves if the model learnt those."""
        known = {class_name(one): one for one in self.classes_.tolist()}
        if not known.keys() & set(names) and self.classes_.tolist() == list(range(len(names))):
            return codes
        stated = [known.get(name, name) for name in (names[int(i)] for i in codes)]
        return np.array(stated, None if set(stated) <= set(known.values()) else object)

    def _network(self, config: TIDESConfig, train: IrregularDataset) -> nn.Module:
        return SequenceClassifier(config, len(self.classes_), static_size=static_size(train))

    def _task(self, train: IrregularDataset) -> Classification:
        if self.class_weight is None:
            return Classification(input_drop=self.input_drop)
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            return Classification.balanced(train, input_drop=self.input_drop)
        if not isinstance(self.class_weight, Mapping):
            raise ConfigError(f"class_weight: found {self.class_weight!r}, wanted 'balanced', a mapping or None")
        weights: dict[Any, Any] = {}
        for one in self.classes_.tolist():
            # Keys from a file or a command line are always text.
            key = one if one in self.class_weight else class_name(one)
            if key not in self.class_weight:
                raise ConfigError(f"class_weight: class {one!r} has no weight")
            weights[one] = self.class_weight[key]
        for one, weight in weights.items():
            if not isinstance(weight, Real) or not 0 <= float(weight) < np.inf:
                raise ConfigError(f"class_weight: found {weight!r} for class {one!r}, wanted a finite number ≥ 0")
        if not any(weights.values()):
            raise ConfigError("class_weight: found 0 for every class, wanted a weight above zero for some")
        return Classification(tuple(map(float, weights.values())), self.input_drop)

    def _facts(self) -> dict[str, Any]:
        return {"classes": self.classes_.tolist(), "class_dtype": self.classes_.dtype.str}

    def _width(self, facts: dict[str, Any]) -> int:
        return len(facts["classes"])

    def _restore(self, facts: dict[str, Any]) -> None:
        # Folders of earlier versions do not say what kind of numbers they were.
        self.classes_ = np.array(facts["classes"], facts.get("class_dtype"))
        self.task_ = Classification()


def _stated(y: Any, *, warn: bool = False) -> NDArray[Any]:
    """Classes (n,) as `y` states them, nothing missing, all of one kind."""
    refuse_dates(y)
    stated = np.asarray(column_or_1d(y, warn=warn))
    if stated.dtype == object:
        kinds: dict[bool, tuple[int, Any]] = {}
        for position, one in enumerate(stated):
            if is_missing(one):
                raise DataError(f"y: entry {position} is missing ({one!r}); wanted a class for every series")
            kinds.setdefault(isinstance(one, str), (position, one))
        if len(kinds) > 1:
            (first, one), (second, other) = kinds.values()
            raise DataError(f"y: found {one!r} in entry {first} and {other!r} in entry {second}, wanted one kind")
        if all(isinstance(one, Real | np.bool_) for one in stated):
            # Objects because something was missing, as pandas has truth values and whole numbers then.
            stated = np.array(stated.tolist())
    return stated


def _natural(names: Sequence[str], *, text: bool = False) -> NDArray[Any]:
    """Classes as they were in the data: numbers and truth values again, unless they were `text` there."""
    if text:
        return np.array(list(names))
    for kind in (int, float):
        try:
            numbers = [kind(name) for name in names]
        except ValueError:
            continue
        if [class_name(number) for number in numbers] == list(names):
            return np.array(numbers)
    if set(names) <= {"True", "False"}:
        return np.array([name == "True" for name in names])
    return np.array(list(names))
