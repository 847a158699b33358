"""Physiome-ODE (paper, table 2): forecast the second half of simulated trajectories of fifty biological systems.

One cell per dataset and model; its folds are trained as one population. The best epoch is that of the smallest
validation error, and the test instances are looked at once, with its weights. Variants: `paper`, the published
configuration of each dataset under the release's conventions, and `recommended`, one configuration for all.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, get_args

from tides.baselines.config import BaselineConfig
from tides.errors import ConfigError
from tides.experiments import physiome_baselines, physiome_folds
from tides.experiments.config import build
from tides.experiments.physiome_training import build_model, train_folds
from tides.experiments.runner import Cell, Context
from tides.nn import TIDESConfig
from tides.nn.config import Variant
from tides.nn.forecaster import QueryMode
from tides.records import Record
from tides.training import TrainConfig
from tides.training.config import BOOKKEEPING
from tides.turns import Turns, finished

NAME = "physiome"
# Two blocks: the least of the fifty.
_BORROWED = "SHO01"
TRAINING_FIELDS = ("lr", "lr_factor", "weight_decay", "batch_size", "warmup_epochs")


@dataclass(frozen=True)
class PhysiomeConfig:
    """A resolved configuration file, without its tables `model` and `train`."""

    models: tuple[str, ...]
    datasets: tuple[str, ...]
    folds: int
    parity: bool
    instances: int
    query_mode: QueryMode
    configuration: Literal["published", "shared"]
    input_drop: float = 0.0
    """Probability with which an observed value is hidden in training; TIDES only, baselines keep their own settings."""


def cells(config: Mapping[str, Any], *, variant: str, quick: bool) -> list[Cell]:
    """One cell per dataset and model."""
    tables = {name: dict(config.get(name, {})) for name in ("model", "train", "baseline")}
    chosen = build(PhysiomeConfig, {name: value for name, value in config.items() if name not in tables})
    if chosen.folds < 1:
        raise ConfigError(f"folds: found {chosen.folds}, wanted at least 1")
    found = []
    for dataset in physiome_folds.names(chosen.datasets):
        for model in chosen.models:
            architecture: TIDESConfig | BaselineConfig
            if model in get_args(Variant):
                architecture, training = _settings(dataset, model, chosen.configuration, tables)
            elif model in physiome_baselines.names():
                architecture, training = physiome_baselines.settings(dataset, model, tables["baseline"])
            else:
                known = ", ".join((*get_args(Variant), *physiome_baselines.names()))
                raise ConfigError(f"models: found {model!r}, wanted some of {known}")
            cell = {
                "experiment": NAME,
                "variant": variant,
                "quick": quick,
                "dataset": dataset,
                **physiome_folds.identity(dataset),
                "model": model,
                "folds": chosen.folds,
                "parity": chosen.parity,
                "instances": chosen.instances,
                "query_mode": chosen.query_mode,
                "architecture": architecture.to_dict(),
                "train": {name: x for name, x in training.to_dict().items() if name not in BOOKKEEPING},
            }
            if chosen.input_drop and model in get_args(Variant):
                cell["input_drop"] = chosen.input_drop
            found.append(Cell(NAME, f"{dataset}-{variant}-{model}", cell, quick))
    return found


def obstacle(cell: Cell) -> str | None:
    """Whether the dataset is at hand."""
    return physiome_folds.obstacle(cell.config["dataset"])


def run(cell: Cell, context: Context) -> Record:
    """One cell by itself."""
    return finished(turns(cell, context))


def turns(cell: Cell, context: Context) -> Turns[Record]:
    """Train all folds as one population and look at the test instances."""
    make = build_model if cell.config["model"] in get_args(Variant) else physiome_baselines.build_model
    return train_folds(cell, context, make)


def _settings(
    dataset: str, model: str, configuration: str, tables: Mapping[str, dict[str, Any]]
) -> tuple[TIDESConfig, TrainConfig]:
    """Architecture and training of one cell; published rows first, the file's tables on top."""
    row = dict(_published(dataset)) if configuration == "published" else {}
    training = {name: row.pop(name) for name in TRAINING_FIELDS if name in row}
    fields = {**row, **tables["model"], "input_size": physiome_folds.channels(dataset), "variant": model}
    # Scales are told to the models by `build_model`, because the data here is no set of series any more.
    return TIDESConfig.from_dict(fields), TrainConfig.from_dict(
        {**training, **tables["train"], "monitor": "loss", "calibrate": "none"}
    )


@cache
def published_rows() -> dict[str, dict[str, Any]]:
    """The table of published configurations, by data set; a clip of 0 stands for none."""
    file = resources.files("tides.experiments") / "configs" / NAME / "published.csv"
    kinds: dict[str, Any] = dict.fromkeys(("dataset", "reparam", "discretisation", "projector_init"), str)
    kinds |= dict.fromkeys(("lr", "lr_factor", "weight_decay", "expand", "dropout", "clip"), float)
    kinds["bidirectional"] = "true".__eq__
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    return {row["dataset"]: {name: kinds.get(name, int)(text) for name, text in row.items()} for row in rows}


def _published(dataset: str) -> dict[str, Any]:
    """The published configuration of a dataset; embedded systems borrow a small one."""
    row = published_rows().get(_BORROWED if dataset.startswith(physiome_folds.EMBEDDED) else dataset)
    if row is None:
        raise ConfigError(f"datasets: nothing was published for {dataset!r}; wanted --variant recommended")
    return {name: value for name, value in row.items() if name != "dataset"} | {"clip": row["clip"] or None}
