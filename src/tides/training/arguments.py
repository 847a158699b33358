"""Checks of a training call's arguments, before any work is done."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from tides.data.batch import IrregularBatch
from tides.data.dataset import IrregularDataset
from tides.errors import ConfigError, DataError
from tides.training.config import TrainConfig


def check_model(model: Any) -> None:
    """Raise unless it is a module."""
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model: found a {type(model).__name__}, wanted a torch module")


def check_trainable(model: nn.Module) -> None:
    """Raise unless it has parameters to learn."""
    if next(model.parameters(), None) is None:
        raise ConfigError(f"model: {type(model).__name__} has no parameters to train; `evaluate` takes it as it is")


def check_members(models: Sequence[Any], parts: int, kind: str) -> None:
    """Raise unless there are trainable modules and as many parts of the data."""
    if not models or len(models) != parts:
        raise ConfigError(f"data: found {parts} {kind}, wanted one for each of {len(models)} models")
    for model in models:
        check_model(model)
        check_trainable(model)


def check_distinct(models: Sequence[nn.Module]) -> None:
    """Raise if a model occurs twice among them."""
    if len(set(map(id, models))) < len(models):
        raise ConfigError("models: found one of them twice, wanted a model of its own for each member")


def check_classes(member: int, model: nn.Module, part: IrregularDataset | IrregularBatch) -> None:
    """Raise if a series has a class that the classifier does not.

    Where models are stacked, or on a GPU, nothing looks at labels later.
    """
    given: Any = part.targets if isinstance(part, IrregularBatch) else part.labels
    labels = torch.empty(0) if given is None else torch.as_tensor(given)
    known = getattr(model, "classes", None)
    if labels.is_floating_point() or not isinstance(known, int) or not labels.numel():
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= known:
        raise DataError(f"member {member}: labels: found classes {low} to {high}, the model has {known}")


def check_task(task: Any) -> None:
    """Raise if a class was given instead of an object of it."""
    if isinstance(task, type):
        raise ConfigError(f"task: found the class {task.__name__}, wanted an object of it: {task.__name__}()")


def check_config(config: Any) -> None:
    """Raise unless it is a `TrainConfig`."""
    if not isinstance(config, TrainConfig):
        raise ConfigError(f"config: found a {type(config).__name__}, wanted a TrainConfig")
