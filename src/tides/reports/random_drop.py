"""The report of the drop-rate experiment: accuracy against the share of hidden steps, six variants side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tides.errors import DataError
from tides.records import Record
from tides.reports import random_drop_figure
from tides.reports.document import Document
from tides.reports.published import published
from tides.reports.selection import load_records
from tides.reports.statistics import bootstrap_mean, mean_std, wilcoxon
from tides.reports.table import Table

NAME = "random-drop"
TITLE = "Random drop: another sampling density at test time"
LABELS: dict[str, str] = {entry["model"]: entry["name"] for entry in published(NAME)["model"]}
_VARIANTS = [model for model in LABELS if model != "rformer"]
_SHARED = ("drop", "protocol", "scaling", "first_channel")

Results = dict[str, list[Record]]
"""Records of one data set by model, in the order of their seeds."""


def report(folder: Path, where: Sequence[str] = (), out: Path | None = None) -> tuple[Path, str]:
    """Write page, figures and tables; returns the page's path and a summary for a terminal."""
    records, quick = load_records(folder, where, experiments=[NAME])
    document = Document(TITLE, out or folder / "report")
    document.say(_INTRODUCTION)
    for (dataset, preset), results in gather(records).items():
        name = f"{dataset}-{preset}"
        document.section(f"{dataset}, preset {preset}")
        image = random_drop_figure.draw(results, LABELS, document.out, f"random-drop-{name}")
        document.show(image, f"Accuracy against drop rate on {dataset}", _CAPTION)
        document.table(f"random-drop-{name}", rate_table(results, f"{dataset}, preset {preset}"))
        document.table(f"random-drop-{name}-differences", difference_table(results))
        document.table(f"random-drop-{name}-seeds", seed_table(results), main=False)
    document.section("Published, on EigenWorms")
    document.table("random-drop-published", published_table())
    document.say(f"Source: {published(NAME)['source']}")
    if not any(record.config["dataset"] == published(NAME)["dataset"] for record in records):
        document.say("EigenWorms itself was not run here: put its file into the data folder and run it again.")
    return document.write(records, quick)


def gather(records: Sequence[Record]) -> dict[tuple[str, str], Results]:
    """Comparisons by data set and preset; records of one model differ in their seeds only, models in what they are."""
    found: dict[tuple[str, str], Results] = {}
    for record in sorted(records, key=lambda r: (_rank(r.config["model"]), r.config["seed"])):
        config = record.config
        results = found.setdefault((config["dataset"], config["preset"]), {})
        first = next(iter(results.values()), [record])[0].config
        if any(config[key] != first[key] for key in _SHARED) or _training(config) != _training(first):
            raise DataError(
                f"{config['dataset']}, {config['preset']}: records with different settings of drop or training; "
                "choose one with --where key=value"
            )
        same = results.setdefault(config["model"], [])
        twice = any(other.config["seed"] == config["seed"] for other in same)
        if twice or (same and {**config, "seed": 0} != {**same[0].config, "seed": 0}):
            raise DataError(
                f"{config['dataset']}, {config['preset']}, {label(config['model'])}, seed {config['seed']}: records of "
                "one model with different settings; choose one with --where key=value"
            )
        same.append(record)
    return dict(sorted(found.items()))


def accuracy(records: Sequence[Record]) -> NDArray[np.float64]:
    """(seeds, rates)."""
    return np.array([[entry["accuracy"] for entry in record.results["test"]] for record in records])


def rates(results: Results) -> list[float]:
    """The shares of hidden steps that were tested."""
    first = next(iter(results.values()))[0]
    return [entry["rate"] for entry in first.results["test"]]


def rate_table(results: Results, what: str) -> Table:
    """Mean ± standard deviation over seeds at every rate, and over all rates."""
    rows = []
    for model in _models(results):
        found = results.get(model)
        if not found:
            rows.append([label(model), "", "", *["not run"] * (len(rates(results)) + 1)])
            continue
        values = accuracy(found)
        parameters = found[0].results["parameters"]
        cells = [_spread(column) for column in values.T]
        rows.append([label(model), f"{parameters:,}", str(len(found)), *cells, _spread(values.mean(axis=1))])
    columns = ["model", "parameters", "seeds", *(f"r={rate:g}" for rate in rates(results)), "mean"]
    trained = next(iter(results.values()))[0].config["drop"]["train"]
    caption = (
        f"{what}: test accuracy by share r of hidden steps, trained at r={trained:g}; mean ± standard deviation over "
        "seeds."
    )
    return Table(columns, rows, caption)


