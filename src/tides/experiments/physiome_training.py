"""Folds of a forecasting dataset as one population: what every experiment on Physiome-ODE does with a cell."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from tides.baselines.forecasting import ForecastConfig, ForecastModel
from tides.baselines.trivial import LastValueForecast, ObservedMeanForecast, ZeroForecast
from tides.data import IrregularBatch
from tides.experiments import physiome_folds
from tides.experiments.population_clock import Clock, release_memory
from tides.experiments.runner import Cell, Context
from tides.kernels.dispatch import last_backend
from tides.nn import Forecaster, TIDESConfig
from tides.records import Record
from tides.training import FitResult, Forecasting, TrainConfig, population_losses, population_turns
from tides.turns import Turns

Make = Callable[[Mapping[str, Any], int, IrregularBatch], Forecaster | ForecastModel]
TRIVIAL: dict[str, Callable[[ForecastConfig], ForecastModel]] = {
    "zero": ZeroForecast,
    "last": LastValueForecast,
    "mean": ObservedMeanForecast,
}
"""Predictors that learn nothing."""


def train_folds(cell: Cell, context: Context, make: Make) -> Turns[Record]:
    """Train all folds, look at the test instances, and put the predictors that learn nothing beside them.

    Done in turns, so that other cells can be at work on the same device. `make` builds the model of a fold from the
    cell's configuration, the fold's number and its training data.
    """
    config, device = cell.config, torch.device(context.device)
    clock = Clock(device)
    data = physiome_folds.load(
        config["dataset"], config["folds"], parity=config["parity"], instances=config["instances"]
    )
    models = [make(config, fold, parts.train).to(device) for fold, parts in enumerate(data)]
    clock.lap("preparation")
    population = population_turns(
        models,
        Forecasting(input_drop=config.get("input_drop", 0.0)),
        [(parts.train, parts.val) for parts in data],
        TrainConfig.from_dict(config["train"]),
        seeds=list(range(len(models))),
        folder=context.scratch,
        progress=context.progress,
    )
    fits = yield from clock.outside(population)
    clock.lap("training")
    # Including what was spent before an interruption.
    clock.laps["training"] = sum(fit.seconds for fit in fits)
    errors = population_losses(models, Forecasting(), [parts.test for parts in data])
    clock.lap("testing")
    results = {
        "folds": [
            _fold_result(fold, fit, error, data[fold].test)
            for fold, (fit, error) in enumerate(zip(fits, errors, strict=True))
        ],
        "test_mse": float(np.mean(errors)),
        # NaN where a fold has no finite error, unlike `statistics.stdev`.
        "test_mse_std": float(np.std(errors, ddof=1)) if len(errors) > 1 else 0.0,
        "parameters": models[0].count_parameters(),
        **_of_tides(models[0]),
        **clock.account(),
    }
    del models, data
    release_memory(device)
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
    for name, kind in TRIVIAL.items():
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
