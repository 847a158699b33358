"""What a sweep tunes: the settings of an experiment, or the arguments of an estimator on an embedded task.

A target turns settings into one validation score. Test cases are never part of it: what an experiment finds there
while a configuration is being tried is neither read nor kept.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from tides.data.dataset import IrregularDataset
from tides.errors import ConfigError, Diverged, TidesError
from tides.experiments import runner
from tides.experiments.config import load, put
from tides.experiments.runner import Cell, Context
from tides.experiments.sweep_space import Settings
from tides.experiments.sweep_table import EstimatorName, OwnTable
from tides.records import read_record

Direction = Literal["minimise", "maximise"]
Progress = Callable[[float], None]
FOLDS = 5
"""As many folds, or seeds, as the published protocol evaluates the chosen configuration on."""


@dataclass(frozen=True)
class Judged:
    """How an experiment is judged on validation data, and how it is brought down to one fold and up to five."""

    objective: str
    first_fold: Settings
    all_folds: Settings
    test: str


JUDGED = {
    "uea": Judged(
        "validation.loss",
        {"protocols": ["walker"], "seeds": 1},
        {"protocols": ["walker"], "seeds": FOLDS},
        "test.accuracy",
    ),
    "physiome": Judged("folds.*.val_mse", {"folds": 1}, {"folds": FOLDS}, "folds.*.test_mse"),
}


@dataclass(frozen=True)
class ExperimentTarget:
    """An experiment with fixed settings; what is drawn is put on top of them."""

    experiment: str
    variant: str
    quick: bool
    fixed: Settings
    objective: str
    direction: Direction
    device: str = field(default="cpu", compare=False)

    def config(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The whole configuration file with these settings."""
        found = load(self.experiment, self.variant, quick=self.quick, settings=())
        for name, value in {**self.fixed, **settings}.items():
            _put_in_rows(found, name, value)
        return found

    def cells(self, settings: Mapping[str, Any]) -> list[Cell]:
        """What has to be computed for these settings; unknown or contradictory ones raise."""
        module = runner.find(self.experiment)
        found: list[Cell] = module.cells(self.config(settings), variant=self.variant, quick=self.quick)
        return found

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Raise if such settings are not valid."""
        self.cells(settings)

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raise if such settings are not valid, or if the data is missing."""
        ask = getattr(runner.find(self.experiment), "obstacle", None)
        for cell in self.cells(settings):
            if ask is not None and (reason := ask(cell)) is not None:
                raise TidesError(f"{cell.label}: {reason}")

    def score(self, settings: Mapping[str, Any], progress: Progress) -> float:
        """The objective, averaged over the cells."""
        module = runner.find(self.experiment)
        stacks: dict[str, list[Cell]] = {}
        for cell in self.cells(settings):
            stacks.setdefault(cell.stack or cell.id, []).append(cell)
        context = Context(self.device, progress)
        records = [
            record
            for stack in stacks.values()
            for record in (module.run_stack(stack, context) if len(stack) > 1 else [module.run(stack[0], context)])
        ]
        return statistics.fmean(number for record in records for number in numbers(record.results, self.objective))

    def identity(self) -> dict[str, Any]:
        """Everything that a score depends on besides the drawn parameters."""
        return {
            "experiment": self.experiment,
            "objective": self.objective,
            "direction": self.direction,
            "variant": self.variant,
            "config": self.config({}),
        }

    @property
    def prunable(self) -> bool:
        """Whether what training watches, epoch by epoch, is what the sweep is judged by."""
        judged = JUDGED.get(self.experiment)
        if judged is None or (self.objective, self.direction) != (judged.objective, "minimise"):
            return False
        return bool(self.config({})["train"].get("monitor", "loss") == "loss")

    def chosen(self, settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The command that takes the configuration, and the configuration; folds or seeds as many as published."""
        more = JUDGED[self.experiment].all_folds if self.experiment in JUDGED else {}
        config = self.config({**settings, **more})
        # One row per data set is enough, and the others would not be what was chosen.
        if isinstance(config.get("configuration"), list):
            config["configuration"] = [row for row in config["configuration"] if row["dataset"] in config["datasets"]]
        return f"tides run {self.experiment} --config", config


@dataclass(frozen=True)
class EstimatorTarget:
    """An estimator on a user's own table or on simulated cells: a `classifier` names their regime, a `forecaster`
    predicts what follows.
    """

    estimator: EstimatorName
    system: str
    series: int
    seed: int
    fixed: Settings
    device: str = field(default="cpu", compare=False)
    table: OwnTable | None = None
    direction: ClassVar[Direction] = "minimise"

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Raise if the estimator does not know an argument."""
        known = self._kind()().get_params()
        for name in {**self.fixed, **settings}:
            if name.partition(".")[0] not in known or name in ("verbose", "device", "folder"):
                raise ConfigError(f"{name}: not an argument of {self._kind().__name__} that a sweep may set")
            if self.table is not None and hasattr(self.table, name):
                raise ConfigError(f"{name}: says what stands in a table; wanted it in [task.table]")
        if self.table is not None:
            self.table.check(self.estimator)
        elif self.estimator == "regressor":
            raise ConfigError("task.estimator: simulated cells have classes alone; a regressor needs [task.table]")

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raise if such settings are not valid, or if the data is missing."""
        self.check_settings(settings)
        self._data()

    def score(self, settings: Mapping[str, Any], progress: Progress) -> float:
        """The validation loss of the best epoch."""
        data = self._data()
        estimator = self._kind()(**self._arguments(settings), device=self.device, verbose=progress)
        estimator.fit(data)
        losses = [row.get("val_loss") for row in estimator.history_]
        found: list[float] = [loss for loss in losses if loss is not None]
        if not found:
            raise ConfigError(f"series: found {len(data)}, too few to keep any for validation")
        return min(found)

    def identity(self) -> dict[str, Any]:
        """Everything that a score depends on besides the drawn parameters."""
        found = {"experiment": "estimator", "estimator": self.estimator, "seed": self.seed, "fixed": self.fixed}
        if self.table is None:
            return {**found, "system": self.system, "series": self.series}
        return {**found, "table": asdict(self.table), "data": self._data().fingerprint()}

    @property
    def prunable(self) -> bool:
        """Whether what training watches, epoch by epoch, is what the sweep is judged by."""
        training = self._arguments({}).get("training") or {}
        return bool(training.get("monitor", "loss") == "loss")

    def chosen(self, settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Arguments of the estimator for `tides train`."""
        found = self._arguments(settings)
        command = "tides train …"
        if self.table is not None:
            found.pop("cut", None)
            command = self.table.command(self.estimator, self.seed, found.pop("horizon", None))
        return f"{command} --config", found

    def _data(self) -> IrregularDataset:
        from tides.data import systems

        if self.table is not None:
            return self.table.read(self.estimator, self.seed)
        return systems.classification(self.system, self.series, self.seed)

    def _arguments(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {"random_state": self.seed}
        if self.table is not None and self.table.cut is not None:
            found["cut"] = self.table.cut
        for name, value in {**self.fixed, **settings}.items():
            put(found, name, deepcopy(value))
        return found

    def _kind(self) -> Any:
        from tides import estimators

        return getattr(estimators, f"TIDES{self.estimator.capitalize()}")


Target = ExperimentTarget | EstimatorTarget


def evaluate_folds(target: ExperimentTarget, settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The published protocol's second half: all folds of the chosen configuration; records are kept in `folder`."""
    judged = JUDGED[target.experiment]
    cells = target.cells({**settings, **judged.all_folds})
    outcome = runner.run_cells(cells, folder, device=target.device)
    if outcome.failed or outcome.unavailable:
        raise TidesError("; ".join({**outcome.failed, **outcome.unavailable}.values()))
    found = [x for cell in cells for x in numbers(read_record(cell.path(folder)).results, judged.test)]
    return {"metric": judged.test.rpartition(".")[2], "mean": statistics.fmean(found), "std": statistics.stdev(found)}


def numbers(results: Any, path: str) -> list[float]:
    """The finite numbers at a dotted path of a record's results; `*` stands for every entry of a list."""
    name, _, rest = path.partition(".")
    if name == "*" and isinstance(results, list):
        entries: Sequence[Any] = results
    elif isinstance(results, list) and name.isdigit() and int(name) < len(results):
        entries = [results[int(name)]]
    elif isinstance(results, Mapping) and name in results:
        entries = [results[name]]
    else:
        known = ", ".join(results) if isinstance(results, Mapping) else f"a {type(results).__name__}"
        raise ConfigError(f"objective: {name!r} is not among the results ({known})")
    if rest:
        return [number for entry in entries for number in numbers(entry, rest)]
    for entry in entries:
        if entry is not None and (isinstance(entry, bool) or not isinstance(entry, int | float)):
            raise ConfigError(f"objective: {name!r} is a {type(entry).__name__}, wanted the path of a number")
        if entry is None or not math.isfinite(entry):
            raise Diverged(f"{name}: training left no finite value")
    return [float(entry) for entry in entries]


def _put_in_rows(config: dict[str, Any], path: str, value: Any) -> None:
    """Set a dotted path; in an array of tables, in every row that belongs to the chosen data sets."""
    *folders, last = path.split(".")
    tables = [config]
    for name in folders:
        inner = [table.setdefault(name, {}) for table in tables]
        tables = []
        for entry in inner:
            rows = entry if isinstance(entry, list) else [entry]
            if not all(isinstance(row, dict) for row in rows):
                raise ConfigError(f"{path}: {name} is a value, not a table")
            tables += [row for row in rows if entry is not rows or row.get("dataset") in config["datasets"]]
    for table in tables:
        table[last] = deepcopy(value)
