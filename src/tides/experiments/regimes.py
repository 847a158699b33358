"""In which regime is a simulated cell? Embedded classification tasks whose folds are trained as one population."""

import statistics
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch

from tides.data import IrregularBatch, collate, systems
from tides.experiments.physiome_folds import FoldParts, part_sizes, training_gaps
from tides.experiments.population_clock import Clock, release_memory
from tides.experiments.runner import Cell, Context
from tides.nn import SequenceClassifier, TIDESConfig
from tides.records import Record
from tides.training import Classification, TrainConfig, population_turns
from tides.turns import Turns

_PREFIX = "regimes-"
NAMES = tuple(_PREFIX + name for name in systems.SYSTEMS)
_INSTANCES = 600


def channels(dataset: str) -> int:
    """How many channels a task has."""
    return len(_system(dataset).channels)


def train_folds(cell: Cell, context: Context) -> Turns[Record]:
    """Train all folds and look at the test instances, in turns."""
    config, device = cell.config, torch.device(context.device)
    clock = Clock(device)
    data = [load(config["dataset"], fold, config["instances"] or _INSTANCES) for fold in range(config["folds"])]
    models = [build_model(config, fold, parts.train).to(device) for fold, parts in enumerate(data)]
    clock.lap("preparation")
    population = population_turns(
        models,
        Classification(),
        [(parts.train, parts.val) for parts in data],
        TrainConfig.from_dict(config["train"]),
        seeds=list(range(len(models))),
        folder=context.scratch,
        progress=context.progress,
    )
    fits = yield from clock.outside(population)
    clock.lap("training")
    clock.laps["training"] = sum(fit.seconds for fit in fits)
    folds = [
        {
            "fold": fold,
            **scores(model, parts.test.to(device)),
            "val_nll": fit.best.get("val_loss"),
            "best_epoch": fit.best_epoch,
            "epochs": fit.epochs,
            "steps": fit.steps,
            "stopped": fit.stopped,
        }
        for fold, (model, fit, parts) in enumerate(zip(models, fits, data, strict=True))
    ]
    clock.lap("testing")
    results = {
        "folds": folds,
        "test_nll": statistics.fmean(fold["test_nll"] for fold in folds),
        "test_accuracy": statistics.fmean(fold["test_accuracy"] for fold in folds),
        "parameters": models[0].count_parameters(),
        **clock.account(),
    }
    del models, data
    release_memory(device)
    return cell.record(results, sum(clock.laps.values()))


def load(dataset: str, fold: int, instances: int) -> FoldParts:
    """One fold, simulated on the spot; channels standardised, times as fractions of the whole interval."""
    system = _system(dataset)
    whole = collate(systems.classification(system.name, instances, seed=fold))
    seen = whole.values.masked_fill(~whole.observed, torch.nan).flatten(0, 1)
    mean = seen.nanmean(0)
    std = (seen - mean).square().nanmean(0).sqrt()
    scaled = IrregularBatch(
        values=((whole.values - mean) / std).masked_fill(~whole.observed, 0),
        times=whole.times / system.span,
        gaps=whole.gaps / system.span,
        observed=whole.observed,
        valid=whole.valid,
        targets=whole.targets,
    )
    bounds = torch.tensor([0, *part_sizes(instances)]).cumsum(0).tolist()
    return FoldParts(*(scaled.rows(slice(a, b)) for a, b in pairwise(bounds)))


def build_model(config: Mapping[str, Any], seed: int, train: IrregularBatch) -> SequenceClassifier:
    """A fold's model, started from its own seed and told the time scale of its training data."""
    classes = len(_system(config["dataset"]).regimes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = SequenceClassifier(TIDESConfig.from_dict(config["architecture"]), classes)
    return model.calibrate(training_gaps(train))


@torch.no_grad()
def scores(model: SequenceClassifier, test: IrregularBatch) -> dict[str, Any]:
    """Likelihood and accuracy on the test instances, with the counts behind it."""
    task = Classification()
    model.eval()
    logits = task.predict(model, test)
    total, weight = task.loss(logits, test)
    assert test.targets is not None
    correct = int((logits.argmax(-1) == test.targets).sum())
    cases = len(test)
    return {
        "test_nll": float(total / weight),
        "test_accuracy": correct / cases,
        "correct": correct,
        "cases": cases,
    }


def _system(dataset: str) -> systems.System:
    return systems.SYSTEMS[dataset.removeprefix(_PREFIX)]
