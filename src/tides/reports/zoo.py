"""The model zoo as a report: every baseline with its use, its measured cost, and our accuracy beside the published one.

Costs come from the files that `tides bench models --json` wrote, accuracies from the records of `uea` that lie beside
them (`runs/zoo/*.json`, `runs/uea/records`).
"""

import json
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from tides.errors import DataError
from tides.records import Record
from tides.reports.document import Document
from tides.reports.published import published
from tides.reports.selection import load_records
from tides.reports.table import Table

TITLE = "Model zoo: what there is and what it costs"
NOT_RUN = "not run"
_TASKS = ("classification", "forecasting")
# Names in the experiments that differ from the registry's.
_IN_EXPERIMENTS = {"s5": "walker-s5"}


@cache
def facts() -> tuple[dict[str, str], ...]:
    """One entry per baseline: name, task, what, when, licence, source, and `published` where there is a row."""
    text = (resources.files("tides.reports") / "zoo.toml").read_text(encoding="utf-8")
    return tuple(tomllib.loads(text)["model"])


def report(source: Path, where: Sequence[str] = (), out: Path | None = None) -> tuple[Path, str]:
    """Write the page; `source` is a file of `tides bench models --json` or a folder of such files."""
    measured = read_costs(source)
    folder = source if source.is_dir() else source.parent
    document = Document(TITLE, out or folder / "report")
    document.say(_INTRODUCTION)
    for task in _TASKS:
        document.section("Classifiers" if task == "classification" else "Forecasters")
        document.table(f"zoo-{task}", fact_table(task), main=False)
    document.section("Cost of a training step")
    for number, found in enumerate(measured):
        document.table(f"zoo-cost-{number}", cost_table(found))
    document.section("Accuracy beside the published one")
    records, quick = _accuracies(folder.parent / "uea", where)
    document.table("zoo-uea", accuracy_table(records))
    document.say(f"Sources: {published('uea')['source']}")
    return document.write(records, quick)


def read_costs(source: Path) -> list[dict[str, Any]]:
    """What `tides bench models` measured, one entry per file."""
    files = sorted(source.glob("*.json")) if source.is_dir() else [source]
    found = []
    for file in files:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            found.append({key: content[key] for key in ("size", "device", "machine", "threads", "load", "models")})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{file}: not a file of `tides bench models --json` ({error!r})") from error
    if not found:
        raise DataError(f"{source}: no file of `tides bench models --json` there")
    return found


def fact_table(task: str) -> Table:
    """What, when and under which licence."""
    rows = [[f["name"], f["what"], f["when"], f["licence"], f["source"]] for f in facts() if f["task"] == task]
    return Table(["name", "what it is", "when to use it", "licence of the original", "source"], rows)


def cost_table(found: dict[str, Any]) -> Table:
    """Step time, memory and size of every model of one measurement, fastest first within its task."""
    size, on_cpu = found["size"], found["device"] == "cpu"
    measured = [row for row in found["models"] if "step" in row]
    kind = "processor" if on_cpu else "step"
    measured.sort(key=lambda row: (_TASKS.index(row["task"]), row[kind]))
    rows = [
        [
            row["model"],
            row["task"],
            f"{row['parameters']:,}",
            _milliseconds(row[kind]),
            f"{row['memory'] / 1e6:.0f}",
        ]
        for row in measured
    ]
    rows += [[row["model"], "", "", row["status"], ""] for row in found["models"] if "step" not in row]
    name = found["machine"]["cpu"] if on_cpu else found["machine"]["gpu"]
    caption = (
        f"A training step on {name}: batch {size['batch']}, {size['length']} observations of {size['channels']} "
        f"channels (forecasters answer for the second half), default configurations."
    )
    if on_cpu:
        caption += f" Time that {found['threads']} thread{'s' if found['threads'] > 1 else ''} worked"
        caption += "." if found["load"] is None else f", on a machine with a load average of {found['load']:.0f}."
    return Table(["model", "task", "parameters", "ms", "peak MB"], rows, caption)


def accuracy_table(records: Sequence[Record]) -> Table:
    """Published accuracy of every classifier and data set, below it ours."""
    numbers = published("uea")
    models = {entry["name"]: entry for entry in [*numbers["model"], *numbers["later"]]}
    rows = []
    for fact in facts():
        if fact["task"] != "classification" or "published" not in fact:
            continue
        entry, row = models[fact["published"]], [fact["name"]]
        for place, dataset in enumerate(numbers["datasets"]):
            value = entry["mean"][place]
            row.append(f"{'–' if np.isnan(value) else f'{value:.1f}'}\n{_ours(records, fact['name'], dataset)}")
        rows.append(row)
    caption = (
        "Test accuracy in %, published, below it ours on the `walker` splits with inputs as the archive has them. One "
        "test case is one to three points, and rows were published with different splits."
    )
    return Table(["model", *numbers["datasets"]], rows, caption)


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.0f}" if seconds >= 1 else f"{1e3 * seconds:.3g}"


def _ours(records: Sequence[Record], name: str, dataset: str) -> str:
    wanted = (_IN_EXPERIMENTS.get(name, name), dataset, "walker", "paper")
    keys = ("model", "dataset", "protocol", "preset")
    own = [record for record in records if tuple(record.config[key] for key in keys) == wanted]
    if not own:
        return NOT_RUN
    values = [100 * float(record.results["test"]["accuracy"]) for record in own]
    return f"ours {np.mean(values):.1f} ± {np.std(values):.1f}, {len(values)} seeds"


def _accuracies(folder: Path, where: Sequence[str]) -> tuple[list[Record], int]:
    if not (folder / "records").is_dir():
        return [], 0
    try:
        return load_records(folder, where)
    except DataError:
        # Records made by --quick alone are no results; the table then says that nothing was run.
        return [], 0


_INTRODUCTION = (
    "Every system that the paper compares with, and those that hold the records since, in one harness: the same "
    "splits, the same loss, the same padding rules. Look at the cost before you start a long run."
)
