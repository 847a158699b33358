"""Ask any model about a batch in the same way, and choose one of its answers."""

import inspect
from collections.abc import Callable
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from tides.data.batch import IrregularBatch
from tides.errors import ConfigError, DataError, ShapeError
from tides.nn.heads import SequenceHead
from tides.training.tasks import Forecasting, Regression

Target = int | tuple[int, ...] | Callable[[Tensor], Tensor] | None


def ask(model: nn.Module, batch: IrregularBatch) -> Tensor:
    """The model's answers: (b, k) for series, (b, q, c) if the batch has query times."""
    asked = batch.query_times is not None
    if not asked and "query_times" in inspect.signature(model.forward).parameters:
        raise DataError("batch: found no query times; a forecaster needs the times to answer at")
    if asked and isinstance(model, SequenceHead):
        raise DataError(
            f"batch: found query times, wanted none: a {type(model).__name__} answers once for every series"
        )
    task = Forecasting() if asked else Regression()
    return task.predict(model, batch)


def choose(answers: Tensor, target: Target) -> Callable[[Tensor], Tensor]:
    """A function from answers to one number per series.

    `target` indexes the axes behind the batch: a class or output, (query, channel) of a forecast; a function of the
    answers is used as it is. None is the largest answer of each series, for a classifier the class it predicts.
    """
    if callable(target):
        return target
    if target is None:
        if answers.ndim != 2:
            raise ShapeError(f"target: answers have shape {tuple(answers.shape)}; say which (query, channel) is meant")
        index = answers.argmax(-1, keepdim=True)
        return lambda found: found.gather(1, index).squeeze(1)
    place = target if isinstance(target, tuple) else (target,)
    sizes = tuple(answers.shape[1:])
    whole = all(is_whole(i) for i in place)
    if not whole or len(place) != len(sizes) or any(not -n <= i < n for i, n in zip(place, sizes, strict=True)):
        raise ShapeError(f"target: found {target!r}, wanted an index into answers of shape (b, {str(sizes)[1:-1]})")
    where: tuple[slice | int, ...] = (slice(None), *(int(i) for i in place))
    return lambda found: found[where]


def is_whole(value: Any) -> bool:
    """Whether this is an integer, of Python or of numpy."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def numbers(values: Any, name: str, wanted: str, beside: Tensor) -> Tensor:
    """A list, an array or a tensor of numbers in float64, on the device of `beside`."""
    try:
        return torch.as_tensor(values, dtype=torch.float64, device=beside.device)
    except (TypeError, ValueError, RuntimeError):
        raise DataError(f"{name}: found {values!r}, wanted {wanted}") from None


def require_evaluation(model: nn.Module, batch: IrregularBatch) -> None:
    """Check for a network and a batch; in training mode the answer for a series would depend on its neighbours."""
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model: found {type(model).__name__}, wanted a network (of an estimator: its `model_`)")
    if not isinstance(batch, IrregularBatch):
        raise ConfigError(f"batch: found {type(batch).__name__}, wanted what `tides.data.collate` makes of series")
    if model.training:
        raise ShapeError("model: found training mode, wanted model.eval(): explanations are of one series at a time")


def only_series(batch: IrregularBatch, series: int) -> IrregularBatch:
    """One series as a batch, without its padding."""
    if not is_whole(series) or not -len(batch) <= series < len(batch):
        raise ShapeError(f"series: found {series!r}, wanted an index into {len(batch)} series")
    one = batch.rows(torch.tensor([int(series) % len(batch)]))
    n = int(one.lengths[0])
    cut = {name: getattr(one, name)[:, :n] for name in ("values", "times", "gaps", "observed", "valid")}
    return IrregularBatch(**(vars(one) | cut))
