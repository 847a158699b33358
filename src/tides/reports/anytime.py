"""The report of the any-time experiment: error against horizon, up to four times the one that was trained for."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tides.errors import DataError
from tides.records import Record
from tides.reports import anytime_figure
from tides.reports.document import Document
from tides.reports.selection import load_records, lookup
from tides.reports.statistics import bootstrap_mean, spread, wilcoxon
from tides.reports.table import Table

NAME = "anytime"
TITLE = "Any time: beyond the horizon that was trained for"
LABELS = {"tides": "TIDES", "s5": "S5", "mamba-s": "Mamba_S"}
_MODES = ("steps", "readout")
_SHARED = ("sampling", "bins", "train")
_DIGITS = 4


class Comparison(NamedTuple):
    """What can stand in one figure."""

    variant: str
    system: str


class Line(NamedTuple):
    """One curve: a model and the way in which it is asked."""

    mode: str
    model: str

    @property
    def title(self) -> str:
        return f"{LABELS.get(self.model, self.model)}, {self.mode}"


Results = dict[Line, list[Record]]


def report(folder: Path, where: Sequence[str] = (), out: Path | None = None) -> tuple[Path, str]:
    """Write page, figures and tables; returns the page's path and a summary for a terminal."""
    records, quick = load_records(folder, where, experiments=[NAME])
    document = Document(TITLE, out or folder / "report")
    document.say(_INTRODUCTION)
    for comparison, results in gather(records).items():
        name = f"anytime-{comparison.system}-{comparison.variant}"
        document.section(f"{comparison.system}, configuration {comparison.variant}")
        document.show(
            anytime_figure.draw(results, LABELS, document.out, name),
            f"Error against horizon on {comparison.system}",
            _CAPTION,
        )
        document.table(name, horizon_table(results, comparison.system))
        document.table(f"{name}-differences", difference_table(results))
        document.table(f"{name}-seeds", seed_table(results), main=False)
    document.say(_ALONE)
    return document.write(records, quick)


def gather(records: Sequence[Record]) -> dict[Comparison, Results]:
    """Records by comparison and line, in the order of their seeds."""
    found: dict[Comparison, Results] = {}
    order = list(LABELS)
    for record in sorted(records, key=lambda r: int(r.config["seed"])):
        config = record.config
        results = found.setdefault(Comparison(config["variant"], config["system"]), {})
        group = results.setdefault(Line(config["query_mode"], config["model"]), [])
        first = next((records[0] for records in results.values() if records), record).config
        twice = any(other.config["seed"] == config["seed"] for other in group)
        mixed = bool(group) and {**config, "seed": 0} != {**group[0].config, "seed": 0}
        if twice or mixed or any(config.get(name) != first.get(name) for name in _SHARED):
            raise DataError(
                f"{config['system']}, {config['model']}, {config['query_mode']}, seed {config['seed']}: records with "
                "different settings; choose one with --where key=value"
            )
        group.append(record)

    def rank(item: tuple[Line, list[Record]]) -> tuple[int, int, str]:
        line = item[0]
        known = order.index(line.model) if line.model in order else len(order)
        return _MODES.index(line.mode), known, line.model

    return {key: dict(sorted(results.items(), key=rank)) for key, results in sorted(found.items())}


def horizon_table(results: Results, system: str) -> Table:
    """Mean ± standard deviation over seeds inside the training horizon, beyond it, and in every further horizon."""
    fullest = max(results.values(), key=len)
    bins = fullest[0].results["bins"]
    reach = round(bins[-1]["to"])
    rows = []
    for line in _lines(results):
        records = results.get(line)
        if not records:
            rows.append([line.title, "", "", *["not run"] * (reach + 5)])
            continue
        cells = [_spread([record.results[key] for record in records]) for key in ("within_mse", "beyond_mse")]
        ratio = np.mean([record.results["beyond_mse"] / record.results["within_mse"] for record in records])
        parameters = f"{records[0].results['parameters']:,}"
        together, alone = (_by_horizon(records, name) for name in ("mse", "alone_mse"))
        shown = [*together, alone[0], alone[-1]]
        rows.append([line.title, parameters, str(len(records)), *cells, f"{ratio:.2f}", *shown])
    for name in bins[0]["trivial_mse"]:
        means = _by_horizon(fullest, f"trivial_mse.{name}")
        beyond = _pooled(fullest, f"trivial_mse.{name}", 1, reach) if reach > 1 else "–"
        rows.append([f"predict {name}", "–", str(len(fullest)), means[0], beyond, "–", *means, means[0], means[-1]])
    columns = ["model, asked by", "parameters", "seeds", "within", "beyond", "beyond ÷ within"]
    columns += [f"horizon {number}" for number in range(1, reach + 1)]
    caption = (
        f"{system}: test error within and beyond the training horizon, and in each horizon of that length. "
        "Last two columns: where only the questions of one bin are asked."
    )
    return Table([*columns, "horizon 1, alone", f"horizon {reach}, alone"], rows, caption)


