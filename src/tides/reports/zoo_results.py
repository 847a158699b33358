"""Our results of the baselines beside the published ones: budgets, missing seeds and differences in plain sight."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tides.records import Record
from tides.reports.physiome_tables import fold_errors
from tides.reports.published import published, shipped
from tides.reports.statistics import mean_std
from tides.reports.table import Table

NOT_RUN = "not run"
# Seeds or folds of a published number, and of a complete one of ours.
_WHOLE = 5
_CLEAR = 2.0
_WALKER = "walker"
# Names in the classification experiments that differ from the registry's.
_IN_EXPERIMENTS = {"s5": "walker-s5"}
_TRIVIAL = {"zero": "zero", "last-value": "last", "observed-mean": "mean"}


class Sample(NamedTuple):
    """Mean and standard deviation over `size` seeds or folds; NaN where unknown."""

    mean: float
    std: float
    size: int = _WHOLE

    def differs(self, other: "Sample") -> bool:
        """By more than two standard errors of the difference; False where that is not known."""
        error = math.sqrt(self.std**2 / self.size + other.std**2 / other.size)
        return abs(self.mean - other.mean) > _CLEAR * error


def accuracy_table(records: Sequence[Record], facts: Sequence[Mapping[str, str]]) -> Table:
    """Test accuracy of every classifier: published, below it ours."""
    numbers = published("uea")
    models = {entry["name"]: entry for entry in [*numbers["model"], *numbers["later"]]}
    rows = []
    for fact in facts:
        known = models.get(fact.get("published", ""))
        row, ran = [fact["name"]], False
        for place, dataset in enumerate(numbers["datasets"]):
            theirs = None if known is None else Sample(known["mean"][place], known["std"][place])
            splits = fact.get("splits", _WALKER)
            own = _seeds(records, fact["name"], dataset, splits)
            notes = []
            if not own and splits != _WALKER and (own := _seeds(records, fact["name"], dataset, _WALKER)):
                notes.append(f"`{_WALKER}` splits")
            ran = ran or bool(own)
            values = [100 * float(record.results["test"]["accuracy"]) for record in own]
            row.append(_cell(theirs, values, [*notes, *short_of_steps(own)], "seeds", 1))
        if known is not None or ran:
            rows.append(row)
    caption = (
        "Test accuracy in %, published, below it ours with inputs as the archive has them, on `walker` splits (RFormer "
        "and Transformer: `rformer`, unless said). One test case is one to three points. " + _MARKS
    )
    return Table(["model", *numbers["datasets"]], rows, caption)


def error_table(records: Sequence[Record], facts: Sequence[Mapping[str, str]]) -> Table:
    """Test error of every forecaster on the datasets where one of ours was run: published, below it ours."""
    numbers = published("physiome")
    by_dataset = {row["dataset"]: row for row in numbers["rows"]}
    names = {fact["name"] for fact in facts}
    ran = {record.config["dataset"] for record in records if record.config["model"] in names}
    datasets = [name for name in by_dataset if name in ran]
    rows = []
    for fact in facts:
        row, known = [fact["name"]], False
        for dataset in datasets:
            theirs = _published_error(numbers, by_dataset[dataset], fact)
            own = [record for record in records if record.config["dataset"] == dataset]
            values, notes = list[float](), list[str]()
            if fact["name"] in _TRIVIAL:
                values = _trivial(own, _TRIVIAL[fact["name"]])
            else:
                longest = _longest([record for record in own if record.config["model"] == fact["name"]])
                if longest is not None:
                    values, notes = fold_errors(longest), _short_of_epochs(longest)
            known = known or theirs is not None or bool(values)
            row.append(_cell(theirs, values, notes, "folds", 3))
        if known and datasets:
            rows.append(row)
    caption = (
        "Test mean squared error on Physiome-ODE, published, below it ours on folds of our own making, for the "
        f"{len(datasets)} of fifty datasets where a baseline was run. " + _MARKS
    )
    return Table(["model", *datasets], rows, caption)


def _cell(theirs: Sample | None, values: list[float], more: list[str], unit: str, digits: int) -> str:
    known = theirs is not None and not math.isnan(theirs.mean)
    lines = [f"{theirs.mean:.{digits}f} ± {theirs.std:.{digits}f}" if theirs is not None and known else "–"]
    if not values:
        return f"{lines[0]}\n{NOT_RUN}"
    lost = sum(map(math.isnan, values))
    kept = [value for value in values if not math.isnan(value)]
    if not kept:
        return f"{lines[0]}\nours diverged"
    mean, std = mean_std(kept)
    spread = "" if len(kept) == 1 else f" ± {std:.{digits}f}"
    lines.append(f"ours {mean:.{digits}f}{spread}")
    notes = [f"{len(kept)} of {_WHOLE} {unit}"] if len(kept) < _WHOLE else []
    notes += [f"{lost} diverged"] if lost else []
    notes += more
    if theirs is not None and known and Sample(mean, std, len(kept)).differs(theirs):
        notes.append("differs")
    return "\n".join([*lines, *([", ".join(notes)] if notes else [])])


def _seeds(records: Sequence[Record], name: str, dataset: str, splits: str) -> list[Record]:
    """One record for each seed, that with the largest budget."""
    wanted = (_IN_EXPERIMENTS.get(name, name), dataset, splits, "paper")
    keys = ("model", "dataset", "protocol", "preset")
    found: dict[int, Record] = {}
    for record in records:
        if tuple(record.config[key] for key in keys) == wanted:
            seed = record.config["seed"]
            found[seed] = max(found.get(seed, record), record, key=lambda r: _steps(r) or 0)
    return [found[seed] for seed in sorted(found)]


def _steps(record: Record) -> int | None:
    steps: int | None = record.config.get("train", {}).get("steps")
    return steps


def short_of_steps(own: Sequence[Record]) -> list[str]:
    """The budget, where it ended a run before the published rule would have."""
    cut = [record for record in own if record.results.get("stopped") == "epochs" and not _all_epochs(record)]
    budgets = sorted({steps for record in cut if (steps := _steps(record)) is not None})
    return [f"stopped after {' or '.join(f'{steps:,}' for steps in budgets)} steps"] if budgets else []


def _all_epochs(record: Record) -> bool:
    """Whether a published number of epochs was trained to its end."""
    wanted = record.config.get("configuration", {}).get("train", {}).get("epochs")
    return wanted is not None and record.results["epochs"] >= wanted


def _longest(own: Sequence[Record]) -> Record | None:
    return max(own, key=lambda record: record.config["train"]["epochs"], default=None)


def _short_of_epochs(record: Record) -> list[str]:
    """The budget, where it ended a fold before the epochs of the shipped settings."""
    epochs = record.config["train"]["epochs"]
    whole = shipped(record.config["model"], "Physiome-ODE")["train"]["epochs"]
    cut = any(fold["stopped"] == "epochs" for fold in record.results["folds"])
    return [f"stopped after {epochs} epochs"] if cut and epochs < whole else []


def _trivial(own: Sequence[Record], name: str) -> list[float]:
    """Errors of a predictor that learns nothing, from the record with the most folds."""
    best = max(own, key=lambda record: len(record.results["folds"]), default=None)
    return [] if best is None else [float(fold["trivial_mse"][name]) for fold in best.results["folds"]]


def _published_error(numbers: Mapping[str, Any], row: Mapping[str, Any], fact: Mapping[str, str]) -> Sample | None:
    if fact.get("published") not in numbers["models"]:
        return None
    place = numbers["models"].index(fact["published"])
    return Sample(row["mse"][place], row["std"][place])


_MARKS = (
    f"Mean ± standard deviation over {_WHOLE} seeds or folds, unless fewer are named; `stopped after`: a budget ended "
    "training before the published rule would have; `differs`: by more than two standard errors of the difference."
)
