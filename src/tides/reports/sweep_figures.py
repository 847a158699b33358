"""Pictures of a sweep: history, importance and parallel coordinates."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tides.reports.drawing import COLOURS, canvas, save
from tides.reports.page import Image

Results = Mapping[str, Any]


def draw_history(results: Results, folder: Path, name: str) -> Image:
    """Score against trial, and the best so far."""
    lowest = results["direction"] == "minimise"
    finished = [(row["trial"], row["value"]) for row in results["trials"] if row["value"] is not None]
    pruned = [
        (row["trial"], row["epochs"][-1][1]) for row in results["trials"] if row["state"] == "pruned" and row["epochs"]
    ]
    with canvas(1, 1, (8, 3.8)) as (figure, axes):
        trials, values = zip(*finished, strict=True)
        best = (np.minimum if lowest else np.maximum).accumulate(values)
        axes.plot(trials, values, "o", color=COLOURS[0], ms=5, label="finished")
        if pruned:
            axes.plot(*zip(*pruned, strict=True), "x", color=COLOURS[6], ms=5, label="pruned")
        axes.step(trials, best, where="post", color=COLOURS[4], label="best so far")
        axes.set(xlabel="trial", ylabel="validation score")
        scores = [*values, *(value for _, value in pruned)]
        if min(scores) > 0 and max(scores) > 10 * min(scores):
            axes.set_yscale("log")
        axes.xaxis.get_major_locator().set_params(integer=True)
        figure.legend(loc="outside lower center", ncols=3)
        return save(figure, folder, name)


def draw_importance(importance: Mapping[str, float], folder: Path, name: str) -> Image:
    """One bar per parameter, the most important on top."""
    ordered = sorted(importance.items(), key=lambda pair: pair[1])
    with canvas(1, 1, (8, 1.0 + 0.3 * len(ordered))) as (figure, axes):
        axes.barh([key for key, _ in ordered], [value for _, value in ordered], color=COLOURS[0])
        axes.set(xlabel="importance", xlim=(0, None))
        return save(figure, folder, name)


def draw_parallel(space: Mapping[str, Any], results: Results, folder: Path, name: str) -> Image:
    """One axis per parameter, one line per finished trial."""
    rows = [row for row in results["trials"] if row["value"] is not None]
    sign = 1 if results["direction"] == "minimise" else -1
    rows.sort(key=lambda row: -sign * row["value"])
    with canvas(1, 1, (max(8.0, 1.1 * len(space)), 4.2)) as (figure, axes):
        for rank, row in enumerate(rows):
            best = row["trial"] == results["best"]["trial"]
            shade = 0.15 + 0.6 * rank / max(1, len(rows) - 1)
            heights = [position(parameter, row["drawn"][key]) for key, parameter in space.items()]
            style: dict[str, Any] = {"color": COLOURS[4], "lw": 2.4} if best else {"color": COLOURS[0], "alpha": shade}
            axes.plot(range(len(space)), heights, **style)
        for place, parameter in enumerate(space.values()):
            for height, label in _marks(parameter):
                axes.annotate(label, (place, height), (3, 0), textcoords="offset points", fontsize=7, va="center")
        labels = [key.rpartition(".")[2] for key in space]
        axes.set(xticks=range(len(space)), yticks=[], ylim=(-0.05, 1.05))
        axes.set_xticklabels(labels, rotation=35, ha="right")
        return save(figure, folder, name)


def position(parameter: Mapping[str, Any], value: Any) -> float:
    """Where on its axis, from 0 to 1, a value lies."""
    if parameter["kind"] == "choice":
        values = parameter["values"]
        return float(values.index(value) / max(1, len(values) - 1))
    scale = math.log if parameter.get("log") else float
    low, high = scale(parameter["low"]), scale(parameter["high"])
    return (scale(value) - low) / (high - low)


def _marks(parameter: Mapping[str, Any]) -> list[tuple[float, str]]:
    ends = parameter["values"] if parameter["kind"] == "choice" else (parameter["low"], parameter["high"])
    return [(position(parameter, value), f"{value:g}" if type(value) in (int, float) else str(value)) for value in ends]
