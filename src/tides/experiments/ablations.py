"""Ablations: one factor at a time around the `recommended` configuration of Physiome-ODE.

Factors: what is selective, projector norm and depth of the Λ head, rank, reparameterisation, hold, discretisation, mask
and query channels, direction of time, time scale; pooling, on embedded classification tasks. One cell per dataset and
change, its folds trained as one population. Cells are ordered by factor, so that an interrupted run has finished some
factors on every dataset.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tides.errors import ConfigError
from tides.experiments import config as files
from tides.experiments import physiome_folds, regimes
from tides.experiments.config import build
from tides.experiments.physiome_training import build_model, train_folds
from tides.experiments.runner import Cell, Context
from tides.nn import TIDESConfig
from tides.records import Record
from tides.training import TrainConfig
from tides.training.config import BOOKKEEPING
from tides.turns import Turns, finished

NAME = "ablations"
BASE = "base"
"""The name of the cells without a change."""
_POOL = "pool"


@dataclass(frozen=True)
class AblationConfig:
    """A resolved configuration file, without its tables."""

    base: str
    """A variant of the experiment physiome."""
    datasets: tuple[str, ...]
    folds: int
    instances: int
    input_drop: float


@dataclass(frozen=True)
class Change:
    """What differs from the base."""

    factor: str
    value: str
    against: str = BASE
    """The name of the cell that it is compared with."""
    model: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.factor}-{self.value}" if self.factor else BASE


def cells(config: Mapping[str, Any], *, variant: str, quick: bool) -> list[Cell]:
    """The base on every dataset, then factor by factor."""
    tables = ("model", "train", "change")
    chosen = build(AblationConfig, {name: value for name, value in config.items() if name not in tables})
    if chosen.folds < 1:
        raise ConfigError(f"folds: found {chosen.folds}, wanted at least 1")
    changes = _changes(config["change"])
    base = files.load("physiome", chosen.base, quick=False, settings=[])
    model = {**base["model"], **config["model"]}
    epochs = config["train"]["epochs"]
    training = {**base["train"], **config["train"], "monitor": "loss", "calibrate": "none"}
    # A short run warms up for a tenth of it at most.
    training["warmup_epochs"] = min(training["warmup_epochs"], epochs // 10)
    train = {k: v for k, v in TrainConfig.from_dict(training).to_dict().items() if k not in BOOKKEEPING}
    names = _datasets(chosen.datasets)
    found = []
    for factor in dict.fromkeys(change.factor for change in changes):
        for dataset in names:
            pooled = dataset in regimes.NAMES
            for change in changes:
                if change.factor != factor or (factor and pooled != (factor == _POOL)):
                    continue
                architecture = TIDESConfig.from_dict({**model, **change.model, "input_size": _channels(dataset)})
                cell = {
                    "experiment": NAME,
                    "variant": variant,
                    "quick": quick,
                    "dataset": dataset,
                    **({} if pooled else physiome_folds.identity(dataset)),
                    "factor": change.factor,
                    "value": change.value,
                    "against": change.against,
                    "changed": dict(change.model),
                    "folds": chosen.folds,
                    "parity": base["parity"],
                    "instances": chosen.instances,
                    "query_mode": base["query_mode"],
                    "architecture": architecture.to_dict(),
                    "train": train,
                }
                if chosen.input_drop and not pooled:
                    cell["input_drop"] = chosen.input_drop
                found.append(Cell(NAME, f"{dataset}-{change.name}", cell, quick))
    return found


def obstacle(cell: Cell) -> str | None:
    """Whether the dataset is at hand."""
    dataset = cell.config["dataset"]
    return None if dataset in regimes.NAMES else physiome_folds.obstacle(dataset)


def run(cell: Cell, context: Context) -> Record:
    """One cell by itself."""
    return finished(turns(cell, context))


def turns(cell: Cell, context: Context) -> Turns[Record]:
    """Train all folds as one population and look at the test instances."""
    if cell.config["dataset"] in regimes.NAMES:
        return regimes.train_folds(cell, context)
    return train_folds(cell, context, build_model)


def _changes(entries: Sequence[Mapping[str, Any]]) -> list[Change]:
    """The base, which changes nothing, and what the file lists."""
    found = [Change("", "")]
    for place, entry in enumerate(entries):
        if not isinstance(entry.get("model"), Mapping):
            raise ConfigError(f"change[{place}].model: wanted a table of the fields that differ")
        plain = build(Change, {k: v for k, v in entry.items() if k != "model"}, f"change[{place}].")
        found.append(Change(plain.factor, plain.value, plain.against, entry["model"]))
    names = [change.name for change in found]
    for change in found:
        if names.count(change.name) > 1:
            raise ConfigError(f"change: {change.name} is there twice")
        if change.against not in names:
            raise ConfigError(f"change {change.name}, against: found {change.against!r}, wanted {', '.join(names)}")
    return found


def _datasets(chosen: Sequence[str]) -> list[str]:
    """Forecasting datasets as the experiment physiome knows them, and classification tasks."""
    forecasting = physiome_folds.names([name for name in chosen if name not in regimes.NAMES])
    return [*forecasting, *dict.fromkeys(name for name in chosen if name in regimes.NAMES)]


def _channels(dataset: str) -> int:
    return regimes.channels(dataset) if dataset in regimes.NAMES else physiome_folds.channels(dataset)
