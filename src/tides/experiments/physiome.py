"""Physiome-ODE (paper, table 2): forecast the second half of simulated trajectories of fifty biological systems.

One cell per dataset and model; its folds are trained as one population. The best epoch is that of the smallest
validation error, and the test instances are looked at once, with its weights. Variants: `paper`, the published
configuration of each dataset under the release's conventions, and `recommended`, one configuration for all.
"""

import csv
import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, get_args

import torch
from torch import nn

from tides.baselines.config import BaselineConfig
from tides.baselines.forecasting import ForecastConfig, ForecastModel
from tides.baselines.trivial import LastValueForecast, ObservedMeanForecast, ZeroForecast
from tides.data import IrregularBatch
from tides.errors import ConfigError, TidesError
from tides.experiments import physiome_baselines, physiome_folds
from tides.experiments.config import build
from tides.experiments.runner import Cell, Context
from tides.kernels.dispatch import last_backend
from tides.nn import Forecaster, TIDESConfig
from tides.nn.config import Variant
from tides.nn.forecaster import QueryMode
from tides.records import Record
from tides.training import FitResult, Forecasting, TrainConfig, fit_population, population_losses
from tides.training.config import BOOKKEEPING

NAME = "physiome"
_TRIVIAL: dict[str, Callable[[ForecastConfig], ForecastModel]] = {
    "zero": ZeroForecast,
    "last": LastValueForecast,
    "mean": ObservedMeanForecast,
}
# Two blocks: the least of the fifty.
_BORROWED = "SHO01"
_TRAINING_FIELDS = ("lr", "lr_factor", "weight_decay", "batch_size", "warmup_epochs")


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
                "model": model,
                "folds": chosen.folds,
                "parity": chosen.parity,
                "instances": chosen.instances,
                "query_mode": chosen.query_mode,
                "architecture": architecture.to_dict(),
                "train": {name: x for name, x in training.to_dict().items() if name not in BOOKKEEPING},
            }
            found.append(Cell(NAME, f"{dataset}-{variant}-{model}", cell, quick))
    return found


def obstacle(cell: Cell) -> str | None:
    """Whether the dataset is at hand."""
    return physiome_folds.obstacle(cell.config["dataset"])


def run(cell: Cell, context: Context) -> Record:
    """Train all folds, look at the test instances, and put the predictors that learn nothing beside them."""
    config, device = cell.config, torch.device(context.device)
    clock = _Clock(device)
    data = physiome_folds.load(
        config["dataset"], config["folds"], parity=config["parity"], instances=config["instances"]
    )
    make = build_model if config["model"] in get_args(Variant) else physiome_baselines.build_model
    models = [make(config, fold, parts.train).to(device) for fold, parts in enumerate(data)]
    clock.lap("preparation")
    try:
        fits = fit_population(
            models,
            Forecasting(),
            [(parts.train, parts.val) for parts in data],
            TrainConfig.from_dict(config["train"]),
            seeds=list(range(len(models))),
            folder=context.scratch,
            progress=context.progress,
        )
        clock.lap("training")
        # Including what was spent before an interruption.
        clock.laps["training"] = sum(fit.seconds for fit in fits)
        errors = population_losses(models, Forecasting(), [parts.test for parts in data])
    except torch.OutOfMemoryError as error:
        raise TidesError(f"{cell.label}: out of memory on {context.device}") from error
    clock.lap("testing")
    results = {
        "folds": [
            _fold_result(fold, fit, error, data[fold].test)
            for fold, (fit, error) in enumerate(zip(fits, errors, strict=True))
        ],
        "test_mse": statistics.fmean(errors),
        "test_mse_std": statistics.stdev(errors) if len(errors) > 1 else 0.0,
        "parameters": models[0].count_parameters(),
        **_of_tides(models[0]),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "peak_memory": torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
        "seconds": clock.laps,
    }
    del models, data
    if device.type == "cuda":
        # The graphs' memory is free for the next cell only when nothing refers to them any more.
        gc.collect()
        torch.cuda.empty_cache()
    return cell.record(results, sum(clock.laps.values()))


def build_model(config: Mapping[str, Any], seed: int, train: IrregularBatch) -> Forecaster:
    """A fold's model, started from its own seed and told the time scale of its training data."""
    architecture = TIDESConfig.from_dict(config["architecture"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Forecaster(architecture, architecture.input_size, config["query_mode"])
    return model.calibrate(physiome_folds.training_gaps(train))


def _of_tides(model: nn.Module) -> dict[str, Any]:
    """What only our own models have to tell."""
    if not isinstance(model, Forecaster):
        return {}
    return {
        "published_parameters": model.count_parameters(release_equivalent=True),
        "backend": last_backend(),
    }


def trivial_errors(part: IrregularBatch) -> dict[str, float]:
    """Squared error of predicting zero, the last value and the mean of what was observed."""
    task, config = Forecasting(), ForecastConfig(input_size=part.values.shape[-1])
    found = {}
    for name, kind in _TRIVIAL.items():
        total, weight = task.loss(task.predict(kind(config), part), part)
        found[name] = float(total / weight)
    return found


def _fold_result(fold: int, fit: FitResult, error: float, test: IrregularBatch) -> dict[str, Any]:
    return {
        "fold": fold,
        "test_mse": error,
        "val_mse": fit.best.get("val_loss"),
        "best_epoch": fit.best_epoch,
        "epochs": fit.epochs,
        "steps": fit.steps,
        "stopped": fit.stopped,
        "trivial_mse": trivial_errors(test),
    }


def _settings(
    dataset: str, model: str, configuration: str, tables: Mapping[str, dict[str, Any]]
) -> tuple[TIDESConfig, TrainConfig]:
    """Architecture and training of one cell; published rows first, the file's tables on top."""
    row = dict(_published(dataset)) if configuration == "published" else {}
    training = {name: row.pop(name) for name in _TRAINING_FIELDS if name in row}
    fields = {**row, **tables["model"], "input_size": physiome_folds.channels(dataset), "variant": model}
    # Scales are told to the models by `build_model`, because the data here is no set of series any more.
    return TIDESConfig.from_dict(fields), TrainConfig.from_dict(
        {**training, **tables["train"], "monitor": "loss", "calibrate": "none"}
    )


@cache
def _published_rows() -> dict[str, dict[str, Any]]:
    file = resources.files("tides.experiments") / "configs" / NAME / "published.csv"
    kinds: dict[str, Any] = dict.fromkeys(("dataset", "reparam", "discretisation", "projector_init"), str)
    kinds |= dict.fromkeys(("lr", "lr_factor", "weight_decay", "expand", "dropout", "clip"), float)
    kinds["bidirectional"] = "true".__eq__
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    return {row["dataset"]: {name: kinds.get(name, int)(text) for name, text in row.items()} for row in rows}


def _published(dataset: str) -> dict[str, Any]:
    """The published configuration of a dataset; embedded systems borrow a small one."""
    row = _published_rows()[_BORROWED if dataset.startswith(physiome_folds.EMBEDDED) else dataset]
    return {name: value for name, value in row.items() if name != "dataset"} | {"clip": row["clip"] or None}


class _Clock:
    """Wall time of the phases of a cell."""

    def __init__(self, device: torch.device) -> None:
        self.laps: dict[str, float] = {}
        self._since = time.perf_counter()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._since = now - self._since, now
