"""Tasks: how a batch becomes a model's call, a loss and a score. The engine knows tasks, tasks know call contracts."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tides.data.batch import IrregularBatch
from tides.data.dataset import IrregularDataset
from tides.errors import ConfigError, DataError, ShapeError
from tides.functional.gaps import values_can_be_checked
from tides.training.calibration import calibrate, label_moments, target_moments
from tides.training.calls import call_at_queries, call_on_series, check_takes_queries, check_takes_series
from tides.training.predictions import CLASS_METRICS, ClassPredictions, NumberPredictions, Predictions

# A predicted standard deviation never falls below this share of the target's scale: exact fits stay finite.
_SMALLEST_SPREAD = 1e-3


class Loss(NamedTuple):
    """A sum over scored entries and their weight (usually their number), so that batches of any size add up
    correctly.
    """

    total: Tensor
    weight: Tensor


class Task(Protocol):
    """What `fit` must know about a problem."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the validation metrics, besides `loss`."""

    def calibrate(self, model: nn.Module, train: IrregularDataset, *, values: bool) -> None:
        """Store the scales of the training data in the model: that of time and, with `values`, those of the
        channels.
        """

    def predict(self, model: nn.Module, batch: IrregularBatch) -> Tensor:
        """The model's raw output for this batch."""

    def loss(self, output: Tensor, batch: IrregularBatch) -> Loss:
        """What training minimises; weighted by `batch.weights` if there are any."""

    def score(self, output: Tensor, batch: IrregularBatch) -> Predictions:
        """The output with the truth, ready for the metrics, and the weights of the series if they have any."""


@dataclass(frozen=True)
class Classification:
    """Cross-entropy of logits (b, k) against class indices, optionally with one weight per class."""

    class_weights: tuple[float, ...] | None = None
    input_drop: float = 0.0
    """Probability with which an observed value is hidden from a model while it is trained: every epoch sees other gaps
    in the same series, which keeps a model of few series from learning them by heart."""

    def __post_init__(self) -> None:
        _check_drop(self.input_drop)
        weights = _numbers("class_weights", self.class_weights, "finite numbers ≥ 0", lambda x: x >= 0)
        if weights is not None and not any(weights):
            raise ConfigError("class_weights: found zeros only, wanted at least one class that counts")
        object.__setattr__(self, "class_weights", weights)

    @classmethod
    def balanced(cls, train: IrregularDataset, *, input_drop: float = 0.0) -> Self:
        """Weights n/(k·n_c), under which every class counts the same; weights of series are taken into account."""
        labels = train.labels
        if labels is None or labels.dtype != np.int64:
            raise DataError("class weights: the training data has no class labels")
        counts = np.bincount(labels, train.weights, minlength=len(train.class_names or ()))
        if not counts.all():
            raise DataError(f"class weights: no training series is of class {int(np.argmin(counts))}")
        return cls(tuple((counts.sum() / (len(counts) * counts)).tolist()), input_drop)

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(CLASS_METRICS)

    def calibrate(self, model: nn.Module, train: IrregularDataset, *, values: bool) -> None:
        check_takes_series(self, model)
        calibrate(model, train, values=values)

    def predict(self, model: nn.Module, batch: IrregularBatch) -> Tensor:
        return call_on_series(self, model, batch, _seen(self, model, batch))

    def loss(self, output: Tensor, batch: IrregularBatch) -> Loss:
        labels = _labels(output, batch)
        weights = self._weights(output)[labels]
        return _weighed(F.cross_entropy(_full(output), labels, reduction="none") * weights, weights, batch)

    def score(self, output: Tensor, batch: IrregularBatch) -> Predictions:
        probabilities = output.double().softmax(-1)
        labels = _labels(output, batch).numpy(force=True)
        return ClassPredictions(probabilities.numpy(force=True), labels, _weights_of(batch))

    def _weights(self, output: Tensor) -> Tensor:
        k = output.shape[-1]
        if self.class_weights is None:
            return torch.ones(k, device=output.device)
        if len(self.class_weights) != k:
            raise ConfigError(f"class_weights: found {len(self.class_weights)}, wanted one for each of {k} classes")
        return _constant(self.class_weights, output.device)


