"""The report of the scale benchmark: throughput by workers as measured, and apart from it what is extrapolated."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tides.errors import DataError
from tides.reports.document import MARKDOWN
from tides.reports.page import page, paragraph
from tides.reports.table import Table

TITLE = "Scale: throughput against workers"


def report(source: Path, where: Sequence[str] = (), out: Path | None = None) -> tuple[Path, str]:
    """Write page and tables of a file that `bench scale --json` wrote."""
    if where:
        raise DataError(f"--where {where[0]}: {source} is one measurement; there are no records to choose from")
    found = read_results(source)
    out = out or source.parent / f"{source.stem}-report"
    out.mkdir(parents=True, exist_ok=True)
    tables = [table for table in (throughput_table(found), extrapolation_table(found)) if table.rows]
    for name, table in zip(("throughput", "extrapolated"), tables, strict=False):
        (out / f"{name}.csv").write_text(table.to_csv(), encoding="utf-8")
    markdown = "\n".join([*(table.to_markdown() for table in tables), " ".join(notes(found))])
    (out / MARKDOWN).write_text(markdown, encoding="utf-8")
    parts = [paragraph(text) for text in notes(found)] + [table.to_html() for table in tables]
    path = out / "index.html"
    path.write_text(page(TITLE, parts, surroundings(found)), encoding="utf-8")
    return path, "\n\n".join([*(f"{table.caption}\n\n{table.to_text()}" for table in tables), *notes(found)])


def read_results(source: Path) -> dict[str, Any]:
    """The content of such a file."""
    try:
        content = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{source}: not a file of `tides bench scale --json` ({error})") from error
    if not isinstance(content, dict) or content.get("benchmark") != "scale":
        raise DataError(f"{source}: not a file of `tides bench scale --json`")
    return content


def throughput_table(found: dict[str, Any]) -> Table:
    """One row per engine, workers and processors."""
    columns = ["engine", "workers", "processors", "cells/min", "observations/s", "efficiency"]
    columns += ["a cell, s", "its processor time, s", "efficiency of it", "besides cells, s", "other work", "load"]
    return Table(columns, [_row(row) for row in found["rows"]], f"Measured. {surroundings(found)}")


def extrapolation_table(found: dict[str, Any]) -> Table:
    """What the fit would mean for more workers; without rows where there is no fit."""
    rows = [
        [
            fit["engine"],
            str(row["workers"]),
            f"{row['speedup']:.1f}",
            "–".join(f"{value:.1f}" for value in row["speedup_range"]),
            f"{row['speedup'] / row['workers']:.0%}",
        ]
        for fit in found["fits"]
        for row in fit.get("extrapolated", [])
    ]
    shares = [
        f"{fit['engine']}: s = {fit['serial_share']:.3f} ({'–'.join(f'{x:.3f}' for x in fit['serial_share_range'])}) "
        f"from {', '.join(map(str, fit['measured']))} workers"
        for fit in found["fits"]
        if fit["serial_share"] is not None
    ]
    caption = f"Extrapolated, not measured: {found['fits'][0]['model']}; {'; '.join(shares)}." if shares else ""
    return Table(["engine", "workers", "speed-up", "range of the repeats", "efficiency"], rows, caption)


def notes(found: dict[str, Any]) -> list[str]:
    """What a reader of the tables has to know."""
    said = ["Efficiency is relative to one worker of the engine on one processor, of cells/min and of processor time."]
    if found["busy"]:
        others = max(row["other_processors"] or 0.0 for row in found["rows"])
        said.append(
            f"The machine was busy: other work took up to {others:.1f} processors. Rates are those of what was left of "
            "it, only processor times can be compared, and nothing is extrapolated."
        )
    elif all(fit["serial_share"] is None for fit in found["fits"]):
        said.append("Nothing is extrapolated: that takes two workers with a processor each.")
    return said


def surroundings(found: dict[str, Any]) -> str:
    """Machine, versions, amount of work and date in one line."""
    machine, versions, workload = found["machine"], found["environment"], found["workload"]
    repeats = max((row["repeats"] for row in found["rows"]), default=0)
    ray = (
        f", Ray {versions['ray']}" if "ray" in versions and any(row["engine"] == "ray" for row in found["rows"]) else ""
    )
    return (
        f"{machine['cpu']}, {machine['processors']} processors; torch {versions['torch']}{ray}, "
        f"Python {versions['python']}; {workload['cells_per_worker']} cells of {workload['epochs']} epochs for each "
        f"worker, repeats: {repeats}; finished {found['finished']}."
    )


def _row(row: dict[str, Any]) -> list[str]:
    low, high = row["cells_per_minute_range"]
    return [
        *(str(row[name]) for name in ("engine", "workers", "processors")),
        f"{row['cells_per_minute']:.1f}\n{low:.1f}–{high:.1f}",
        f"{row['observations_per_second']:,.0f}",
        f"{row['efficiency']:.0%}",
        *(f"{row[name]:.2f}" for name in ("cell_seconds", "processor_seconds")),
        f"{row['processor_efficiency']:.0%}",
        f"{row['other_seconds']:.1f}",
        *("" if row[name] is None else f"{row[name]:.1f}" for name in ("other_processors", "load_average")),
    ]
