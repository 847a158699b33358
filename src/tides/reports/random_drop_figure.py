"""Accuracy against the share of hidden steps."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tides.records import Record
from tides.reports.drawing import COLOURS, canvas, save
from tides.reports.page import Image

_LOOKS = {
    "s5": (COLOURS[6], "s"),
    "mamba-s": (COLOURS[1], "^"),
    "tides": (COLOURS[0], "o"),
    "tides-lambda": (COLOURS[5], "D"),
    "tides-bc": (COLOURS[2], "v"),
    "tides-full": (COLOURS[3], "P"),
}


def draw(results: Mapping[str, list[Record]], labels: Mapping[str, str], folder: Path, name: str) -> Image:
    """Means with a band of one standard error over seeds."""
    with canvas(1, 1, (7.5, 4.6)) as (figure, axes):
        others = [model for model in results if model not in _LOOKS]
        for model, records in results.items():
            tests = [record.results["test"] for record in records]
            x = np.array([entry["rate"] for entry in tests[0]])
            y = np.array([[entry["accuracy"] for entry in test] for test in tests])
            colour, marker = _LOOKS.get(model) or (COLOURS[others.index(model) % len(COLOURS)], "x")
            style = {"color": colour, "marker": marker, "ms": 5, "ls": "-" if model in _LOOKS else "--"}
            axes.plot(x, y.mean(axis=0), label=labels.get(model, model), **style)
            if len(y) > 1:
                error = y.std(axis=0, ddof=1) / np.sqrt(len(y))
                axes.fill_between(x, y.mean(axis=0) - error, y.mean(axis=0) + error, color=colour, alpha=0.15, lw=0)
        trained = next(iter(results.values()))[0].config["drop"]["train"]
        axes.axvline(trained, color="#59636e", ls=":", lw=1.2)
        axes.set(xlabel="share of hidden steps at test time", ylabel="test accuracy")
        figure.legend(loc="outside lower center", ncols=3)
        return save(figure, folder, name)