@dataclass(frozen=True)
class _Numbers(ABC):
    """Squared error or Gaussian likelihood of numbers, each channel's error divided by its `scale`.

    With `gaussian` the model gives twice as many channels as there are targets: means, then numbers whose softplus is
    the standard deviation in units of `scale`. Losses and metrics are in units of `scale` (None: the data's own).
    """

    scale: tuple[float, ...] | None = None
    gaussian: bool = False
    input_drop: float = 0.0
    """As in `Classification`."""

    def __post_init__(self) -> None:
        _check_drop(self.input_drop)
        object.__setattr__(self, "scale", _numbers("scale", self.scale, "finite numbers > 0", lambda x: x > 0))

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("mse", "mae", "nll") if self.gaussian else ("mse", "mae")

    def moments(self, output: Tensor) -> tuple[Tensor, Tensor | None]:
        """Predicted means and standard deviations (None unless `gaussian`) in the data's own units."""
        if not self.gaussian:
            return output, None
        if output.shape[-1] % 2:
            raise ShapeError(f"output: found {output.shape[-1]} channels, wanted a mean and a spread for each target")
        means, raw = output.chunk(2, dim=-1)
        return means, (F.softplus(raw) + _SMALLEST_SPREAD) * self._scale(means)

    def loss(self, output: Tensor, batch: IrregularBatch) -> Loss:
        means, spreads = self.moments(output)
        scale = self._scale(means)
        targets, scored = self._targets(means, batch)
        error = _full((means - targets) / scale).masked_fill(~scored, 0)
        if spreads is None:
            return _weighed(error.square(), scored, batch)
        spread = _full(spreads / scale)
        nll = spread.log() + 0.5 * (error / spread).square() + 0.5 * float(np.log(2 * np.pi))
        return _weighed(nll.masked_fill(~scored, 0), scored, batch)

    def score(self, output: Tensor, batch: IrregularBatch) -> Predictions:
        means, spreads = self.moments(output)
        targets, scored = self._targets(means, batch)
        scale = self._scale(means).double()

        def pick(x: Tensor) -> Any:
            return (x.double() / scale)[scored].numpy(force=True)

        owners = scored.nonzero()[:, 0].numpy(force=True)
        found = (pick(means), pick(targets), None if spreads is None else pick(spreads))
        return NumberPredictions(*found, owners, len(batch), _weights_of(batch))

    def _scale(self, means: Tensor) -> Tensor:
        c = means.shape[-1]
        if self.scale is None:
            return torch.ones(c, device=means.device)
        if len(self.scale) != c:
            raise ConfigError(f"scale: found {len(self.scale)} numbers, wanted one for each of {c} target channels")
        return _constant(self.scale, means.device)

    def _output_moments(self, moments: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Shift and scale of a model's output channels; those of the spreads stay as they are."""
        shift, scale = moments
        if self.gaussian:
            shift, scale = torch.cat([shift, torch.zeros_like(shift)]), torch.cat([scale, torch.ones_like(scale)])
        return shift, scale

    @abstractmethod
    def _targets(self, means: Tensor, batch: IrregularBatch) -> tuple[Tensor, Tensor]:
        """The truth in the shape of the means, and a mask of the entries that count."""


@dataclass(frozen=True)
class Forecasting(_Numbers):
    """Values (b, q, c) at query times, scored where a target was observed."""

    @classmethod
    def standardised(cls, train: IrregularDataset, *, gaussian: bool = False) -> Self:
        """A task that measures errors in standard deviations of the training targets, so that every channel counts the
        same.
        """
        return cls(tuple(target_moments(train)[1].tolist()), gaussian)

    def calibrate(self, model: nn.Module, train: IrregularDataset, *, values: bool) -> None:
        check_takes_queries(self, model)
        outputs = self._output_moments(target_moments(train)) if values else None
        calibrate(model, train, values=values, outputs=outputs)

    def predict(self, model: nn.Module, batch: IrregularBatch) -> Tensor:
        return call_at_queries(self, model, batch, _seen(self, model, batch))

    def _targets(self, means: Tensor, batch: IrregularBatch) -> tuple[Tensor, Tensor]:
        if batch.targets is None or batch.target_observed is None:
            raise DataError("forecasting: the series have no query_times and target; see data.forecast_windows")
        if means.shape != batch.targets.shape:
            raise ShapeError(f"output: found {tuple(means.shape)}, wanted (b, q, c) = {tuple(batch.targets.shape)}")
        return batch.targets, batch.target_observed


@dataclass(frozen=True)
class Regression(_Numbers):
    """Numbers (b, t) for every series."""

    @classmethod
    def standardised(cls, train: IrregularDataset, *, gaussian: bool = False, input_drop: float = 0.0) -> Self:
        """A task that measures errors in standard deviations of the training labels."""
        return cls(tuple(label_moments(train)[1].tolist()), gaussian, input_drop)

    def calibrate(self, model: nn.Module, train: IrregularDataset, *, values: bool) -> None:
        check_takes_series(self, model)
        outputs = self._output_moments(label_moments(train)) if values else None
        calibrate(model, train, values=values, outputs=outputs)

    def predict(self, model: nn.Module, batch: IrregularBatch) -> Tensor:
        return call_on_series(self, model, batch, _seen(self, model, batch))

    def _targets(self, means: Tensor, batch: IrregularBatch) -> tuple[Tensor, Tensor]:
        if batch.targets is None or batch.target_observed is not None:
            raise DataError("regression: the series have no labels")
        targets = batch.targets.reshape(len(batch), -1).to(means.dtype)
        if means.shape != targets.shape:
            raise ShapeError(f"output: found {tuple(means.shape)}, wanted (b, t) = {tuple(targets.shape)}")
        return targets, torch.ones_like(targets, dtype=torch.bool)


def _seen(task: "Classification | _Numbers", model: nn.Module, batch: IrregularBatch) -> Tensor:
    """What a model sees of the observed values: in training, a different share of them is hidden every time."""
    observed = batch.observed
    if not (task.input_drop and model.training):
        return observed
    return observed & (torch.rand(observed.shape, device=observed.device) >= task.input_drop)


def _check_drop(input_drop: float) -> None:
    if not 0 <= input_drop < 1:
        raise ConfigError(f"input_drop: found {input_drop}, wanted a probability in [0, 1)")


def _numbers(name: str, given: Any, wanted: str, allows: Callable[[float], bool]) -> tuple[float, ...] | None:
    """The numbers given for every class or channel, as a tuple; arrays and lists are accepted."""
    try:
        found = None if given is None else tuple(map(float, given))
    except (TypeError, ValueError):
        raise ConfigError(f"{name}: found {given!r}, wanted several numbers") from None
    if found is not None and not all(math.isfinite(x) and allows(x) for x in found):
        raise ConfigError(f"{name}: found {found}, wanted {wanted}")
    return found


@cache
def _constant(numbers: tuple[float, ...], device: torch.device) -> Tensor:
    """These numbers on a device, copied there once: a step that a CUDA graph repeats cannot copy from the host."""
    with torch.inference_mode(False):
        return torch.tensor(numbers, device=device)


def _weighed(losses: Tensor, weights: Tensor, batch: IrregularBatch) -> Loss:
    """The weighted sum of the losses (b, …) of entries, including the weights of their series if they have some."""
    if batch.weights is None:
        return Loss(losses.sum(), weights.sum())
    of_series = batch.weights.view(-1, *[1] * (losses.ndim - 1))
    return Loss((losses * of_series).sum(), (weights * of_series).sum())


def _weights_of(batch: IrregularBatch) -> Any:
    return None if batch.weights is None else batch.weights.double().numpy(force=True)


def _full(x: Tensor) -> Tensor:
    """Losses in full precision, so that sums are exact enough under autocast too."""
    return x if x.dtype == torch.float64 else x.float()


def _labels(output: Tensor, batch: IrregularBatch) -> Tensor:
    labels = batch.targets
    if labels is None or labels.is_floating_point() or labels.ndim != 1:
        found = "none" if labels is None else f"{labels.dtype} of shape {tuple(labels.shape)}"
        raise DataError(f"labels: found {found}, wanted one class index per series")
    if output.ndim != 2 or len(output) != len(labels):
        raise ShapeError(f"output: found {tuple(output.shape)}, wanted logits (b, k) with b = {len(labels)}")
    k = output.shape[-1]
    if values_can_be_checked(labels) and not bool(((labels >= 0) & (labels < k)).all()):
        raise DataError(f"labels: found classes {int(labels.min())} to {int(labels.max())}, the model has {k}")
    return labels
