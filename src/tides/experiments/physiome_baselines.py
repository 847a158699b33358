"""Baselines in the Physiome-ODE experiment: any forecaster of the registry, in its published settings."""

from collections.abc import Mapping
from typing import Any, cast

import torch

from tides import baselines
from tides.baselines.config import BaselineConfig
from tides.baselines.forecasting import ForecastModel
from tides.baselines.published import published
from tides.data import IrregularBatch
from tides.errors import ConfigError
from tides.experiments import physiome_folds
from tides.training import TrainConfig

_DATASET = "Physiome-ODE"


def names() -> tuple[str, ...]:
    """The forecasters that learn. What the others predict stands in every record beside the model."""
    return tuple(name for name in baselines.names("forecasting") if _kind(name).trainable)


def settings(dataset: str, model: str, table: Mapping[str, Any]) -> tuple[BaselineConfig, TrainConfig]:
    """Architecture and training: the published ones for the benchmark, then `model` and `train` of the file's table."""
    own = published(model, _DATASET)
    fields = {**own.model, **table.get("model", {}), "input_size": physiome_folds.channels(dataset)}
    training = {**own.train, **table.get("train", {}), "monitor": "loss", "calibrate": "none"}
    return baselines.config_of(model, **fields), TrainConfig.from_dict(training)


def build_model(config: Mapping[str, Any], seed: int, train: IrregularBatch) -> ForecastModel:
    """A fold's model, started from its own seed and told the time scale of its training data."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = cast(ForecastModel, baselines.build(config["model"], **config["architecture"]))
    if not model.stackable:
        raise ConfigError(f"{config['model']}: folds are trained as one stack, which this configuration cannot be")
    return model.calibrate(physiome_folds.training_gaps(train))


def _kind(name: str) -> type[ForecastModel]:
    return cast(type[ForecastModel], baselines.entry(name).model_class())
