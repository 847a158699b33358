"""`tides sweep`: try configurations, keep the one with the best validation score, and write it as TOML.

Any number of processes may work on one storage; see `tides.experiments.sweep_study` for how they share the trials.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from tides.atomic import atomic_write
from tides.errors import ConfigError, TidesError
from tides.experiments import EXPERIMENTS
from tides.experiments.config import build, default_variant, load, parse_settings, read_toml
from tides.experiments.runner import Cell
from tides.experiments.sweep_space import PAPER_SPACES, Choice, Real, Settings, Space, Whole, parse_space
from tides.experiments.sweep_table import EstimatorName, OwnTable
from tides.experiments.sweep_target import (
    JUDGED,
    Direction,
    EstimatorTarget,
    ExperimentTarget,
    Target,
    evaluate_folds,
)
from tides.experiments.toml_text import to_toml
from tides.records import Record, write_record

NAME = "sweep"
PUBLISHED_TRIALS = 10


@dataclass(frozen=True)
class Sweep:
    """One study: what is tuned, over which space."""

    name: str
    target: Target
    space: Space
    notes: tuple[str, ...] = ()
    """What a reader of the result should know about the space."""


@dataclass(frozen=True)
class Options:
    """How a sweep is carried out."""

    trials: int
    storage: str
    seed: int = 0
    sampler: Literal["random", "tpe"] = "random"
    prune: bool = True
    all_folds: bool = False
    """Evaluate the chosen configuration on five folds, as published."""
    heartbeat: int = 10
    """Seconds between signs of life; a worker that is silent for six times as long counts as dead."""

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise ConfigError(f"--trials: found {self.trials}, wanted at least 1")
        if self.heartbeat < 1:
            raise ConfigError(f"--heartbeat: found {self.heartbeat}, wanted at least 1 second")


@dataclass(frozen=True)
class Result:
    """Where a finished sweep left its files."""

    name: str
    record: Record
    record_path: Path
    chosen: Path


@dataclass(frozen=True)
class _Task:
    estimator: EstimatorName
    system: str = "calcium"
    series: int = 200
    seed: int = 0
    table: OwnTable | None = None


@dataclass(frozen=True)
class _File:
    """A user's file, without its tables `settings` and `space`."""

    experiment: str | None = None
    variant: str | None = None
    objective: str | None = None
    direction: Direction = "minimise"
    task: _Task | None = None


def paper_sweeps(
    experiment: str, *, variant: str | None, quick: bool, settings: Sequence[str], datasets: Sequence[str], device: str
) -> list[Sweep]:
    """One sweep per data set over the paper's space."""
    judged, paper = JUDGED[experiment], PAPER_SPACES[experiment]
    space, others = _hold(paper, parse_settings(settings))
    fixed: Settings = {**judged.first_fold, **others}
    if experiment == "physiome":
        # Everything that the published rows hold is drawn, but for the groups, of which the space knows one.
        fixed = {"configuration": "shared", "model.groups": 1, **fixed}
    chosen = variant or default_variant(experiment)
    whole = ExperimentTarget(experiment, chosen, quick, fixed, judged.objective, "minimise", device)
    found = []
    for name in datasets or dict.fromkeys(cell.config["dataset"] for cell in whole.cells(space.example())):
        target = replace(whole, fixed={**fixed, "datasets": [name]})
        found.append(Sweep(f"{experiment}-{name}", target, space, tuple(_published_outside(experiment, name, paper))))
    return found


