"""The report of the ablations: what each single change does to the error, over datasets and in sum."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tides.errors import DataError
from tides.records import Record
from tides.reports import ablations_figure
from tides.reports.document import Document
from tides.reports.selection import load_records
from tides.reports.statistics import bootstrap_mean, wilcoxon
from tides.reports.table import Table

NAME = "ablations"
TITLE = "Ablations: one factor at a time"
BASE = "base"
_SHARED = ("train", "folds", "instances", "parity", "query_mode")
_FORECASTING = ("input_drop",)
"""What all forecasting tasks share, and classification does not have."""


class Change(NamedTuple):
    """What differs from the base; the base itself changes nothing."""

    factor: str
    value: str

    @property
    def name(self) -> str:
        return f"{self.factor}-{self.value}" if self.factor else BASE


Results = dict[Change, dict[str, Record]]
"""Records by change and dataset, in the order in which they were found."""


def report(folder: Path, where: Sequence[str] = (), out: Path | None = None) -> tuple[Path, str]:
    """Write page, figure and tables; returns the page's path and a summary for a terminal."""
    records, quick = load_records(folder, where, experiments=[NAME])
    results = gather(records)
    document = Document(TITLE, out or folder / "report")
    document.say(_INTRODUCTION)
    ratios = {change: paired_ratios(change, results, "test") for change in results if change.factor}
    ratios = {change: found for change, found in ratios.items() if found}
    if ratios:
        document.show(ablations_figure.draw(ratios, document.out), "Ratio of errors for every change", _CAPTION)
    document.table("ablations", effect_table(results))
    document.section("Every dataset")
    document.table("ablations-datasets", dataset_table(results), main=False)
    document.section("Every fold")
    document.table("ablations-folds", fold_table(results), main=False)
    return document.write(records, quick)


def gather(records: Sequence[Record]) -> Results:
    """Records by change; what differs in more than the change cannot stand in the same table."""
    results: Results = {}
    ordered = sorted(records, key=lambda r: (r.config["factor"], r.config["value"], r.config["dataset"]))
    for record in ordered:
        config = record.config
        sets = results.setdefault(Change(config["factor"], config["value"]), {})
        other = sets.get(config["dataset"], ordered[0])
        if config["dataset"] in sets or _differ(record, other):
            raise DataError(
                f"{config['dataset']}, {config['factor']}-{config['value']}: differs from other records in more than "
                "its change; choose some with --where key=value"
            )
        sets[config["dataset"]] = record
    return results


def _differ(one: Record, two: Record) -> bool:
    """Whether two cells differ in training, folds, or a field of the model that neither of them is about."""
    first, second = one.config, two.config
    touched = {*first.get("changed", {}), *second.get("changed", {}), "input_size"}
    ours, theirs = first.get("architecture", {}), second.get("architecture", {})
    shared = (*_SHARED, *_FORECASTING) if _measure(one) == _measure(two) == "mse" else _SHARED
    return any(first.get(name) != second.get(name) for name in shared) or any(
        ours[name] != theirs.get(name) for name in ours if name not in touched
    )


def _measure(record: Record) -> str:
    """How the error is called: mean squared error, or negative log-likelihood of classes."""
    return "mse" if "test_mse" in record.results["folds"][0] else "nll"


def loss(record: Record, part: str) -> float:
    """Mean over folds of the squared error, or of the negative log-likelihood where classes are asked for."""
    values = fold_losses(record, part)
    return math.nan if None in values else float(np.mean(values))


def fold_losses(record: Record, part: str = "test") -> list[Any]:
    """The loss of every fold; None where it diverged."""
    name = f"{'val' if part == 'validation' else part}_{_measure(record)}"
    return [fold[name] for fold in record.results["folds"]]


def paired_ratios(change: Change, results: Results, part: str) -> dict[str, float]:
    """Loss with the change ÷ loss of what it is compared with, for every dataset that has both."""
    found = {}
    for dataset, record in results[change].items():
        other = next((c for c in results if c.name == record.config["against"]), None)
        if other is None or dataset not in results[other]:
            continue
        ratio = loss(record, part) / loss(results[other][dataset], part)
        if math.isfinite(ratio):
            found[dataset] = ratio
    return found


def effect_table(results: Results) -> Table:
    """One row per change: geometric means of the ratios, and a test over datasets."""
    rows = []
    for change, sets in results.items():
        if not change.factor:
            continue
        against = next(iter(sets.values())).config["against"]
        row = [change.factor, change.value, "" if against == BASE else against]
        test, validation = (paired_ratios(change, results, part) for part in ("test", "validation"))
        diverged = sum(math.isnan(loss(record, "test")) for record in sets.values())
        counted = f"{len(test)}, and {diverged} diverged" if diverged else str(len(test))
        if not test:
            rows.append([*row, counted, "nothing to compare with", "", "", ""])
            continue
        logs = np.log(list(test.values()))
        low, high = np.exp(bootstrap_mean(logs)) if len(logs) > 1 else (math.nan, math.nan)
        shown = f"{np.exp(logs.mean()):.3f}" + (f"\n{low:.3f}–{high:.3f}" if len(logs) > 1 else "")
        chosen = f"{np.exp(np.log(list(validation.values())).mean()):.3f}" if validation else "–"
        better = sum(ratio < 1 for ratio in test.values())
        p = f"{wilcoxon(logs, 0 * logs).p:.3f}" if len(logs) > 1 else "–"
        rows.append([*row, counted, shown, chosen, f"{better} of {len(test)}", p])
    columns = ["factor", "change", "against", "datasets", "test ratio", "validation ratio", "better on", "Wilcoxon p"]
    caption = (
        "Error with the change ÷ error without it, geometric mean over datasets with a 95 % bootstrap interval; "
        "above 1 the change hurts."
    )
    return Table(columns, rows, caption)


def dataset_table(results: Results) -> Table:
    """Test loss of every change on every dataset."""
    names = sorted({dataset for sets in results.values() for dataset in sets})
    rows = []
    for change, sets in results.items():
        cells = [_shown(sets[name]) if name in sets else "not run" for name in names]
        rows.append([change.name, *cells])
    caption = "Test error (regimes-…: negative log-likelihood), mean ± standard deviation over folds."
    return Table(["change", *names], rows, caption)


def fold_table(results: Results) -> Table:
    """Every fold behind the means."""
    rows = []
    for change, sets in results.items():
        for dataset, record in sets.items():
            shown = " ".join("diverged" if value is None else f"{value:.4f}" for value in fold_losses(record))
            rows.append([change.name, dataset, shown, f"{record.results['parameters']:,}", f"{record.seconds:.0f}"])
    return Table(["change", "dataset", "test loss of each fold", "parameters", "seconds"], rows, "One row per cell.")


def _shown(record: Record) -> str:
    values = fold_losses(record)
    if None in values:
        return "diverged"
    spread = f"\n± {np.std(values, ddof=1):.4f}" if len(values) > 1 else ""
    return f"{np.mean(values):.4f}{spread}"


_INTRODUCTION = (
    "Around the `recommended` configuration of Physiome-ODE one choice is changed at a time, on the same folds with "
    "the same seeds; some changes make sense only beside another one and are compared with that. Pooling is varied on "
    "two embedded classification tasks, because a forecast pools nothing. The validation ratio is what a choice may "
    "be based on; the test ratio says what became of it."
)
_CAPTION = (
    "Test error with a change ÷ without it, logarithmic. Dots: datasets; bars: their geometric mean; arrows: beyond a "
    "factor of ten. Right of the line the change hurts."
)
