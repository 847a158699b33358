"""The report of Physiome-ODE: fifty rows in the order of their difficulty, beside seven published models."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tides.errors import DataError
from tides.records import Record
from tides.reports import physiome_figure
from tides.reports.document import Document
from tides.reports.physiome_tables import (
    excess_table,
    fold_table,
    main_table,
    pair_table,
    release_table,
    standing_table,
    time_note,
)
from tides.reports.published import published, shipped
from tides.reports.selection import load_records

NAME = "physiome"
TITLE = "Physiome-ODE: forecasting fifty biological systems"
SHARED = "recommended"
"""The variant whose configuration is the same for all datasets."""


class Group(NamedTuple):
    """What one of our columns was computed with."""

    model: str
    variant: str

    @property
    def title(self) -> str:
        return f"{self.model}, {self.variant} (ours)"


def report(folder: Path, where: Sequence[str] = (), out: Path | None = None) -> tuple[Path, str]:
    """Write page, figure and tables; returns the page's path and a summary for a terminal."""
    records, quick = load_records(folder, where, experiments=[NAME])
    groups = gather(records)
    numbers = published(NAME)
    document = Document(TITLE, out or folder / "report")
    document.say(_INTRODUCTION)
    for group, results in groups.items():
        document.say(f"{group.title}: {sum(_is_published(name) for name in results)} of 50 datasets were run.")
        for caution in cautions(group, results):
            document.say(f"Caution: {caution}.")
    document.table("physiome", main_table(groups))
    image = physiome_figure.draw(groups, document.out)
    document.show(image, "Error on each dataset, logarithmic, by Joint Gradient Deviation", _FIGURE_CAPTION)
    document.section("Standing among the published models")
    document.say(_STANDING)
    for group, results in groups.items():
        if any(map(_is_published, results)):
            document.table(f"physiome-standing-{group.model}-{group.variant}", standing_table(group.title, results))
    document.say(f"Sources: {numbers['source']} {numbers['caution']}")
    between = pair_table(groups)
    if between.rows:
        document.section("Among ourselves")
        document.table("physiome-pairs", between, main=False)
    document.section("Above the noise")
    document.say(_FLOOR)
    document.table("physiome-excess", excess_table(groups), main=False)
    document.say(f"Trivial predictors: {numbers['trivial_source']}")
    parity = release_table(groups)
    if parity.rows:
        document.section("Beside the authors' code")
        document.table("physiome-release", parity)
        document.say(f"Reference: {numbers['release']['source']}")
    document.section("Every fold")
    document.table("physiome-folds", fold_table(groups), main=False)
    for group, results in groups.items():
        document.say(f"{group.title}: {time_note(results)}")
    return document.write(records, quick)


def gather(records: Sequence[Record]) -> dict[Group, dict[str, Record]]:
    """Records by model and variant; two settings of one dataset cannot stand in the same column."""
    order = {row["dataset"]: place for place, row in enumerate(published(NAME)["rows"])}
    groups: dict[Group, dict[str, Record]] = {}
    for record in sorted(records, key=lambda r: (order.get(r.config["dataset"], len(order)), r.config["dataset"])):
        config = record.config
        results = groups.setdefault(Group(config["model"], config["variant"]), {})
        if config["dataset"] in results:
            raise DataError(
                f"{config['dataset']}, {config['model']}, {config['variant']}: two records with different settings; "
                "choose one with --where key=value"
            )
        results[config["dataset"]] = record
    return dict(sorted(groups.items()))


def cautions(group: Group, results: dict[str, Record]) -> list[str]:
    """What was run with other settings than the column's name promises."""
    if shipped(group.model, "Physiome-ODE"):
        return [*_mixed(results, _protocol), *departures(group.model, results)]
    return _mixed(results, _settings if group.variant == SHARED else _lengths)