def file_sweep(path: Path, *, quick: bool, settings: Sequence[str], device: str) -> Sweep:
    """The sweep that a user's TOML file describes."""
    content = read_toml(path)
    own: Settings = content.pop("settings", {})
    if not isinstance(own, dict):
        raise ConfigError(f"settings: found {own!r}, wanted a table of settings")
    space = parse_space(content.pop("space", {}))
    if both := sorted(set(own) & set(space.parameters)):
        raise ConfigError(f"{path}: {both[0]} stands in settings and in space; wanted it in one of them")
    space, others = _hold(space, parse_settings(settings))
    fixed: Settings = {**own, **others}
    file = build(_File, content)
    target: Target
    if file.task is not None and file.experiment is None:
        task = file.task
        if meant := [name for name in ("variant", "objective", "direction") if name in content]:
            raise ConfigError(f"{meant[0]}: belongs to an experiment; a [task] is judged by its validation loss")
        if quick:
            raise ConfigError("--quick: a [task] has no quick settings; wanted fewer epochs or series in the file")
        cells = [name for name in ("system", "series") if name in content["task"]]
        if cells and task.table is not None:
            raise ConfigError(f"task.{cells[0]}: belongs to simulated cells; leave it out beside [task.table]")
        target = EstimatorTarget(task.estimator, task.system, task.series, task.seed, fixed, device, task.table)
    elif file.experiment is not None and file.task is None:
        if file.experiment not in EXPERIMENTS:
            raise ConfigError(f"experiment: found {file.experiment!r}, known are {', '.join(EXPERIMENTS)}")
        judged = JUDGED.get(file.experiment)
        if judged is not None:
            fixed = {**judged.first_fold, **fixed}
        objective = file.objective or (judged.objective if judged else None)
        if objective is None:
            raise ConfigError(
                f"objective: {file.experiment} has no validation score of its own; name one of its results"
            )
        variant = file.variant or default_variant(file.experiment)
        target = ExperimentTarget(file.experiment, variant, quick, fixed, objective, file.direction, device)
    else:
        raise ConfigError(f"{path}: wanted either experiment = … or a table [task]")
    return Sweep(path.stem, target, space)


def run_sweep(
    sweep: Sweep,
    options: Options,
    folder: Path,
    watch: Callable[[int, Sequence[int]], None] = lambda settled, awaited: None,
) -> Result:
    """Settle all trials, here or in other workers, then write the record and the chosen configuration."""
    from tides.experiments import sweep_study as studies

    target, space = sweep.target, sweep.space
    if options.all_folds and not (isinstance(target, ExperimentTarget) and target.experiment in JUDGED):
        raise ConfigError(f"--protocol published: there are folds for {', '.join(JUDGED)} only")
    target.check(space.example())
    config = {
        "sweep": sweep.name,
        "target": target.identity(),
        "space": space.to_dict(),
        "seed": options.seed,
        "sampler": options.sampler,
    }
    prune = (
        options.prune and target.prunable and "monitor" not in {name.rpartition(".")[2] for name in space.parameters}
    )
    notes = list(sweep.notes)
    if options.prune and not prune:
        notes.append("no trial was pruned, because training does not watch the score that the sweep is judged by")
    common: dict[str, Any] = {"sampler": options.sampler, "seed": options.seed, "heartbeat": options.heartbeat}
    study = studies.open_study(
        options.storage, sweep.name, direction=target.direction, identity=config, prune=prune, **common
    )

    def objective(trial: Any) -> float:
        drawn = {name: _draw(trial, name, parameter) for name, parameter in space.parameters.items()}
        try:
            return target.score(space.settings(drawn), _Listener(trial, target.direction))
        except torch.OutOfMemoryError as error:
            raise TidesError(f"out of memory on {target.device}, which other workers may share") from error

    settled = studies.settle(study, objective, options.trials, watch=watch)
    finished = [trial for trial in settled if trial.value is not None and trial.state.name == "COMPLETE"]
    if not finished:
        errors = [studies.error_of(trial) for trial in settled]
        raise TidesError(f"{sweep.name}: no trial could be computed; the first one: {errors[0]}")
    sign = 1 if target.direction == "minimise" else -1
    best = min(finished, key=lambda trial: (sign * (trial.value or 0.0), studies.slot_of(trial)))
    results: dict[str, Any] = {
        "direction": target.direction,
        "best": {"trial": studies.slot_of(best), "value": best.value, "settings": space.settings(best.params)},
        "trials": [_row(trial, studies.slot_of(trial), studies.error_of(trial)) for trial in settled],
        "importance": studies.importances(finished, target.direction),
        "notes": notes,
    }
    chosen = folder / "chosen" / f"{sweep.name}.toml"
    _write_chosen(sweep, results, options.seed, chosen)
    if options.all_folds:
        assert isinstance(target, ExperimentTarget)
        # One trial of a second study: several workers share it as they share the others.
        folds = studies.open_study(
            options.storage, f"{sweep.name}-folds", direction="minimise", identity=config, prune=False, **common
        )
        place, settings = folder / "folds", space.settings(best.params)
        (done,) = studies.settle(folds, lambda _: evaluate_folds(target, settings, place)["mean"], 1)
        if error := studies.error_of(done):
            raise TidesError(f"{sweep.name}: {error}")
        results["folds"] = evaluate_folds(target, settings, place)
    cell = Cell(NAME, sweep.name, config, isinstance(target, ExperimentTarget) and target.quick)
    record = cell.record(results, sum(row["seconds"] for row in results["trials"]))
    write_record(cell.path(folder), record)
    return Result(sweep.name, record, cell.path(folder), chosen)


