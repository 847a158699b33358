"""How tasks call models, and the errors if the two do not fit together."""

import inspect
import math
from typing import Any

from torch import Tensor, nn

from tides.data.batch import IrregularBatch
from tides.errors import ConfigError, ShapeError


def call_on_series(task: Any, model: nn.Module, batch: IrregularBatch, observed: Tensor) -> Tensor:
    """One answer for each series, from what was `observed`. A model that stores a first-gap policy forms its own gaps;
    any other is given the batch's, and one with a summary is told what there is besides."""
    form: Any = getattr(model, "gaps", None)
    gaps = batch.gaps if form is None else form(batch.times, batch.valid)
    named = {"observed": observed, "valid": batch.valid, **_static(batch)}
    if observed is not batch.observed and getattr(model, "summary", None) is not None:
        named["recorded"] = batch.observed
    return _call(task, model, batch.values, gaps, **named)


def call_at_queries(task: Any, model: nn.Module, batch: IrregularBatch, observed: Tensor) -> Tensor:
    """One answer for each query, from what was `observed`."""
    tensors = (batch.values, batch.times, observed, batch.query_times)
    return _call(task, model, *tensors, valid=batch.valid, query_valid=batch.query_valid)


def check_takes_series(task: Any, model: nn.Module) -> None:
    """Raise if `call_on_series` is bound to fail, before the model is called."""
    _check(task, model, (None,) * 2, {"observed": None, "valid": None})


def check_takes_queries(task: Any, model: nn.Module) -> None:
    """Raise if `call_at_queries` is bound to fail, before the model is called."""
    _check(task, model, (None,) * 4, {"valid": None, "query_valid": None})


def _call(task: Any, model: nn.Module, *tensors: Tensor | None, **named: Tensor | None) -> Tensor:
    try:
        output = model(*tensors, **named)
    except TypeError:
        _check(task, model, tensors, named)
        raise
    if not isinstance(output, Tensor):
        raise ShapeError(f"output: {type(model).__name__} gave a {type(output).__name__}, wanted one tensor")
    return output


def _static(batch: IrregularBatch) -> dict[str, Tensor]:
    """Static covariates as models take them: NaN where nothing was recorded, which is not the same as 0."""
    if batch.static is None or batch.static_observed is None:
        return {} if batch.static is None else {"static": batch.static}
    return {"static": batch.static.masked_fill(~batch.static_observed, math.nan)}


def _check(task: Any, model: nn.Module, tensors: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Raise if the call itself does not fit, as opposed to an error inside the model."""
    try:
        inspect.signature(model.forward).bind(*tensors, **named)
    except TypeError as error:
        raise ConfigError(
            f"task: {type(task).__name__} cannot call a {type(model).__name__}: {error}; wanted a model for this "
            "task, or the task of this model"
        ) from None
