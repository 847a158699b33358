"""The report of sweeps: what was tried, what was best, which choices mattered."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tides.records import Record
from tides.reports import sweep_figures
from tides.reports.document import Document
from tides.reports.selection import load_records
from tides.reports.table import Table

NAME = "sweep"
TITLE = "Sweeps"


def report(folder: Path, where: Sequence[str] = (), out: Path | None = None) -> tuple[Path, str]:
    """Write page, figures and tables of all sweeps below `folder`; the path of the page, and a summary."""
    records, quick = load_records(folder, where, experiments=[NAME])
    document = Document(TITLE, out or folder / "report")
    document.say(_INTRODUCTION)
    document.table("sweeps", summary_table(records))
    for record in records:
        name, results = record.config["sweep"], record.results
        document.section(name)
        for note in results["notes"]:
            document.say(f"Note: {note}.")
        document.table(f"{name}-chosen", chosen_table(name, results))
        image = sweep_figures.draw_history(results, document.out, f"{name}-history")
        document.show(image, f"{name}: validation score of every trial in order", _HISTORY)
        if results["importance"] is None:
            document.say("Too few trials were finished to say which parameters mattered.")
        else:
            image = sweep_figures.draw_importance(results["importance"], document.out, f"{name}-importance")
            document.show(image, f"{name}: importance of every parameter", _IMPORTANCE)
        image = sweep_figures.draw_parallel(record.config["space"], results, document.out, f"{name}-parallel")
        document.show(image, f"{name}: parameters and score of every finished trial", _PARALLEL)
        document.table(f"{name}-trials", trial_table(name, results), main=False)
    return document.write(records, quick)


def summary_table(records: Sequence[Record]) -> Table:
    """One row per sweep."""
    rows = []
    for record in records:
        results = record.results
        states = [row["state"] for row in results["trials"]]
        folds = results.get("folds")
        rows.append(
            [
                record.config["sweep"],
                str(len(states)),
                str(states.count("pruned")),
                str(states.count("failed")),
                f"{results['best']['value']:.4g}\n{results['direction']}d, trial {results['best']['trial']}",
                f"{folds['mean']:.4g} ± {folds['std']:.2g}\n{folds['metric']}, five folds" if folds else "not run",
            ]
        )
    columns = ["sweep", "trials", "pruned", "failed", "best validation score", "test"]
    return Table(columns, rows, "Sweeps: trials, and the best of them on validation data.")


def chosen_table(name: str, results: dict[str, Any]) -> Table:
    """The settings of the best trial."""
    rows = [[key, _text(value)] for key, value in results["best"]["settings"].items()]
    return Table(["setting", "chosen"], rows, f"{name}: the configuration of trial {results['best']['trial']}.")


def trial_table(name: str, results: dict[str, Any]) -> Table:
    """Every trial with what was drawn for it."""
    names = list(results["trials"][0]["drawn"])
    rows = [
        [
            str(row["trial"]),
            row["state"] + (f"\n{row['error']}" if row["error"] else ""),
            "" if row["value"] is None else f"{row['value']:.4g}",
            f"{row['seconds']:.1f}",
            *(_text(row["drawn"].get(key, "")) for key in names),
        ]
        for row in results["trials"]
    ]
    return Table(["trial", "state", "score", "seconds", *names], rows, f"{name}: all trials.")


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


_INTRODUCTION = (
    "Configurations were drawn from a space and compared on validation data alone; test data appears only where the "
    "published protocol evaluates the chosen configuration on five folds. `tides run … --config` takes the files in "
    "the folder `chosen`."
)
_HISTORY = "Dots: finished trials; crosses: pruned ones at the best score they had; line: the best so far."
_IMPORTANCE = (
    "Share of each parameter in what sets the better half of the finished trials apart (PED-ANOVA). A few dozen "
    "trials or fewer give a hint, not a ranking."
)
_PARALLEL = "One line per finished trial, the darker the better; the best one is drawn in orange."
