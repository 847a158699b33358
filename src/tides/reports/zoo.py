"""The model zoo as a report: every baseline with its use, its measured cost, and our results beside the published ones.

Costs come from the files that `tides bench models --json` wrote, results from the records of `uea` and `physiome` that
lie beside them (`runs/zoo/*.json`, `runs/uea/records`, `runs/physiome/records`).
"""

import json
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from tides.errors import DataError
from tides.reports.document import Document
from tides.reports.published import published
from tides.reports.selection import choose, real_records
from tides.reports.table import Table
from tides.reports.zoo_results import accuracy_table, error_table

TITLE = "Model zoo: what there is and what it costs"
_TASKS = ("classification", "forecasting")


@cache
def facts() -> tuple[dict[str, str], ...]:
    """One entry per baseline: name, task, what, when, licence, source, `published` where there is a row, and `splits`
    where those are not of Walker et al."""
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
    document.section("Results beside the published ones")
    series, quick_series = real_records(folder.parent / "uea", ["uea"])
    forecasts, quick_forecasts = real_records(folder.parent / "physiome", ["physiome"])
    chosen = choose([*series, *forecasts], where)
    series = [record for record in chosen if record.experiment == "uea"]
    forecasts = [record for record in chosen if record.experiment == "physiome"]
    document.table("zoo-uea", accuracy_table(series, _of("classification")))
    document.say(f"Sources: {published('uea')['source']}")
    errors = error_table(forecasts, _of("forecasting"))
    document.table("zoo-physiome", errors)
    if errors.rows:
        document.say(f"Sources: {published('physiome')['source']} {published('physiome')['caution']}")
    return document.write(chosen, quick_series + quick_forecasts)


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
    rows = [[f["name"], f["what"], f["when"], f["licence"], f["source"]] for f in _of(task)]
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


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.0f}" if seconds >= 1 else f"{1e3 * seconds:.3g}"


def _of(task: str) -> list[dict[str, str]]:
    return [fact for fact in facts() if fact["task"] == task]


_INTRODUCTION = (
    "Every system that the paper compares with, and those that hold the records since, in one harness: the same "
    "splits, the same loss, the same padding rules. Look at the cost before you start a long run."
)
