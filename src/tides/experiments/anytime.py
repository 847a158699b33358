"""Any time: how does the error grow with the horizon, up to four times the one that was trained for?

The paper leaves open how its models answer beyond the times they were trained to answer. Two ways to ask are compared:
`steps`, where questions are steps of the sequence, and `readout`, where states evolve to the time of the question and
no question changes another's answer. All models are causal, so that the way of asking is the only difference. One cell
per system, way of asking, model and seed; the seeds of a group are one population.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

import torch

from tides.errors import ConfigError
from tides.experiments import anytime_series
from tides.experiments.anytime_errors import errors_by_horizon, mean_error
from tides.experiments.anytime_series import Sampling
from tides.experiments.config import build
from tides.experiments.physiome_folds import training_gaps
from tides.experiments.population_clock import Clock, release_memory
from tides.experiments.runner import Cell, Context
from tides.nn import Forecaster, TIDESConfig
from tides.nn.config import Variant
from tides.nn.forecaster import QueryMode
from tides.records import Record, cell_id
from tides.training import Forecasting, TrainConfig, fit_population
from tides.training.config import BOOKKEEPING

NAME = "anytime"


@dataclass(frozen=True)
class Width:
    """The hidden size that brings a variant near the common number of parameters."""

    model: str
    hidden_size: int


@dataclass(frozen=True)
class AnytimeConfig:
    """A resolved configuration file, without its tables `model` and `train`."""

    systems: tuple[str, ...]
    models: tuple[str, ...]
    query_modes: tuple[QueryMode, ...]
    seeds: int
    bins: int
    """Bins of the error per training horizon."""
    sampling: Sampling
    width: tuple[Width, ...]


def cells(config: Mapping[str, Any], *, variant: str, quick: bool) -> list[Cell]:
    """One cell per system, way of asking, model and seed."""
    tables = ("model", "train")
    chosen = build(AnytimeConfig, {name: value for name, value in config.items() if name not in tables})
    counts = {"seeds": chosen.seeds, "bins": chosen.bins}
    counts |= {f"sampling.{name}": getattr(chosen.sampling, name) for name in ("window", "reach", "points", "queries")}
    for name, value in counts.items():
        if value < 1:
            raise ConfigError(f"{name}: found {value}, wanted at least 1")
    anytime_series.check_names(chosen.systems)
    widths = {entry.model: entry.hidden_size for entry in chosen.width}
    training = TrainConfig.from_dict({**config["train"], "monitor": "loss", "calibrate": "none"}).to_dict()
    found = []
    for system in chosen.systems:
        for mode in chosen.query_modes:
            for model in chosen.models:
                if model not in widths or model not in get_args(Variant):
                    raise ConfigError(f"models: found {model!r}, wanted some of {', '.join(widths)}")
                fields = {**config["model"], "variant": model, "hidden_size": widths[model]}
                fields["input_size"] = anytime_series.channels(system)
                shared = {
                    "experiment": NAME,
                    "variant": variant,
                    "quick": quick,
                    "system": system,
                    "query_mode": mode,
                    "model": model,
                    "bins": chosen.bins,
                    "sampling": asdict(chosen.sampling),
                    "architecture": TIDESConfig.from_dict(fields).to_dict(),
                    "train": {name: value for name, value in training.items() if name not in BOOKKEEPING},
                }
                stack = f"{system}-{mode}-{variant}-{model}"
                for seed in range(chosen.seeds):
                    found.append(Cell(NAME, f"{stack}-seed{seed}", {**shared, "seed": seed}, quick, stack))
    return found


def obstacle(cell: Cell) -> str | None:
    """Whether the system can be simulated here."""
    return anytime_series.obstacle(cell.config["system"])


def run(cell: Cell, context: Context) -> Record:
    """One cell alone."""
    return run_stack([cell], context)[0]


def run_stack(cells: Sequence[Cell], context: Context) -> list[Record]:
    """The seeds of one group as one population."""
    shared, device = cells[0].config, torch.device(context.device)
    start, clock = time.perf_counter(), Clock(device)
    seeds, sampling = [cell.config["seed"] for cell in cells], Sampling(**shared["sampling"])
    data = [anytime_series.load(shared["system"], seed, sampling) for seed in seeds]
    models = [build_model(cell.config, training_gaps(parts.train)) for cell, parts in zip(cells, data, strict=True)]
    models = [model.to(device) for model in models]
    clock.lap("preparation")
    # Other seeds that are missing are another population, which cannot continue this one's checkpoint.
    folder = context.scratch and context.scratch / cell_id({"seeds": seeds})
    fits = fit_population(
        models,
        Forecasting(),
        [(parts.train, parts.val) for parts in data],
        TrainConfig.from_dict(shared["train"]),
        seeds=seeds,
        folder=folder,
        progress=context.progress,
    )
    clock.lap("training")
    clock.laps["training"] = sum(fit.seconds for fit in fits)
    tests = [
        errors_by_horizon(
            model, parts.test.to(device), window=sampling.window, reach=sampling.reach, bins=shared["bins"]
        )
        for model, parts in zip(models, data, strict=True)
    ]
    clock.lap("testing")
    account = clock.account()
    results = [
        {
            "bins": bins,
            "within_mse": mean_error(bins, 0.0, 1.0),
            "beyond_mse": mean_error(bins, 1.0, sampling.reach),
            "val_mse": fit.best.get("val_loss"),
            "best_epoch": fit.best_epoch,
            "epochs": fit.epochs,
            "steps": fit.steps,
            "stopped": fit.stopped,
            "parameters": model.count_parameters(),
            **account,
        }
        for bins, fit, model in zip(tests, fits, models, strict=True)
    ]
    del models, data
    release_memory(device)
    seconds = (time.perf_counter() - start) / len(cells)
    return [cell.record(result, seconds) for cell, result in zip(cells, results, strict=True)]


def build_model(config: Mapping[str, Any], gaps: torch.Tensor) -> Forecaster:
    """A seed's model, told the time scale of its training data."""
    architecture = TIDESConfig.from_dict(config["architecture"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config["seed"])
        model = Forecaster(architecture, architecture.input_size, config["query_mode"])
    return model.calibrate(gaps)
