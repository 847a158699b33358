"""UEA classification (paper, table 1): the six published configurations under two protocols of splitting.

One cell per data set, protocol, model and seed; those of one data set and model are trained side by side. Training
stops on the validation loss, and the test cases are looked at once, with the weights of the best epoch.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from torch import nn

from tides.data.uea import archive_name
from tides.errors import ConfigError
from tides.experiments import contenders, uea_series
from tides.experiments.config import build
from tides.experiments.contenders import BaselineTraining
from tides.experiments.runner import Cell, Context
from tides.experiments.uea_results import count, outcome, scores, where_it_ran
from tides.nn import SequenceClassifier, TIDESConfig
from tides.nn.config import Variant
from tides.records import Record
from tides.training import TrainConfig
from tides.training.lanes import Member, class_logits, side_by_side_turns
from tides.turns import Turns, finished

NAME = "uea"
# Of a configuration's fields, those that the model does not know.
_NOT_ARCHITECTURE = ("dataset", "lr", "weight_decay", "batch_size", "epochs")


@dataclass(frozen=True)
class Configuration:
    """One row of the paper's table of configurations, in our names."""

    dataset: str
    lr: float
    weight_decay: float
    batch_size: int
    epochs: int
    hidden_size: int
    state_size: int
    groups: int
    depth: int
    encoder_depth: int
    decay_depth: int
    rank: int
    reparam: str
    discretisation: str
    dropout: float
    bidirectional: bool
    clip: float
    """Re λ ≤ −clip; 0 leaves it to the reparameterisation."""

    def model(self, preset: str, variant: str, channels: int) -> TIDESConfig:
        """The architecture for data with so many channels."""
        fields = {name: value for name, value in asdict(self).items() if name not in _NOT_ARCHITECTURE}
        fields["clip"] = self.clip or None
        return TIDESConfig.preset(preset, input_size=channels, variant=variant, **fields)


@dataclass(frozen=True)
class Training:
    """What all data sets share."""

    optimiser: Literal["adam", "adamw"]
    schedule: Literal["constant", "cosine"]
    monitor: Literal["loss", "accuracy"]
    patience: int
    epochs: int
    """At most this many; a configuration's own number counts where it is smaller."""


@dataclass(frozen=True)
class UEAConfig:
    """A resolved configuration file."""

    preset: Literal["paper", "recommended"]
    scaling: Literal["raw", "zscore"]
    datasets: tuple[str, ...]
    protocols: tuple[str, ...]
    models: tuple[str, ...]
    seeds: int
    allow_partial: bool
    """Accept files that lack training cases; the accuracy is then not comparable, and the record says so."""
    train: Training
    baseline: BaselineTraining
    configuration: tuple[Configuration, ...]


def cells(config: Mapping[str, Any], *, variant: str, quick: bool) -> list[Cell]:
    """One cell per data set, protocol, model and seed."""
    uea = build(UEAConfig, config)
    if uea.seeds < 1:
        raise ConfigError(f"seeds: found {uea.seeds}, wanted at least 1")
    table = {row.dataset: row for row in uea.configuration}
    found = []
    for dataset in uea.datasets:
        if dataset not in table:
            raise ConfigError(f"datasets: found {dataset!r}, there are configurations for {', '.join(table)}")
        row = table[dataset]
        for protocol in uea.protocols:
            for model in uea.models:
                if model not in _known():
                    raise ConfigError(f"models: found {model!r}, wanted one of {', '.join(_known())}")
                shared = {
                    "experiment": NAME,
                    "quick": quick,
                    "preset": uea.preset,
                    "scaling": uea.scaling,
                    "dataset": dataset,
                    "protocol": protocol,
                    "model": model,
                    "allow_partial": uea.allow_partial,
                    **_settings(model, row, uea),
                }
                name = f"{dataset}-{protocol}-{variant}-{model}"
                for seed in uea_series.protocol_seeds(protocol, uea.seeds):
                    # Both protocols in one stack: a GPU has room for more than ten small models.
                    stack = f"{dataset}-{variant}-{model}"
                    found.append(Cell(NAME, f"{name}-seed{seed}", {**shared, "seed": seed}, quick, stack))
    return found


