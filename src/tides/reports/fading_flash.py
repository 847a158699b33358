"""The report of Fading Flash: task, effective decays, errors, and a table beside the expected values."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tides.errors import DataError
from tides.records import Record
from tides.reports import flash_figures
from tides.reports.document import MARKDOWN, provenance
from tides.reports.page import heading, page, paragraph, picture
from tides.reports.published import published
from tides.reports.selection import load_records, lookup
from tides.reports.table import Table

NAME = "fading-flash"
TITLE = "Fading Flash: what happens when the clock runs at another speed"
_ORDER = tuple(flash_figures.LABELS)
_PLAIN = {"mamba-s": "Mamba_S", "tides-lambda": "TIDES_Λ"}
# What all models of one comparison share; `tides-refined` differs in the other training settings by design.
_SHARED = ("data", "evaluate", "train.steps", "train.batch")


@dataclass(frozen=True)
class Comparison:
    """The records of one variant, grouped by model."""

    variant: str
    records: dict[str, list[Record]]

    @property
    def config(self) -> dict[str, Any]:
        return next(iter(self.records.values()))[0].config

    @property
    def gaps(self) -> NDArray[np.float64]:
        return np.array(self.config["evaluate"]["gaps"])

    @property
    def inside(self) -> tuple[float, float]:
        low, high = self.config["data"]["gap_range"]
        return low, high

    def values(self, name: str) -> dict[str, NDArray[np.float64]]:
        """One result of all seeds per model that has it; what is missing in a record is not a number."""
        return {
            model: np.array([record.results[name] for record in group], dtype=float)
            for model, group in self.records.items()
            if name in group[0].results
        }


def report(folder: Path, where: Sequence[str] = (), out: Path | None = None) -> tuple[Path, str]:
    """Write page, figures and tables to `out`; returns the page's path and a summary for a terminal."""
    records, quick = load_records(folder, where, experiments=[NAME])
    out = out or folder / "report"
    out.mkdir(parents=True, exist_ok=True)
    pictures = [record for record in records if record.config["model"] == "task"]
    comparisons = compare([record for record in records if record.config["model"] != "task"])
    if not comparisons:
        raise DataError(f"{folder}: there is no record of a trained model yet")

    parts = [paragraph(_INTRODUCTION)]
    if pictures:
        image = flash_figures.task(pictures[0], out)
        parts.append(picture(image, "Flashes, zones and glow at three gaps", _TASK_CAPTION))
    summary, markdown = [], []
    for comparison in comparisons:
        table = error_table(comparison)
        name = comparison.variant
        (out / f"{name}-errors.csv").write_text(table.to_csv(), encoding="utf-8")
        (out / f"{name}-seeds.csv").write_text(seed_table(comparison).to_csv(), encoding="utf-8")
        parts += _section(comparison, table, out, pictures)
        tables = [found for found in (table, expected_table(comparison)) if found]
        summary += [f"Variant {name}. {found.caption}\n\n{found.to_text()}" for found in tables]
        markdown += [f"Variant {name}. {found.to_markdown()}" for found in tables]
    (out / MARKDOWN).write_text("\n".join(markdown), encoding="utf-8")
    if quick:
        parts.append(paragraph(f"{quick} records made by `--quick` are not shown."))
    path = out / "index.html"
    path.write_text(page(TITLE, parts, provenance(records)), encoding="utf-8")
    return path, "\n\n".join(summary)


def compare(records: Sequence[Record]) -> list[Comparison]:
    """One comparison per variant; two protocols for one variant cannot be drawn into the same figure."""
    found = []
    for variant in sorted({record.config["variant"] for record in records}, key=lambda v: (v != "paper", v)):
        members = [record for record in records if record.config["variant"] == variant]
        for key in _SHARED:
            _same(members, key, variant)
        names = sorted({record.config["model"] for record in members}, key=_rank)
        groups = {}
        for name in names:
            group = [record for record in members if record.config["model"] == name]
            _same(group, "train", f"{variant} {name}")
            _same(group, "source", f"{variant} {name}")
            groups[name] = sorted(group, key=lambda record: int(record.config["seed"]))
        found.append(Comparison(variant, groups))
    return found


def error_table(comparison: Comparison) -> Table:
    """Median and range over seeds per model and gap."""
    columns = ["model", "parameters", "seeds", *(f"Δ={gap:g}" for gap in comparison.gaps)]
    rows = []
    for model, errors in comparison.values("relative_error").items():
        group = comparison.records[model]
        row = [_plain(model), str(group[0].results["published_parameters"]), str(len(group))]
        for column in errors.T:
            lost = np.count_nonzero(~np.isfinite(column))
            if lost:
                row.append(f"diverged\n{lost} of {len(column)}")
            elif len(column) == 1:
                row.append(_number(column[0]))
            else:
                row.append(f"{_number(np.median(column))}\n{_number(column.min())}–{_number(column.max())}")
        rows.append(row)
    return Table(columns, rows, "Relative error in % by test gap Δ: median over seeds, below it the range.")


