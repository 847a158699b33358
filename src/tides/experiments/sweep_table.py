"""A sweep's data from a user's own table: what `tides train` would train on, and the command that does."""

import shlex
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from tides.data.dataset import IrregularDataset
from tides.data.ingest import Unlabelled
from tides.data.pivot import Duplicates
from tides.errors import ConfigError

EstimatorName = Literal["classifier", "regressor", "forecaster"]
_TASKS: dict[str, tuple[str, Any]] = {
    "classifier": ("classify", "class"),
    "regressor": ("regress", "number"),
    "forecaster": ("forecast", "auto"),
}


@dataclass(frozen=True)
class OwnTable:
    """The options of `tides train` that describe a table, and the share that is held out for its score."""

    path: str
    time: str
    id: str | None = None
    label: str | None = None
    weight: str | None = None
    static: tuple[str, ...] = ()
    channel: str | None = None
    value: str | None = None
    channels: tuple[str, ...] | None = None
    group: str | None = None
    unit: str | None = None
    duplicates: Duplicates = "error"
    unlabelled: Unlabelled = "error"
    cut: float | str | None = None
    test: float = 0.2

    def check(self, estimator: EstimatorName) -> None:
        """Raise for a table that this estimator cannot learn from, before it is read."""
        if not Path(self.path).exists():
            raise ConfigError(f"task.table.path: {self.path}: no such file")
        if self.label is None and estimator != "forecaster":
            raise ConfigError(f"task.table.label: missing; a {estimator} needs a column of labels")
        if self.cut is not None and estimator != "forecaster":
            raise ConfigError(f"task.table.cut: found {self.cut!r}, but a {estimator} learns from whole series")
        if self.id is None and self.cut is None:
            raise ConfigError("task.table.id: missing; a table that is one long series needs cut")
        if not 0 <= self.test < 1:
            raise ConfigError(f"task.table.test: found {self.test}, wanted a share from 0 up to, not including, 1")

    def read(self, estimator: EstimatorName, seed: int) -> IrregularDataset:
        """The series that `tides train` trains on with this seed; those it holds out play no part in the choice."""
        return _read(self, estimator, seed)

    def command(self, estimator: EstimatorName, seed: int, horizon: Any) -> str:
        """`tides train` for this table, holding out the same series."""
        words = ["tides", "train", self.path, "--task", _TASKS[estimator][0]]
        for name in ("id", "time", "label", "weight", "static", "channel", "value", "channels", "group", "unit", "cut"):
            found = getattr(self, name)
            if found:
                words += [f"--{name}", ",".join(found) if isinstance(found, tuple) else str(found)]
        words += ["--horizon", str(horizon)] if horizon is not None else []
        words += ["--duplicates", self.duplicates, "--unlabelled", self.unlabelled, "--test", f"{self.test:g}"]
        return shlex.join([*words, "--seed", str(seed), "--out", "model"])


@lru_cache(maxsize=1)
def _read(table: OwnTable, estimator: EstimatorName, seed: int) -> IrregularDataset:
    from tides.estimators.inputs import Columns, Labels, read_series
    from tides.estimators.recipe import hold_out

    roles = {field.name: getattr(table, field.name) for field in fields(Columns) if hasattr(table, field.name)}
    labels: Labels = "ignored" if estimator == "forecaster" else "required"
    data = read_series(
        Path(table.path),
        None,
        Columns(**roles, layout=None),
        labels=labels,
        label_kind=_TASKS[estimator][1],
        schema=None,
        weights=True,
    )
    return hold_out(data, table.test, seed, table.cut)[0]
