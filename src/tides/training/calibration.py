"""Scales of the training data, stored in the model before the first step."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tides.data.collation import collate
from tides.data.dataset import IrregularDataset
from tides.data.scaling import Scaling
from tides.errors import ConfigError, DataError

Moments = tuple[Tensor, Tensor]
# Series whose statistics are computed together.
_BATCH = 64
# Statistics count in units of the model: what spreads less than this does not differ between the series.
_SMALLEST_SPREAD = 1e-6


def calibrate(model: nn.Module, train: IrregularDataset, *, values: bool, outputs: Moments | None = None) -> None:
    """Give the model the training gaps and, with `values`, mean and standard deviation of the observed entries.

    Static features are included if the model has scales for them; the statistics of its summary always are, because
    they are scaled with all of these. `outputs` are shift and scale of the model's answers, if it predicts numbers.
    """
    fit: Any = getattr(model, "calibrate", None)
    if fit is None:
        raise ConfigError(f"calibrate: {type(model).__name__} has no method calibrate(); use calibrate='none'")
    if outputs is not None and not _answers_numbers(fit):
        raise ConfigError(
            f"task: found regression or forecasting, which need numbers in units of the data; {type(model).__name__} "
            "does not give them, wanted a SequenceRegressor, a Forecaster or calibrate='time'"
        )
    wanted = getattr(getattr(model, "config", None), "input_size", len(train.channels))
    if wanted != len(train.channels):
        raise ConfigError(
            f"input_size: the model was built for {wanted} channels, the training data has {len(train.channels)} "
            f"({', '.join(train.channels[:6])})"
        )
    gaps = [np.diff(train.times(i)) for i in range(len(train))]
    scales: dict[str, Tensor] = {}
    if values:
        scaling = Scaling.fit(train)
        scales = {"shift": torch.from_numpy(scaling.mean), "scale": torch.from_numpy(scaling.std)}
        _calibrate_static(model, train, scaling)
    if outputs is not None:
        _check_width(model, len(outputs[0]))
        scales |= {"output_shift": outputs[0], "output_scale": outputs[1]}
    fit(torch.from_numpy(np.concatenate(gaps)), **scales)
    if getattr(model, "summary", None) is not None:
        _calibrate_summary(model, train)


@torch.no_grad()
def _calibrate_summary(model: Any, train: IrregularDataset) -> None:
    """Mean and standard deviation of each statistic over the training series in which it is known."""
    device = model.summary.shift.device
    found, known = [], []
    for begin in range(0, len(train), _BATCH):
        batch = collate(train[begin : begin + _BATCH], dtype=torch.float64).to(device)
        gaps = model.gaps(batch.times, batch.valid)
        statistics, flags = model.summarise(batch.values, gaps, observed=batch.observed, valid=batch.valid)
        found.append(statistics)
        known.append(flags)
    statistics, flags = torch.cat(found), torch.cat(known)
    count = flags.sum(0).clamp_min(1)
    mean = (statistics * flags).sum(0) / count
    spread = (((statistics - mean) * flags).square().sum(0) / count).sqrt()
    varies = spread > _SMALLEST_SPREAD * mean.abs().clamp_min(1)
    model.calibrate_summary(mean, torch.where(varies, spread, torch.ones_like(spread)))


def _check_width(model: nn.Module, wanted: int) -> None:
    kept = getattr(model, "output_shift", None)
    if isinstance(kept, Tensor) and kept.numel() != wanted:
        raise ConfigError(
            f"task: it wants {wanted} numbers in an answer (two for each target where it is gaussian), "
            f"{type(model).__name__} was built for {kept.numel()}"
        )


def _calibrate_static(model: nn.Module, train: IrregularDataset, scaling: Scaling) -> None:
    fit: Any = getattr(model, "calibrate_static", None)
    if fit is None:
        return
    found = len(scaling.static_mean)
    wanted = getattr(model, "static_size", found)
    if wanted != found:
        names = f" ({', '.join(train.static_names[:6])})" if train.static_names else ""
        raise ConfigError(
            f"static_size: the model was built for {wanted} static features, the training data has {found}{names}"
        )
    if found:
        fit(torch.from_numpy(scaling.static_mean), torch.from_numpy(scaling.static_std))


def _answers_numbers(fit: Callable[..., Any]) -> bool:
    """Whether a model's method `calibrate` accepts shift and scale of its answers."""
    parameters = inspect.signature(fit).parameters.values()
    return any(one.name == "output_shift" or one.kind is one.VAR_KEYWORD for one in parameters)


def target_moments(train: IrregularDataset) -> Moments:
    """Mean and standard deviation (1 where it vanishes) of each target channel over its observed training targets."""
    columns: list[list[Any]] = []
    for position, one in enumerate(train):
        if one.target is None or one.target_observed is None:
            raise DataError(f"series {one.id if one.id is not None else position!r} has no forecast target")
        columns = columns or [[] for _ in range(one.target.shape[1])]
        for channel, column in enumerate(columns):
            column.append(one.target[one.target_observed[:, channel], channel])
    return _moments([np.concatenate(column) for column in columns])


def label_moments(train: IrregularDataset) -> Moments:
    """Mean and standard deviation (1 where it vanishes) of each number that labels the training series."""
    labels = train.labels
    if labels is None:
        raise DataError("regression: the training series have no labels")
    return _moments(list(labels.reshape(len(labels), -1).T))


def _moments(columns: list[Any]) -> Moments:
    shift = [float(np.mean(column, dtype=np.float64)) if len(column) else 0.0 for column in columns]
    spread = [float(np.std(column, dtype=np.float64)) if len(column) else 0.0 for column in columns]
    scale = [std if std > 1e-12 * abs(mean) else 1.0 for mean, std in zip(shift, spread, strict=True)]
    return torch.tensor(shift, dtype=torch.float64), torch.tensor(scale, dtype=torch.float64)
