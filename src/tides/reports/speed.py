"""The report of the speed benchmark: time and memory against length, with the paper's points, and every number."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tides.errors import DataError
from tides.records import Record, timestamp, to_record, write_json
from tides.reports.document import MARKDOWN
from tides.reports.page import heading, page, paragraph, picture
from tides.reports.published import published
from tides.reports.selection import check_experiments, load_records
from tides.reports.speed_figure import draw
from tides.reports.speed_summary import NAME, latest, machine, summarise
from tides.reports.table import Table

TITLE = "Speed: time and memory of a training step"
# Both measure the same cells, so that either report can show the records of either.
_MEASURED = (NAME, "efficiency")
_COLUMNS = ["workload", "backend", "L", "step ms", "in a row ms", "forward ms", "graph ms", "peak MB", "tokens/s"]
# How many times faster and smaller than the naive model and the transformer.
_RATIOS = ["naive: time ×", "memory ×", "transformer: time ×", "memory ×", "% of ceiling"]


def report(source: Path, where: Sequence[str] = (), out: Path | None = None) -> tuple[Path, str]:
    """Write page, figures and tables; `source` is a folder of records or a file written by `bench speed --json`."""
    records = read_results(source, where)
    out = out or (source.parent / f"{source.stem}-report" if source.is_file() else source / "report")
    out.mkdir(parents=True, exist_ok=True)
    parts, summary, markdown = [paragraph(_INTRODUCTION)], [], []
    for number, name in enumerate(dict.fromkeys(machine(record) for record in records)):
        group = [record for record in records if machine(record) == name]
        found = summarise(group)
        parts.append(heading(name))
        suffix = f"-{number}" if number else ""
        if any(record.config["workload"] == "paper-100k" and record.results["status"] == "ok" for record in group):
            image = draw(group, out, f"speed{suffix}")
            parts.append(picture(image, "Time and memory against length, logarithmic axes", _CAPTION))
        table = cell_table(found)
        (out / f"speed{suffix}.csv").write_text(table.to_csv(), encoding="utf-8")
        markdown.append(f"{name}. {table.to_markdown()}")
        parts += [table.to_html(), *(paragraph(text) for text in notes(found, group))]
        summary.append("\n".join([name, "", table.to_text(), "", *notes(found, group)]))
    (out / MARKDOWN).write_text("\n".join(markdown), encoding="utf-8")
    path = out / "index.html"
    path.write_text(page(TITLE, parts, _provenance(records)), encoding="utf-8")
    return path, "\n\n".join(summary)


def read_results(source: Path, where: Sequence[str] = ()) -> list[Record]:
    """The newest record of every cell below a folder, or those of one results file."""
    if not source.is_file():
        return latest(load_records(source, where, experiments=_MEASURED)[0])
    if where:
        raise DataError(f"--where {where[0]}: {source} is a file of results; choose from a folder of records instead")
    other = f"{source}: not a file of `tides bench speed --json`"
    try:
        content = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{other} ({error})") from error
    entries = content.get("records") if isinstance(content, dict) else None
    if not entries or not isinstance(entries, list):
        raise DataError(other)
    records = [to_record(entry, f"{other}, record {place}") for place, entry in enumerate(entries)]
    check_experiments(records, _MEASURED, source)
    return latest(records)


def write_results(path: Path, records: Sequence[Record], protocol: dict[str, Any]) -> None:
    """One file with everything: how it was measured, what follows from it, and the records themselves."""
    write_json(
        path,
        {
            "experiment": NAME,
            "written": timestamp(),
            "protocol": protocol,
            "summary": summarise(records),
            "records": [asdict(record) for record in records],
        },
    )


def cell_table(summary: dict[str, Any]) -> Table:
    """One row per cell; what was not measured says why."""
    rows = []
    for row in summary["rows"]:
        cells = [row["workload"], row["backend"], f"{row['length']:,}"]
        if row["status"] != "ok":
            rows.append([*cells, row["status"], *[""] * (len(_COLUMNS) + len(_RATIOS) - 4)])
            continue
        graph, forward = row["graph"] or {}, row["forward"]
        spread = row["step"]["std"]
        cells += [_milliseconds(row["step"]["median"]) + (f"\n± {_milliseconds(spread)}" if spread else "")]
        cells += [_milliseconds(part["median"]) if part else "" for part in (row["in_a_row"], forward)]
        cells += [_milliseconds(graph["step"]["median"]) if "step" in graph else graph.get("status", "")]
        cells += [_number(row["memory"]["peak"] / 1e6), f"{row['tokens_per_second']:,.0f}"]
        for rival in ("to_naive", "to_transformer"):
            cells += [_number(row[rival][what]) if rival in row else "" for what in ("time", "memory")]
        cells += [" / ".join(f"{100 * part:.1f}" for part in row.get("ceiling_fraction", {}).values())]
        rows.append(cells)
    return Table(_COLUMNS + _RATIOS, rows, "Median of repeats after warm-up, ± standard deviation.")


def notes(summary: dict[str, Any], records: Sequence[Record]) -> list[str]:
    """What belongs to the table: ceiling, anchors, slopes, reasons, and how busy the machine was."""
    found = []
    if summary["ceiling"]:
        rates = summary["ceiling"]["matmul_flop_per_second"].items()
        rate = ", ".join(f"{value / 1e12:.3g} TFLOP/s in {name}" for name, value in rates)
        copy = summary["ceiling"]["copy_bytes_per_second"] / 1e9
        found.append(f"Ceiling measured in the same run: {copy:,.3g} GB/s of copying; matrix products {rate}.")
    for anchor in summary["anchors"]:
        verdict = "within" if anchor["within"] else "outside"
        found.append(
            f"Naive model, {anchor['workload']}, L={anchor['length']:,}: {anchor['time_ratio']:.2f} × the time and "
            f"{anchor['memory_ratio']:.2f} × the memory of the {anchor['source']}; {verdict} ±25 %"
            + ("." if anchor["within"] else ", so no ratio to it is reported.")
        )
    if not summary["anchors"] and any(row["backend"] == "naive" for row in summary["rows"]):
        found.append("No anchor for the naive model on this machine, so no ratio to it is reported.")
    for slope in summary["slopes"]:
        low, high = slope["lengths"]
        found.append(
            f"{slope['workload']}, {slope['backend']}: time grows as L^{slope['time']:.2f}, "
            f"memory as L^{slope['memory']:.2f} from {low:,} to {high:,}."
        )
    for row in summary["rows"]:
        graph = row.get("graph") or {}
        for name, reason in (("", row["reason"]), (" as a CUDA graph", graph.get("reason"))):
            if reason:
                found.append(f"{row['workload']}, {row['backend']}, L={row['length']:,}{name}: {reason}")
    loads = [load for record in records for load in record.results.get("load_average", []) if load is not None]
    cpus = int(records[0].environment["cpus"])
    if loads and max(loads) > cpus:
        found.append(f"The machine was busy: load average up to {max(loads):.1f} on {cpus} processors.")
    return found


def _milliseconds(seconds: float) -> str:
    return _number(seconds * 1e3)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _provenance(records: Sequence[Record]) -> str:
    found = records[-1].environment
    return (
        f"{len(records)} cells, finished {max(record.finished for record in records)}; Python {found['python']}, "
        f"torch {found['torch']}, CUDA {found['cuda']}, triton {found['triton']}, numba {found['numba']}."
    )


_INTRODUCTION = (
    "A training step is forward, backward and Adam in float32; a forward pass is evaluation without gradients. Peak "
    "memory is what the model, its optimiser, the batch and the step need; on a GPU library workspaces are not part "
    "of it. `naive` builds B_k and C_k for every step and scans recursively, as the authors' release does; "
    "`transformer` has four layers, about as many parameters, and fused attention. "
    f"Published points: {published(NAME)['source']}"
)
_CAPTION = (
    "Training step of the paper's 100,000-parameter configuration. Hollow: the paper's own table, on another GPU. "
    "Crosses: the authors' release on this kind of machine."
)