def _mixed(results: dict[str, Record], chosen: Callable[[Record], dict[str, Any]]) -> list[str]:
    mixed = settings_differ(results, chosen)
    text = f"not all of these were run with the same settings; {', '.join(mixed)} differ from the others"
    return [text] if mixed else []


def departures(model: str, results: dict[str, Record]) -> list[str]:
    """Where records have other settings than those that are shipped with a baseline."""
    wanted = shipped(model, "Physiome-ODE")
    found: dict[str, list[str]] = {}
    for name, record in results.items():
        for table, own in (("model", "architecture"), ("train", "train")):
            given = record.config.get(own, {})
            for field, value in wanted[table].items():
                if given.get(field, value) != value:
                    found.setdefault(f"{field} is {given[field]} instead of the shipped {value}", []).append(name)
    return [f"{text} for {', '.join(names)}" for text, names in found.items()]


def settings_differ(results: dict[str, Record], chosen: Callable[[Record], dict[str, Any]]) -> list[str]:
    """Datasets that were not run with the settings of the majority, of those that are `chosen` to be compared."""
    keys = {name: json.dumps(chosen(record), sort_keys=True) for name, record in results.items()}
    common = max(keys.values(), key=list(keys.values()).count)
    return [name for name, key in keys.items() if key != common]


def _protocol(record: Record) -> dict[str, Any]:
    """What is asked of every model on every dataset."""
    return {name: record.config.get(name) for name in ("folds", "parity", "instances", "query_mode")}


def _lengths(record: Record) -> dict[str, Any]:
    """The protocol, and how long is trained: all that published configurations have in common."""
    training = record.config.get("train", {})
    return {**_protocol(record), **{name: training.get(name) for name in ("epochs", "patience")}}


def _settings(record: Record) -> dict[str, Any]:
    """Everything but what belongs to a dataset."""
    own = ("dataset", "trajectories", "architecture")
    config = {name: value for name, value in record.config.items() if name not in own}
    architecture = record.config.get("architecture", {})
    return {**config, "architecture": {name: x for name, x in architecture.items() if name != "input_size"}}


def _is_published(name: str) -> bool:
    return any(row["dataset"] == name for row in published(NAME)["rows"])


_INTRODUCTION = (
    "Forecast the second half of a trajectory from a noisy first half of which four fifths of the entries are hidden; "
    "test mean squared error, mean ± standard deviation over five folds. Rows stand in the order of the Joint "
    "Gradient Deviation (JGD). `paper` trains the published configuration of each dataset under the conventions of "
    "the authors' release, `recommended` one configuration for all datasets with ours. Our folds are made from the "
    "same models under the published protocol; they are equivalent to the published ones, not equal bit by bit. "
    "Epochs are chosen on validation data. So were learning rates, weight decay and input_drop of the shared "
    "configuration, on the validation part of fold 0 of BER01, DUP03, PUR02, MAL01, GUP01 and MAC01; no test instance "
    "was looked at. Baselines have the settings that are shipped with them, which are the published ones as far as "
    "there are any, unless a caution below says otherwise."
)
_FIGURE_CAPTION = (
    "Test error on each dataset, in the order of JGD; bars: standard deviation over folds. Hollow circles: the "
    "published TIDES; crosses: the best published model; grey dashes: the zero forecast; dashed line: the floor that "
    "noise in the targets sets."
)
_STANDING = (
    "Published errors have three digits, so ties are frequent. Ranks are given twice: with ties averaged after "
    "rounding ours to three digits too, and as the paper counts, with our unrounded value against the printed ones and "
    "the better place for all that tie. Wins likewise: one winner per dataset (of printed values that tie, the one "
    "that the paper has in bold), and ties counted for everyone. The ratio is the geometric mean of error ÷ smallest "
    "error. Wilcoxon's test pairs each model with ours over the datasets that we ran."
)
_FLOOR = (
    "Targets carry noise of variance 0.0025, so no forecast can be better than that on average: MIT01, M01 and GUY01 "
    "sit on this floor and rank nobody. What is left above it is the error that a model makes."
)