def _known() -> tuple[str, ...]:
    return (*get_args(Variant), *contenders.names())


def _settings(model: str, row: Configuration, uea: UEAConfig) -> dict[str, Any]:
    """Architecture and training of a cell: the paper's row for its variants, a baseline's own for the others."""
    if model in get_args(Variant):
        return {
            "configuration": asdict(row),
            "train": {**asdict(uea.train), "epochs": min(uea.train.epochs, row.epochs)},
        }
    found = contenders.settings(model, archive_name(row.dataset), uea.baseline)
    return {"configuration": found, "train": asdict(uea.baseline)}


def obstacle(cell: Cell) -> str | None:
    """Why the data set cannot be used here, such as a missing part, or None."""
    config = cell.config
    return uea_series.obstacle(
        config["dataset"], config["protocol"], config["seed"], allow_partial=config["allow_partial"]
    )


def run(cell: Cell, context: Context) -> Record:
    """One cell alone."""
    return run_stack([cell], context)[0]


def run_stack(cells: Sequence[Cell], context: Context) -> list[Record]:
    """All seeds of one data set and model side by side."""
    return finished(stack_turns(cells, context))


def stack_turns(cells: Sequence[Cell], context: Context) -> Turns[list[Record]]:
    """`run_stack` as a generator that pauses between pieces of work."""
    start = time.perf_counter()
    shared = cells[0].config
    dataset = uea_series.load(shared["dataset"])
    data = uea_series.resident(dataset, context.device)
    classes = len(dataset.class_names or ())
    build_model = _factory(shared, data.values.shape[-1], classes)
    members, tests = [], []
    for cell in cells:
        seed = cell.config["seed"]
        rows = uea_series.split_rows(
            dataset, cell.config["protocol"], seed, context.device, allow_partial=shared["allow_partial"]
        )
        model = uea_series.make_model(build_model, seed, data, rows, scaled=shared["scaling"] == "zscore")
        members.append(Member(model, data, rows.train, data.rows(rows.validation), seed))
        tests.append(data.rows(rows.test))
    training = _training(shared, len(members[0].train))
    finishes = yield from side_by_side_turns(members, training, folder=context.scratch, progress=context.progress)
    results = [
        {
            **outcome(finish),
            "test": scores(class_logits(member.model, test), test.labels),
            **count(member.model),
            "missing": dataset.missing,
            **where_it_ran(context.device),
        }
        for member, finish, test in zip(members, finishes, tests, strict=True)
    ]
    seconds = (time.perf_counter() - start) / len(cells)
    return [cell.record(result, seconds) for cell, result in zip(cells, results, strict=True)]


def _factory(shared: Mapping[str, Any], channels: int, classes: int) -> Callable[[], nn.Module]:
    """A function that makes a cell's model with fresh weights."""
    name = shared["model"]
    if name in get_args(Variant):
        architecture = build(Configuration, shared["configuration"]).model(shared["preset"], name, channels)
        return lambda: SequenceClassifier(architecture, classes)
    return lambda: contenders.make(name, shared["configuration"]["model"], channels, classes)


def _training(shared: Mapping[str, Any], cases: int) -> TrainConfig:
    if shared["model"] not in get_args(Variant):
        return contenders.train_config(shared["configuration"], build(BaselineTraining, shared["train"]), cases)
    row, settings = build(Configuration, shared["configuration"]), build(Training, shared["train"])
    return TrainConfig(
        lr=row.lr,
        weight_decay=row.weight_decay,
        batch_size=row.batch_size,
        epochs=settings.epochs,
        optimiser=settings.optimiser,
        schedule=settings.schedule,
        monitor=settings.monitor,
        patience=settings.patience,
    )
