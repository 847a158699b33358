"""Random drop (paper §5.3): which kind of selectivity survives another sampling density?

Half of the time steps are hidden in training, anew at every step; at test time ten to ninety per cent are, under masks
that are fixed per series. Original timestamps stay, so a model can know how much time has passed. Six variants of one
block, matched near 30,000 parameters, differ only in what depends on the input; baselines of that size join by name.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from tides.data.random_drop import RandomDrop, drop_steps, kept_steps
from tides.errors import ConfigError
from tides.experiments import contenders, uea_series
from tides.experiments.config import build
from tides.experiments.runner import Cell, Context
from tides.experiments.uea_results import count, outcome, scores, where_it_ran
from tides.nn import SequenceClassifier, TIDESConfig
from tides.nn.config import Variant
from tides.records import Record
from tides.training import TrainConfig
from tides.training.lanes import Member, ResidentSeries, View, class_logits, side_by_side_turns
from tides.turns import Turns, finished

NAME = "random-drop"
FIRST_MASK = 200
"""Evaluation masks are numbered from here, apart from the seeds of the training."""


@dataclass(frozen=True)
class Width:
    """The hidden size that brings a variant near the common number of parameters."""

    model: str
    hidden_size: int


@dataclass(frozen=True)
class Architecture:
    """What all variants share; one bidirectional block."""

    state_size: int
    groups: int
    depth: int
    rank: int
    reparam: str
    discretisation: str
    bidirectional: bool
    clip: float


@dataclass(frozen=True)
class Training:
    """Adam for a fixed number of epochs; the best validation accuracy counts."""

    optimiser: Literal["adam", "adamw"]
    lr: float
    weight_decay: float
    batch_size: int
    epochs: int
    monitor: Literal["loss", "accuracy"]


@dataclass(frozen=True)
class Drop:
    """Shares of hidden steps. Evaluation masks are fixed per series; `masks` of them are averaged at every rate."""

    train: float
    train_masks: Literal["fresh", "one"]
    """`fresh`: other steps at every access; `one`: the same steps of every series, once per seed."""
    validation: float
    test: tuple[float, ...]
    masks: int


@dataclass(frozen=True)
class DropConfig:
    """A resolved configuration file."""

    preset: Literal["paper", "recommended"]
    datasets: tuple[str, ...]
    first_channel: tuple[str, ...]
    """Data sets of which only the first channel is seen. In SCP1, SCP2 and MotorImagery the others are that channel
    again, shifted in time, so that a hidden step would still be there."""
    scaling: Literal["raw", "zscore"]
    protocol: Literal["walker", "rformer"]
    models: tuple[str, ...]
    seeds: int
    architecture: Architecture
    train: Training
    drop: Drop
    width: tuple[Width, ...]


def cells(config: Mapping[str, Any], *, variant: str, quick: bool) -> list[Cell]:
    """One cell per data set, model and seed; those of one data set are trained side by side."""
    rivals: dict[str, dict[str, Any]] = dict(config.get("contender", {}))
    drop = build(DropConfig, {name: value for name, value in config.items() if name != "contender"})
    if drop.seeds < 1 or drop.drop.masks < 1:
        raise ConfigError(f"seeds, drop.masks: found {drop.seeds}, {drop.drop.masks}; wanted at least 1")
    widths = {entry.model: entry.hidden_size for entry in drop.width}
    found = []
    for dataset in drop.datasets:
        for model in drop.models:
            if model not in widths and model not in rivals:
                raise ConfigError(f"models: found {model!r}, wanted one of {', '.join([*widths, *rivals])}")
            shared = {
                "experiment": NAME,
                "quick": quick,
                "preset": drop.preset,
                "dataset": dataset,
                "first_channel": dataset in drop.first_channel,
                "scaling": drop.scaling,
                "protocol": drop.protocol,
                "model": model,
                **_settings(model, drop, widths, rivals),
                "drop": {**asdict(drop.drop), "test": list(drop.drop.test)},
            }
            for seed in uea_series.protocol_seeds(drop.protocol, drop.seeds):
                label = f"{dataset}-{variant}-{model}-seed{seed}"
                # Variants take the same steps at about the same pace; a baseline may be far slower.
                stack = f"{dataset}-{variant}" if model in widths else f"{dataset}-{variant}-{model}"
                found.append(Cell(NAME, label, {**shared, "seed": seed}, quick, stack))
    return found


def _settings(
    model: str, drop: DropConfig, widths: Mapping[str, int], rivals: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    """Architecture and training of a cell. Weight decay belongs to the paper's block: it collapses others."""
    if model in widths:
        if model not in get_args(Variant):
            raise ConfigError(f"width: found {model!r}, wanted one of {', '.join(get_args(Variant))}")
        architecture = {**asdict(drop.architecture), "hidden_size": widths[model]}
        return {"architecture": architecture, "train": asdict(drop.train)}
    if rivals[model].get("baseline") not in contenders.names():
        raise ConfigError(f"contender.{model}.baseline: wanted one of {', '.join(contenders.names())}")
    return {"architecture": dict(rivals[model]), "train": {**asdict(drop.train), "weight_decay": 0.0}}