def _hold(space: Space, settings: Settings) -> tuple[Space, Settings]:
    """Parameters of the space that `--set` fixes are not drawn; the other settings go to the target."""
    held = {name: value for name, value in settings.items() if name in space.parameters}
    return space.hold(held), {name: value for name, value in settings.items() if name not in held}


class _Listener:
    """Tells the study the best validation score so far, and ends a trial that the median has left behind."""

    def __init__(self, trial: Any, direction: Direction) -> None:
        self._trial, self._better = trial, min if direction == "minimise" else max
        self._best: float | None = None

    def __call__(self, fraction: float) -> None:
        """Fractions are not shown: a sweep counts trials."""

    def epoch(self, epoch: int, value: float) -> None:
        from optuna import TrialPruned

        self._best = value if self._best is None else self._better(self._best, value)
        self._trial.report(self._best, epoch)
        if self._trial.should_prune():
            raise TrialPruned


def _draw(trial: Any, name: str, parameter: Choice | Whole | Real) -> Any:
    if isinstance(parameter, Choice):
        return trial.suggest_categorical(name, list(parameter.values))
    if isinstance(parameter, Whole):
        return trial.suggest_int(name, parameter.low, parameter.high, step=parameter.step, log=parameter.log)
    return trial.suggest_float(name, parameter.low, parameter.high, log=parameter.log)


def _row(trial: Any, slot: int, error: str | None) -> dict[str, Any]:
    begin, end = trial.datetime_start, trial.datetime_complete
    return {
        "trial": slot,
        "state": "failed" if error else trial.state.name.lower(),
        "value": trial.value if trial.state.name == "COMPLETE" else None,
        "drawn": trial.params,
        "epochs": sorted(trial.intermediate_values.items()),
        "seconds": (end - begin).total_seconds() if begin and end else 0.0,
        "error": error,
    }


def _write_chosen(sweep: Sweep, results: Mapping[str, Any], seed: int, path: Path) -> None:
    best, trials = results["best"], len(results["trials"])
    command, config = sweep.target.chosen(best["settings"])
    head = (
        f"# {command} {path.name}\n# Chosen by `tides sweep`: trial {best['trial']} of {trials}, "
        f"seed {seed}, validation score {best['value']:.6g}.\n\n"
    )
    with atomic_write(path) as file:
        file.write((head + to_toml(config)).encode())


def _published_outside(experiment: str, dataset: str, space: Space) -> list[str]:
    """Where the published configuration of a data set lies outside the paper's own space."""
    if experiment == "uea":
        from tides.experiments.uea_series import EMBEDDED

        table = load("uea", "paper", quick=False, settings=())["configuration"]
        rows = [row for row in table if row["dataset"] != EMBEDDED]
        named = [{f"configuration.{k}": v for k, v in row.items()} for row in rows if row["dataset"] == dataset]
    else:
        from tides.experiments.physiome import TRAINING_FIELDS, published_rows

        row = published_rows().get(dataset, {})
        named = [{f"{'train' if name in TRAINING_FIELDS else 'model'}.{name}": value for name, value in row.items()}]
    return [f"the published {note}" for row in named for note in space.outside(row)]
