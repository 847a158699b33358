"""Arguments of another kind than a training call takes, named before anything is done with them."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from tides.errors import ConfigError
from tides.training.config import TrainConfig


def check_model(model: Any) -> None:
    """Raise unless it is a module."""
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model: found a {type(model).__name__}, wanted a torch module")


def check_members(models: Sequence[Any], parts: int, kind: str) -> None:
    """Raise unless there are modules, and as many parts of the data."""
    if not models or len(models) != parts:
        raise ConfigError(f"data: found {parts} {kind}, wanted one for each of {len(models)} models")
    for model in models:
        check_model(model)


def check_task(task: Any) -> None:
    """Raise if a class stands where an object of it is meant."""
    if isinstance(task, type):
        raise ConfigError(f"task: found the class {task.__name__}, wanted an object of it: {task.__name__}()")


def check_config(config: Any) -> None:
    """Raise unless it is a `TrainConfig`."""
    if not isinstance(config, TrainConfig):
        raise ConfigError(f"config: found a {type(config).__name__}, wanted a TrainConfig")