def _by_horizon(records: Sequence[Record], key: str) -> list[str]:
    """The error in each horizon."""
    reach = round(records[0].results["bins"][-1]["to"])
    return [_pooled(records, key, horizon, horizon + 1) for horizon in range(reach)]


def _pooled(records: Sequence[Record], key: str, low: float, high: float) -> str:
    """Mean over seeds of the error between two horizons, where every target counts alike, as in `within_mse`."""
    means = []
    for record in records:
        bins = [entry for entry in record.results["bins"] if low <= entry["from"] < high and entry["targets"]]
        found = [lookup(entry, key) for entry in bins]
        means.append(np.average(found, weights=[entry["targets"] for entry in bins]) if bins else np.nan)
    return f"{np.nanmean(means):.{_DIGITS}f}"


def _lines(results: Results) -> list[Line]:
    """The lines of the experiment, run or not, and whatever else was run."""
    return list(dict.fromkeys([*(Line(mode, model) for mode in _MODES for model in LABELS), *results]))


def difference_table(results: Results) -> Table:
    """TIDES against the others in the same mode, and the modes of each model against each other; beyond the horizon."""
    pairs = [
        (Line(mode, "tides"), line)
        for mode in _MODES
        for line in results
        if line.mode == mode and line.model != "tides"
    ]
    pairs += [(Line("readout", model), Line("steps", model)) for model in dict.fromkeys(line.model for line in results)]
    rows = []
    for ours, theirs in pairs:
        logs = _log_ratios(results.get(ours, []), results.get(theirs, []))
        if len(logs) < 2:
            continue
        low, high = np.exp(bootstrap_mean(logs))
        p = wilcoxon(logs, 0 * logs).p
        shown = f"{np.exp(logs.mean()):.3f}\n{low:.3f}–{high:.3f}"
        rows.append([f"{ours.title} ÷ {theirs.title}", str(len(logs)), shown, f"{p:.3f}"])
    caption = "Ratio of errors beyond the training horizon, geometric mean over seeds with a 95 % bootstrap interval."
    return Table(["ratio of", "seeds", "ratio", "Wilcoxon p"], rows, caption)


def seed_table(results: Results) -> Table:
    """Every number behind the figure."""
    first = next(iter(results.values()))[0].results["bins"]
    rows = []
    for line, records in results.items():
        for record in records:
            cells = ["–" if value is None else f"{value:.4f}" for value in (e["mse"] for e in record.results["bins"])]
            ends = f"{record.results['best_epoch']} of {record.results['epochs']}"
            rows.append([line.title, str(record.config["seed"]), *cells, ends, f"{record.seconds:.1f}"])
    columns = ["model, asked by", "seed", *(f"–{entry['to']:g}" for entry in first), "best epoch", "seconds"]
    return Table(columns, rows, "Error in every bin (its right end in training horizons), one row per seed.")


def _log_ratios(ours: Sequence[Record], theirs: Sequence[Record]) -> NDArray[np.float64]:
    other: Mapping[int, Record] = {record.config["seed"]: record for record in theirs}
    pairs = [(record, other[record.config["seed"]]) for record in ours if record.config["seed"] in other]
    return np.log([one.results["beyond_mse"] / two.results["beyond_mse"] for one, two in pairs])


def _spread(values: Sequence[float]) -> str:
    return spread(values, _DIGITS)


_INTRODUCTION = (
    "Models are trained to answer questions up to one horizon after the observed window and are then asked up to four "
    "horizons ahead, on longer trajectories of the same systems. `steps`: a question is a step of the sequence, so "
    "that it changes the state and the answers after it. `readout`: the state evolves to the time of the question and "
    "nothing is written back; asking more changes no answer. The paper leaves open which of its models extrapolate in "
    "time. All models here are causal and have about the same number of parameters."
)
_CAPTION = (
    "Test error against the time since the end of the window, in training horizons: mean over seeds, band: ± one "
    "standard deviation. Dotted: the end of the training horizon. Dashed, in `steps`: only the questions of one bin "
    "are asked. Grey: predicting the mean of what was observed (dashed) and the last value."
)
_ALONE = (
    "In `steps` mode all questions of a series were asked together. The records also hold the error where only the "
    "questions of one bin are asked (`alone_mse`); in `readout` mode both are the same number."
)