def expected_table(comparison: Comparison) -> Table | None:
    """Seed 0 above the value expected for it, if the paper's protocol was followed."""
    expected, rows = _expected(comparison), []
    for model, errors in comparison.values("relative_error").items():
        first = comparison.records[model][0].config["seed"] == 0
        if not first or not any(name == model for name, _ in expected):
            continue
        found = [_number(error) for error in errors[0]]
        wanted = [expected.get((model, gap), "") for gap in comparison.gaps]
        rows.append([f"{_plain(model)}\nexpected"] + [f"{a}\n{b}" for a, b in zip(found, wanted, strict=True)])
    columns = ["model", *(f"Δ={gap:g}" for gap in comparison.gaps)]
    return Table(columns, rows, "Relative error in %: seed 0, below it the expected value.") if rows else None


def seed_table(comparison: Comparison) -> Table:
    """Every number behind the figures: one row per model and seed."""
    rows = []
    for model, group in comparison.records.items():
        for record in group:
            errors = ["" if value is None else repr(value) for value in record.results["relative_error"]]
            rows.append([model, str(record.config["seed"]), *errors])
    return Table(["model", "seed", *(f"{gap:g}" for gap in comparison.gaps)], rows)


def _section(comparison: Comparison, table: Table, out: Path, pictures: list[Record]) -> list[str]:
    name, gaps, inside = comparison.variant, comparison.gaps, comparison.inside
    rates = pictures[0].results["rates"] if pictures else [1.0, 1.5, 2.0]
    data, source = comparison.config["data"], published(NAME)["source"]
    parts = [heading(f"Variant: {name}")]
    if data["input_noise"] or data["output_noise"]:
        parts.append(
            paragraph(
                f"White noise on every input channel (σ = {data['input_noise']:g}) and on the training targets "
                f"(σ = {data['output_noise']:g}); errors are measured on noisy inputs against the clean glow."
            )
        )
    image = flash_figures.errors(comparison.values("relative_error"), gaps, inside, out, f"{name}-errors")
    parts.append(picture(image, "Relative error against the test gap", _ERROR_CAPTION))
    parts.append(table.to_html())
    expected = expected_table(comparison)
    if expected:
        parts += [expected.to_html(), paragraph(f"Expected values: {source}")]
    if "tides-refined" in comparison.records:
        parts.append(paragraph(_REFINED))
    for result, caption in (("mode_decay", _MODE_CAPTION), ("response_decay", _RESPONSE_CAPTION)):
        values = comparison.values(result)
        if values:
            image = flash_figures.decays(values, gaps, rates, inside, out, f"{name}-{result.replace('_', '-')}")
            parts.append(picture(image, f"Effective decay against the test gap ({result})", caption))
    return parts


def _expected(comparison: Comparison) -> dict[tuple[str, float], str]:
    """What one should see, if the paper's protocol was followed; nothing otherwise."""
    numbers, found = published(NAME), {}
    protocol = numbers["protocol"]
    for entry in numbers["relative_error"]:
        group = comparison.records.get(entry["model"])
        if group is None:
            continue
        config = {**group[0].config["data"], **group[0].config["train"]}
        if any(config[key] != value for key, value in protocol.items()):
            continue
        low, high = entry["low"], entry["high"]
        text = f"≈{low:g}" if low == high else f"{low:g}–{high:g}"
        found.update({(entry["model"], gap): text for gap in entry["gaps"]})
    return found


def _same(records: Sequence[Record], key: str, what: str) -> None:
    found = {str(lookup(record.config, key)): record for record in records}
    if len(found) > 1:
        raise DataError(
            f"{what}: the records hold {len(found)} different settings of {key} ({'; '.join(found)}); "
            "choose one with --where key=value or run into another folder with --out"
        )


def _rank(model: str) -> tuple[int, str]:
    return (_ORDER.index(model) if model in _ORDER else len(_ORDER), model)


def _plain(model: str) -> str:
    return _PLAIN.get(model, flash_figures.LABELS.get(model, model))


def _number(value: float) -> str:
    if value < 0.1:
        return f"{value:.3f}" if value >= 0.001 else "<0.001"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


_INTRODUCTION = (
    "A row of 40 detectors is hit by a few flashes; each glows and fades at the rate of the zone it lies in. All "
    "models learn from sequences with a gap Δ between 0.5 and 1.5 and are then asked about gaps from 0.1 to 2. A "
    "model that keeps Δ as physical time should not notice; one that learns its own step from Δ has to extrapolate."
)
_REFINED = (
    "`tides-refined` is ours, not the paper's: the TIDES core with the same 144 parameters, data and number of steps, "
    "trained with other settings of Adam, a schedule and a penalty. Its goal is a median of at most 1 % at every gap."
)
_TASK_CAPTION = "The task: flashes (top), zones (colours) and the glow to be predicted under three gaps Δ."
_ERROR_CAPTION = (
    "Error relative to the spread of the target: median (line) and range (band) over seeds. Grey: gaps seen in "
    "training."
)
_MODE_CAPTION = (
    "Effective decay seen inside: −Re λ·δ/Δ of the mode that lies nearest the zone's true rate. A flat line at the "
    "true rate means that time stayed physical."
)
_RESPONSE_CAPTION = (
    "Effective decay seen from outside: −log of the ratio of the responses two steps and one step after a single "
    "flash, divided by Δ. Towards large gaps and fast rates hardly anything is left of the response, and every small "
    "error shows. Holes in a line: the response changed its sign."
)
