"""One way to ask any model about a batch, and to say which of its answers is meant."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tides.data.batch import IrregularBatch
from tides.errors import ConfigError, ShapeError
from tides.training.tasks import Forecasting, Regression

Target = int | tuple[int, ...] | Callable[[Tensor], Tensor] | None


def ask(model: nn.Module, batch: IrregularBatch) -> Tensor:
    """The model's answers: (b, k) for series, (b, q, c) where the batch asks about query times."""
    task = Regression() if batch.query_times is None else Forecasting()
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
    place: tuple[int, ...] = target if isinstance(target, tuple) else (target,)
    sizes = tuple(answers.shape[1:])
    whole = all(isinstance(i, int) for i in place)
    if not whole or len(place) != len(sizes) or any(not -n <= i < n for i, n in zip(place, sizes, strict=True)):
        raise ShapeError(f"target: found {target!r}, wanted an index into answers of shape (b, {str(sizes)[1:-1]})")
    where: tuple[slice | int, ...] = (slice(None), *place)
    return lambda found: found[where]


def require_evaluation(model: nn.Module, batch: IrregularBatch) -> None:
    """A network and a batch; in training mode the answer for a series would depend on its neighbours."""
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model: found {type(model).__name__}, wanted a network (of an estimator: its `model_`)")
    if not isinstance(batch, IrregularBatch):
        raise ConfigError(f"batch: found {type(batch).__name__}, wanted what `tides.data.collate` makes of series")
    if model.training:
        raise ShapeError("model: found training mode, wanted model.eval(): explanations are of one series at a time")


def only_series(batch: IrregularBatch, series: int) -> IrregularBatch:
    """One series as a batch, without its padding."""
    if not -len(batch) <= series < len(batch):
        raise ShapeError(f"series: found {series}, wanted an index into {len(batch)} series")
    one = batch.rows(torch.tensor([series % len(batch)]))
    n = int(one.lengths[0])
    cut = {name: getattr(one, name)[:, :n] for name in ("values", "times", "gaps", "observed", "valid")}
    return IrregularBatch(**(vars(one) | cut))