def difference_table(results: Results) -> Table:
    """TIDES against each other variant on the same splits, over all rates and at the largest one."""
    rows = []
    ours = {record.config["seed"]: accuracy([record])[0] for record in results.get("tides", [])}
    for model in _models(results):
        theirs = {record.config["seed"]: accuracy([record])[0] for record in results.get(model, [])}
        seeds = sorted(ours.keys() & theirs.keys())
        if model == "tides" or len(seeds) < 2:
            continue
        difference = np.array([ours[seed] - theirs[seed] for seed in seeds])
        cells = []
        for column in (difference.mean(axis=1), difference[:, -1]):
            low, high = bootstrap_mean(100 * column)
            cells += [f"{100 * column.mean():+.1f}\n{low:+.1f} to {high:+.1f}", f"{wilcoxon(column, 0 * column).p:.3f}"]
        rows.append([f"TIDES − {label(model)}", str(len(seeds)), *cells])
    last = rates(results)[-1]
    columns = ["difference", "seeds", "mean over r", "Wilcoxon p", f"at r={last:g}", "Wilcoxon p "]
    caption = "Points of accuracy, paired by seed (same split, same masks), with a 95 % bootstrap interval over seeds."
    return Table(columns, rows, caption)


def seed_table(results: Results) -> Table:
    """Every number behind the figure."""
    rows = []
    for model, found in results.items():
        for record in found:
            cells = [f"{value:.4f}" for value in accuracy([record])[0]]
            best = f"{record.results['best_epoch']} of {record.results['epochs']}"
            rows.append([label(model), str(record.config["seed"]), *cells, best, f"{record.seconds:.1f}"])
    columns = ["model", "seed", *(f"r={rate:g}" for rate in rates(results)), "best epoch", "seconds"]
    masks = next(iter(results.values()))[0].config["drop"]["masks"]
    return Table(columns, rows, f"One row per seed; each value is the mean over {masks} fixed masks.")


def published_table() -> Table:
    """The paper's own table."""
    numbers = published(NAME)
    rows = []
    for entry in numbers["model"]:
        cells = [f"{value:.3f}" for value in entry["accuracy"]]
        rows.append([entry["name"], f"{entry['parameters']:,}", *cells, f"{entry['mean']:.3f}"])
    columns = ["model", "parameters", *(f"r={rate:g}" for rate in numbers["rates"]), "mean"]
    return Table(columns, rows, "EigenWorms, published: test accuracy by share of hidden steps.")


def label(model: str) -> str:
    """How a model is called in tables."""
    return LABELS.get(model, model)


def _models(results: Results) -> list[str]:
    """The six variants, run or not, and whatever else was run."""
    return [*_VARIANTS, *(model for model in results if model not in _VARIANTS)]


def _rank(model: str) -> tuple[int, str]:
    return (_VARIANTS.index(model) if model in _VARIANTS else len(_VARIANTS), model)


def _training(config: dict[str, Any]) -> dict[str, Any]:
    """What all models of a comparison share; weight decay belongs to the paper's block."""
    return {name: value for name, value in config["train"].items() if name != "weight_decay"}


def _spread(values: NDArray[np.float64]) -> str:
    mean, std = mean_std(values)
    return f"{mean:.3f}" if np.isnan(std) else f"{mean:.3f}\n± {std:.3f}"


_INTRODUCTION = (
    "A share of the time steps is hidden in training; at test time a share r is hidden, the same steps of a series for "
    "every model. Timestamps stay. The variants differ only in what depends on the input: "
    "S5 nothing, TIDES_Λ the decay, TIDES_BC the mixes, TIDES both, TIDES_full the frequency as well, Mamba_S the "
    "mixes and the step size itself. All have one bidirectional block and about 28,000 parameters that learn; the "
    "release, and with it the published table, counts static ones that it keeps unused, too. Every seed has its "
    "own split, so that the spread over seeds contains the choice of test cases. The best epoch is that of the best "
    "validation accuracy."
)
_CAPTION = (
    "Test accuracy against the share of hidden steps: mean over seeds, band: ± one standard error. Dotted line: the "
    "rate seen in training."
)