def obstacle(cell: Cell) -> str | None:
    """Why the data set cannot be used here, or None."""
    return uea_series.obstacle(cell.config["dataset"], cell.config["protocol"], cell.config["seed"])


def run(cell: Cell, context: Context) -> Record:
    """One cell alone."""
    return run_stack([cell], context)[0]


def run_stack(cells: Sequence[Cell], context: Context) -> list[Record]:
    """Models and seeds of one data set side by side."""
    return finished(stack_turns(cells, context))


def stack_turns(cells: Sequence[Cell], context: Context) -> Turns[list[Record]]:
    """`run_stack` as a generator that pauses between pieces of work."""
    start = time.perf_counter()
    shared = cells[0].config
    drop, settings = build(Drop, shared["drop"]), build(Training, shared["train"])
    dataset = uea_series.load(shared["dataset"])
    data = uea_series.resident(dataset, context.device, first_channel=shared["first_channel"])
    classes = len(dataset.class_names or ())
    members, tests = [], []
    for cell in cells:
        seed = cell.config["seed"]
        rows = uea_series.split_rows(dataset, shared["protocol"], seed, context.device)
        make = factory(cell.config, data.values.shape[-1], classes)
        model = uea_series.make_model(make, seed, data, rows, scaled=shared["scaling"] == "zscore")
        validation = hidden(data, rows.validation, RandomDrop(drop.validation, "per-series", seed))
        members.append(Member(model, data, rows.train, validation, seed, training_view(drop, data, seed)))
        tests.append(rows.test)
    training = TrainConfig(**asdict(settings), schedule="constant")
    finishes = yield from side_by_side_turns(members, training, folder=context.scratch, progress=context.progress)
    results = [
        {
            **outcome(finish),
            "test": [rate_scores(member, rows, drop, rate) for rate in drop.test],
            **count(member.model),
            **where_it_ran(context.device),
        }
        for member, finish, rows in zip(members, finishes, tests, strict=True)
    ]
    seconds = (time.perf_counter() - start) / len(cells)
    return [cell.record(result, seconds) for cell, result in zip(cells, results, strict=True)]


def factory(config: Mapping[str, Any], channels: int, classes: int) -> Callable[[], nn.Module]:
    """A function that makes a cell's model with fresh weights."""
    fields = dict(config["architecture"])
    if "baseline" in fields:
        name = fields.pop("baseline")
        return lambda: contenders.make(name, fields, channels, classes)
    architecture = model_config(config, channels)
    return lambda: SequenceClassifier(architecture, classes)


def model_config(config: Mapping[str, Any], channels: int) -> TIDESConfig:
    """The architecture of a cell."""
    fields = {**config["architecture"], "clip": config["architecture"]["clip"] or None}
    return TIDESConfig.preset(config["preset"], input_size=channels, variant=config["model"], **fields)


def training_view(drop: Drop, data: ResidentSeries, seed: int) -> View:
    """The transform of a training batch; it runs on the data's device and never leaves it."""
    length, device = data.values.shape[1], data.values.device
    if drop.train_masks == "one":
        kept = torch.from_numpy(RandomDrop(drop.train, "one", seed).kept_steps(length)).to(device)
        return lambda values, times: (values[:, kept], times[:, kept])

    def fresh(values: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
        return drop_steps(values, times, kept_steps(len(values), length, drop.train, device=device))

    return fresh


def hidden(data: ResidentSeries, rows: Tensor, drop: RandomDrop) -> ResidentSeries:
    """Some series without the steps that each one's fixed mask hides."""
    length = data.values.shape[1]
    kept = np.stack([drop.kept_steps(length, row) for row in rows.tolist()])
    chosen = data.rows(rows)
    values, times = drop_steps(chosen.values, chosen.times, torch.from_numpy(kept).to(data.values.device))
    return ResidentSeries(values, times, chosen.labels)


def rate_scores(member: Member, rows: Tensor, drop: Drop, rate: float) -> dict[str, Any]:
    """Test metrics at one rate: means over the masks, and the counts behind the accuracy for each of them."""
    masks = [RandomDrop(rate, "per-series", FIRST_MASK + mask) for mask in range(drop.masks)]
    series = [hidden(member.data, rows, mask) for mask in masks]
    # All masks in one call: on a GPU a batch of five costs little more than one of them.
    together = ResidentSeries(*(torch.cat(parts) for parts in zip(*series, strict=True)))
    answers = class_logits(member.model, together).chunk(drop.masks)
    each = [scores(logits, one.labels) for logits, one in zip(answers, series, strict=True)]
    return {
        "rate": rate,
        "accuracy": float(np.mean([found["accuracy"] for found in each])),
        "nll": float(np.mean([found["nll"] for found in each])),
        "correct": [found["correct"] for found in each],
        "cases": len(rows),
    }
