"""Random drop (paper §5.3): which kind of selectivity survives another sampling density?

Half of the time steps are hidden in training, anew at every step; at test time ten to ninety per cent are, under masks
that are fixed per series. Original timestamps stay, so a model can know how much time has passed. Six variants of one
block, matched near 30,000 parameters, differ only in what depends on the input.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from torch import Tensor

from tides.data.random_drop import RandomDrop, drop_steps, kept_steps
from tides.errors import ConfigError
from tides.experiments import uea_series
from tides.experiments.config import build
from tides.experiments.runner import Cell, Context
from tides.experiments.uea_results import device_name, outcome, scores
from tides.nn import SequenceClassifier, TIDESConfig
from tides.nn.config import Variant
from tides.records import Record
from tides.training import TrainConfig
from tides.training.lanes import Member, ResidentSeries, View, class_logits, fit_side_by_side

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
    drop = build(DropConfig, config)
    if drop.seeds < 1 or drop.drop.masks < 1:
        raise ConfigError(f"seeds, drop.masks: found {drop.seeds}, {drop.drop.masks}; wanted at least 1")
    widths = {entry.model: entry.hidden_size for entry in drop.width}
    found = []
    for dataset in drop.datasets:
        for model in drop.models:
            if model not in get_args(Variant) or model not in widths:
                raise ConfigError(f"models: found {model!r}, wanted one of {', '.join(widths)}")
            shared = {
                "experiment": NAME,
                "quick": quick,
                "preset": drop.preset,
                "dataset": dataset,
                "first_channel": dataset in drop.first_channel,
                "scaling": drop.scaling,
                "protocol": drop.protocol,
                "model": model,
                "architecture": {**asdict(drop.architecture), "hidden_size": widths[model]},
                "train": asdict(drop.train),
                "drop": {**asdict(drop.drop), "test": list(drop.drop.test)},
            }
            for seed in uea_series.protocol_seeds(drop.protocol, drop.seeds):
                label = f"{dataset}-{variant}-{model}-seed{seed}"
                found.append(Cell(NAME, label, {**shared, "seed": seed}, quick, f"{dataset}-{variant}"))
    return found


def obstacle(cell: Cell) -> str | None:
    """A data set that is not at hand."""
    return uea_series.obstacle(cell.config["dataset"], cell.config["protocol"], cell.config["seed"])


def run(cell: Cell, context: Context) -> Record:
    """One cell alone."""
    return run_stack([cell], context)[0]


def run_stack(cells: Sequence[Cell], context: Context) -> list[Record]:
    """Models and seeds of one data set side by side."""
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
        architecture = model_config(cell.config, data.values.shape[-1])
        scaled = shared["scaling"] == "zscore"
        model = uea_series.make_model(architecture, classes, seed, data, rows, scaled=scaled)
        validation = hidden(data, rows.validation, RandomDrop(drop.validation, "per-series", seed))
        members.append(Member(model, data, rows.train, validation, seed, training_view(drop, data, seed)))
        tests.append(rows.test)
    training = TrainConfig(**asdict(settings), schedule="constant")
    finishes, _ = fit_side_by_side(members, training, progress=context.progress)
    results = [
        {
            **outcome(finish),
            "test": [rate_scores(member, rows, drop, rate) for rate in drop.test],
            "parameters": cast(SequenceClassifier, member.model).count_parameters(),
            "published_parameters": cast(SequenceClassifier, member.model).count_parameters(release_equivalent=True),
            "device": device_name(context.device),
        }
        for member, finish, rows in zip(members, finishes, tests, strict=True)
    ]
    seconds = (time.perf_counter() - start) / len(cells)
    return [cell.record(result, seconds) for cell, result in zip(cells, results, strict=True)]


def model_config(config: Mapping[str, Any], channels: int) -> TIDESConfig:
    """The architecture of a cell."""
    fields = {**config["architecture"], "clip": config["architecture"]["clip"] or None}
    return TIDESConfig.preset(config["preset"], input_size=channels, variant=config["model"], **fields)


def training_view(drop: Drop, data: ResidentSeries, seed: int) -> View:
    """What a training batch is seen through; it runs on the data's device and never leaves it."""
    length, device = data.values.shape[1], data.values.device
    if drop.train_masks == "one":
        kept = torch.from_numpy(RandomDrop(drop.train, "one", seed).kept_steps(length)).to(device)
        return lambda values, times: (values[:, kept], times[:, kept])

    def fresh(values: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
        return drop_steps(values, times, kept_steps(len(values), length, drop.train, device=device))

    return fresh


def hidden(data: ResidentSeries, rows: Tensor, drop: RandomDrop) -> ResidentSeries:
    """Some series without the steps that a fixed mask hides from each of them."""
    length = data.values.shape[1]
    kept = np.stack([drop.kept_steps(length, row) for row in rows.tolist()])
    chosen = data.rows(rows)
    values, times = drop_steps(chosen.values, chosen.times, torch.from_numpy(kept).to(data.values.device))
    return ResidentSeries(values, times, chosen.labels)


def rate_scores(member: Member, rows: Tensor, drop: Drop, rate: float) -> dict[str, Any]:
    """Test metrics at one rate: means over the masks, and the counts behind the accuracy for each of them."""
    each = []
    for mask in range(drop.masks):
        series = hidden(member.data, rows, RandomDrop(rate, "per-series", FIRST_MASK + mask))
        each.append(scores(class_logits(member.model, series), series.labels))
    return {
        "rate": rate,
        "accuracy": float(np.mean([found["accuracy"] for found in each])),
        "nll": float(np.mean([found["nll"] for found in each])),
        "correct": [found["correct"] for found in each],
        "cases": len(rows),
    }
