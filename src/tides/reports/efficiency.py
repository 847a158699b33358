"""The report of training time and memory: the paper's table, measured here, with its memory limit marked."""

import math
from collections.abc import Sequence
from pathlib import Path

from tides.errors import DataError
from tides.records import Record
from tides.reports import speed_figure
from tides.reports.document import Document
from tides.reports.published import published
from tides.reports.speed import read_results
from tides.reports.speed_summary import machine
from tides.reports.table import Table

NAME = "efficiency"
TITLE = "Training time and memory against length"
LENGTHS = (1000, 5000, 10_000)
CAP = 24e9
"""Bytes of the GPU on which the paper measured."""
_WORKLOAD = "paper-100k"
_NAMES = {
    "triton": "TIDES",
    "cpu": "TIDES, compiled loops",
    "torch": "TIDES, plain torch",
    "reference": "TIDES, reference",
    "naive": "TIDES, naive",
    "transformer": "transformer",
    "rformer": "RFormer, ours",
}


def report(source: Path, where: Sequence[str] = (), out: Path | None = None) -> tuple[Path, str]:
    """Write page, figure and table; `source` holds records of this experiment or of `tides bench speed`."""
    records = [record for record in read_results(source, where) if record.config["workload"] == _WORKLOAD]
    if not records:
        raise DataError(f"{source}: no record of the configuration {_WORKLOAD}")
    document = Document(
        TITLE, out or (source.parent / f"{source.stem}-efficiency" if source.is_file() else source / "report")
    )
    document.say(_INTRODUCTION)
    for number, name in enumerate(dict.fromkeys(map(machine, records))):
        group = [record for record in records if machine(record) == name]
        document.section(name)
        suffix = f"-{number}" if number else ""
        document.table(f"efficiency{suffix}", step_table(group, name))
        if any(record.results["status"] == "ok" for record in group):
            image = speed_figure.draw(group, document.out, f"efficiency{suffix}")
            document.show(image, "Time and memory of a training step against length, logarithmic axes", _CAPTION)
    document.section("Published")
    document.table("efficiency-published", published_table())
    document.say(f"Source: {published('speed')['source']}")
    return document.write(records)


def step_table(records: Sequence[Record], where: str) -> Table:
    """Rows: lengths. Two columns per model: mean ± standard deviation of a step, and peak memory."""
    found = {(record.config["backend"], record.config["length"]): record for record in records}
    # A benchmark has lengths that the paper's table has not; whoever ran this experiment at others wants to see them.
    lengths = sorted({*LENGTHS, *(record.config["length"] for record in records if record.experiment == NAME)})
    backends = [backend for backend in _NAMES if any(key[0] == backend for key in found)]
    rows = []
    for length in lengths:
        row = [f"{length:,}"]
        for backend in backends:
            row += _cells(found.get((backend, length)))
        rows.append(row)
    columns = ["L"]
    for backend in backends:
        columns += [f"{_NAMES[backend]}: ms", "MB"]
    caption = f"{where}: training step, mean ± standard deviation of repeated steps, and peak memory (10⁶ bytes)."
    return Table(columns, rows, caption)


def published_table() -> Table:
    """The paper's numbers."""
    entries = published("speed")["published"]
    rows = []
    for length in LENGTHS:
        row = [f"{length:,}"]
        for entry in entries:
            if length in entry["lengths"]:
                place = entry["lengths"].index(length)
                spread = entry["std"][place]
                row += [f"{entry['time'][place]} ± {spread}", f"{entry['memory'][place]:,}"]
            else:
                row += ["out of memory", ""]
        rows.append(row)
    columns = ["L"]
    for entry in entries:
        columns += [f"{entry['model']}: ms", "MB"]
    return Table(columns, rows, f"Published, on a {published('speed')['device']} with 24 GB.")


def _cells(record: Record | None) -> list[str]:
    if record is None:
        return ["not run", ""]
    results = record.results
    if results["status"] != "ok":
        return [results["status"], ""]
    step, memory = results["step"], results["memory"]["peak"]
    spread = "" if step["std"] is None else f" ± {_number(1e3 * step['std'])}"
    note = f"\n{step['repeats']} steps"
    graph = results.get("graph") or {}
    if "step" in graph:
        note += f", as a CUDA graph {_number(1e3 * graph['step']['mean'])}"
    return [
        f"{_number(1e3 * step['mean'])}{spread}{note}",
        f"{memory / 1e6:,.0f}" + ("\nover 24 GB" if memory > CAP else ""),
    ]


def _number(value: float) -> str:
    digits = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{value:,.{min(digits, 2)}f}"


_INTRODUCTION = (
    "A training step is forward, backward and Adam in float32 at batch 8 with one channel. `naive` builds B_k and C_k "
    "for every step and scans as the authors' release does; the transformer has as many layers and about as many "
    "parameters, and fused attention, which the paper's RFormer has not. Our RFormer has it too, a token for every "
    "observation, and besides its 95,441 parameters 16 of a learned position code for every token: 111,441 at 1,000 "
    "steps, 255,441 at 10,000. Peaks beyond 24 GB, the memory of the paper's "
    "GPU, are marked. Up to a few thousand steps an eager step waits for launches; as a CUDA graph it does "
    "not."
)
_CAPTION = (
    "Training step against length. Hollow: the paper's own table, on another GPU. Crosses: the authors' release on "
    "this kind of machine."
)
