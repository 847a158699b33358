"""What the estimators share: reading X, building and training the network, answering, saving."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tides.data.arrays import Layout
from tides.data.attributes import LabelKind
from tides.data.dataset import IrregularDataset
from tides.data.ingest import Unlabelled
from tides.data.new_categories import NewCategories
from tides.data.pivot import Duplicates
from tides.data.schema import Schema
from tides.data.series import unmasked
from tides.errors import ConfigError, DataError
from tides.estimators.inputs import Columns, Labels, is_matrix, is_table, read_series
from tides.estimators.recipe import RECIPE, Split, network_config, split_off, train_config
from tides.estimators.run_folder import SharedFolder, run_folder
from tides.estimators.scikit import (
    BaseEstimator,
    check_consistent_length,
    check_is_fitted,
    check_random_state,
    validate_data,
)
from tides.nn.config import TIDESConfig
from tides.training.engine import fit
from tides.training.evaluation import load_batch
from tides.training.state import Row
from tides.training.tasks import Task
from tides.training.threads import worthwhile_threads
from tides.training.world import check_device, local_device

Array = NDArray[Any]
# Padded steps of a batch in prediction: one very long series must not lengthen many others.
_MOST_STEPS = 1 << 18


class TIDESEstimator(BaseEstimator):  # type: ignore[misc]
    """Constructors only store arguments; everything learnt ends with an underscore."""

    _label_kind: ClassVar[LabelKind] = "auto"
    _calibration: ClassVar[str] = "all"
    """What `fit` reads from the training data into the network; "none" where `_network` does so itself."""
    _network_kind: ClassVar[type[nn.Module]]
    model_: nn.Module
    schema_: Schema
    task_: Task
    history_: list[Row]
    series_: dict[str, int]
    """How many series trained, validated and (forecaster) calibrated it."""

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
        device: str = "cpu",
        folder: str | Path | None = None,
        verbose: bool | Callable[[float], None] = False,
        random_state: Any = None,
    ) -> None:
        self.id = id
        self.time = time
        self.label = label
        self.weight = weight
        self.channel = channel
        self.value = value
        self.channels = channels
        self.static = static
        self.group = group
        self.unit = unit
        self.duplicates = duplicates
        self.unlabelled = unlabelled
        self.new_categories = new_categories
        self.layout = layout
        self.hidden_size = hidden_size
        self.state_size = state_size
        self.depth = depth
        self.dropout = dropout
        self.input_drop = input_drop
        self.summary = summary
        self.model = model
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.patience = patience
        self.validation = validation
        self.training = training
        self.device = device
        self.folder = folder
        self.verbose = verbose
        self.random_state = random_state

    def save(self, folder: str | Path) -> Path:
        """Write the fitted estimator to `folder`; the layout is described in `tides.estimators`."""
        from tides.estimators.folder import save_estimator

        check_is_fitted(self)
        return save_estimator(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The estimator that `save` wrote."""
        from tides.estimators.folder import load_estimator

        found = load_estimator(folder)
        if not isinstance(found, cls):
            raise ConfigError(f"{folder}: holds a {type(found).__name__}, wanted a {cls.__name__}")
        return found

    def to_dataset(
        self, X: Any, *, times: Any = None, labelled: bool = False, weighted: bool = False
    ) -> IrregularDataset:
        """`X` as this estimator reads it: `predict` answers for `to_dataset(X).ids`, in that order.

        With `labelled`, the label column of a table is read too, with `weighted` its column of weights.
        """
        check_is_fitted(self)
        return self._read(X, times, labels="required" if labelled else "ignored", fitted=True, weights=weighted)

    def __sklearn_clone__(self) -> Self:
        clone: Self = super().__sklearn_clone__()
        if isinstance(self.folder, str | Path):
            clone.folder = SharedFolder(self.folder)
        return clone

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        return tags

    def _read(self, X: Any, times: Any, *, labels: Labels, fitted: bool, weights: bool = False) -> IrregularDataset:
        columns = Columns.of(self)
        without_columns = is_table(X) and not columns.given and not isinstance(X, (str, Path))
        if without_columns or (not is_table(X) and is_matrix(X)):
            X = unmasked(X) if isinstance(X, np.ma.MaskedArray) else X
            X = validate_data(self, X, reset=not fitted, ensure_all_finite="allow-nan", dtype=[np.float64, np.float32])
        elif not fitted:
            # They belong to an earlier fit on a matrix.
            for name in ("n_features_in_", "feature_names_in_"):
                if hasattr(self, name):
                    delattr(self, name)
        schema = self.schema_ if fitted else None
        data = read_series(
            X, times, columns, labels=labels, label_kind=self._label_kind, schema=schema, weights=weights
        )
        if len(data) == 0:
            raise DataError("X: holds no series; wanted at least one")
        empty = np.flatnonzero(data.lengths == 0)
        if len(empty):
            raise DataError(f"series {data.ids[int(empty[0])]!r} has no time step")
        if not fitted and hasattr(self, "model_"):
            # If this fit fails, the network of an earlier one must not answer with the new names and classes.
            del self.model_
        return data

    def _check_count(self, data: IrregularDataset, y: Any) -> None:
        if y is not None:
            check_consistent_length(range(len(data)), y)
        if len(data) < 2:
            raise DataError(
                f"X: found 1 sample (n_samples=1); {type(self).__name__} needs at least two series. tides.data.pieces "
                "cuts a long series, and TIDESForecaster(cut='7d') learns from its pieces"
            )

    def _fit_network(self, data: IrregularDataset) -> Split:
        """Split, build, calibrate and train on series that carry their labels."""
        seed, device = self._draw_seed(), local_device(self.device)
        check_device(device)
        split = self._split(data, seed)
        config = network_config(self, split.training, split.validation, split.calibration)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = self._network(config, split.training).to(device)
        self.task_ = self._task(split.training)
        parts = self._parts(split)
        settings = train_config(self, len(parts[0]), seed, validated=parts[1] is not None)
        folder = run_folder(self.folder, network, self.task_, parts, settings)
        progress = self.verbose if callable(self.verbose) else bool(self.verbose)
        result = fit(network, self.task_, parts, settings, folder=folder, progress=progress)
        self.model_ = network.eval()
        self.seconds_ = result.seconds
        self.history_ = result.history
        self.best_epoch_ = result.best_epoch
        self.n_iter_ = result.epochs
        return split

    def _draw_seed(self) -> int:
        try:
            generator = check_random_state(self.random_state)
        except ValueError as error:
            raise ConfigError(f"random_state: found {self.random_state!r}, wanted a whole number or None") from error
        given = isinstance(self.random_state, Integral)
        if self.folder is not None and not given:
            raise ConfigError(
                f"random_state: found {self.random_state!r}, wanted a whole number: a run in `folder` can only "
                "be resumed with the same seed"
            )
        return int(self.random_state if given else generator.randint(2**31 - 1))

    def _split(self, data: IrregularDataset, seed: int) -> Split:
        train, val = split_off(data, self.validation, seed)
        self.series_ = {"training": len(train), "validation": 0 if val is None else len(val)}
        return Split(train, val, seed)

    def _parts(self, split: Split) -> tuple[IrregularDataset, IrregularDataset | None]:
        """The series that the network trains on, and those that choose the best epoch."""
        return split.training, split.validation

    @abstractmethod
    def _network(self, config: TIDESConfig, train: IrregularDataset) -> nn.Module:
        """A new network with the scales of these training series."""

    @abstractmethod
    def _task(self, train: IrregularDataset) -> Task:
        """The task that the network learns."""

    @abstractmethod
    def _facts(self) -> dict[str, Any]:
        """What `estimator.json` holds besides parameters and schema."""

    @abstractmethod
    def _width(self, facts: dict[str, Any]) -> int:
        """The number of outputs of a network with these facts; needs `schema_`."""

    @abstractmethod
    def _restore(self, facts: dict[str, Any]) -> None:
        """The inverse of `_facts`, once `model_` and `schema_` are there."""

    @torch.no_grad()
    def _outputs(self, data: IrregularDataset, batch_size: int = 64) -> Iterator[Tensor]:
        """The network's answers, batch by batch.

        On a CPU they are computed in double precision, so that an answer does not depend on who else is in the batch.
        """
        network = self.model_
        if next(network.parameters()).device.type == "cpu":
            network = deepcopy(network).double()
        network.eval()
        for rows in _batches(data.lengths, batch_size):
            part = data[rows]
            with worthwhile_threads(network, data, batch_size):
                output = self.task_.predict(network, load_batch(network, part))
            finite = torch.isfinite(output).flatten(1).all(1)
            if not finite.all():
                one = part[int(finite.int().argmin())]
                raise DataError(
                    f"series {one.id!r}: the answer is not finite; wanted values and times as in training, "
                    f"found values up to {np.abs(one.values[one.observed]).max(initial=0):.3g}"
                )
            yield output


def _batches(lengths: NDArray[np.int64], most: int) -> Iterator[slice]:
    """Groups of neighbouring series that are computed together, limited in number and in padded steps."""
    begin, longest = 0, 0
    for i, length in enumerate(lengths.tolist()):
        longest = max(longest, length)
        if i > begin and (i - begin == most or (i - begin + 1) * longest > _MOST_STEPS):
            yield slice(begin, i)
            begin, longest = i, length
    yield slice(begin, len(lengths))
