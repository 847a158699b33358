"""Baselines as contenders in the classification experiments: their names, settings and training."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from tides import baselines
from tides.baselines.published import datasets, published
from tides.errors import ConfigError
from tides.training import TrainConfig

# Names that the paper's own variants take already.
_RENAMED = {"s5": "walker-s5"}


@dataclass(frozen=True)
class BaselineTraining:
    """How baselines are trained: Adam at a constant rate without decay, counted in steps as their originals count."""

    steps: int
    """The budget; the published protocol allows 100,000."""
    patience_steps: int
    """Steps without a better validation result after which training ends."""
    monitor: Literal["loss", "accuracy"]
    lr: float
    """Where nothing was published for a data set."""
    batch_size: int
    """Where nothing was published."""


def names() -> tuple[str, ...]:
    """Every baseline that classifies, by its name in the experiments."""
    return tuple(_RENAMED.get(name, name) for name in baselines.names("classification"))


def settings(model: str, dataset: str, training: BaselineTraining) -> dict[str, Any]:
    """A baseline's part of a cell's configuration; `published` says whether it was published or is our default.

    `dataset` is the archive's name.
    """
    name = _registered(model)
    if dataset in datasets(name):
        found = published(name, dataset)
        return {"published": True, "model": dict(found.model), "train": dict(found.train)}
    rates = {"lr": training.lr, "batch_size": training.batch_size}
    return {"published": False, "model": {}, "train": rates}


def make(model: str, fields: Mapping[str, Any], channels: int, classes: int) -> nn.Module:
    """A contender with fresh weights."""
    return baselines.build(_registered(model), input_size=channels, classes=classes, **fields)


def train_config(found: Mapping[str, Any], training: BaselineTraining, cases: int) -> TrainConfig:
    """Steps as epochs over `cases` training series; a published number of epochs is kept where the budget allows it."""
    own = found["train"]
    per_epoch = -(-cases // own["batch_size"])
    budget = max(1, training.steps // per_epoch)
    return TrainConfig(
        lr=own["lr"],
        batch_size=own["batch_size"],
        epochs=min(budget, own.get("epochs", budget)),
        optimiser="adam",
        schedule="constant",
        monitor=training.monitor,
        patience=max(1, training.patience_steps // per_epoch),
    )


def _registered(model: str) -> str:
    """The registry's name of a contender."""
    back = {ours: theirs for theirs, ours in _RENAMED.items()}
    if model not in names():
        raise ConfigError(f"models: found {model!r}, wanted one of {', '.join(names())}")
    return back.get(model, model)
