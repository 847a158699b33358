"""Every seed's accuracy by data set, beside the published numbers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tides.reports.drawing import COLOURS, canvas, save
from tides.reports.page import Image
from tides.reports.published import published

# The next one where all colours are taken.
_MARKERS = "o^sv"


def draw(accuracies: Mapping[Any, Mapping[str, list[float]]], folder: Path) -> Image:
    """One column per data set that was run; saved as PNG and PDF and returned as an inline image."""
    numbers = published("uea")
    names = [name for name in numbers["datasets"] if any(name in sets for sets in accuracies.values())]
    names += [name for name in dict.fromkeys(n for sets in accuracies.values() for n in sets) if name not in names]
    with canvas(1, 1, (max(6.0, 2.4 * len(names) + 2), 4.8)) as (figure, axes):
        width = 0.7 / max(1, len(accuracies))
        for place, (group, sets) in enumerate(accuracies.items()):
            colour, marker = COLOURS[place % len(COLOURS)], _MARKERS[place // len(COLOURS) % len(_MARKERS)]
            for column, name in enumerate(names):
                values = sets.get(name, [])
                x = column - 0.35 + (place + 0.5) * width
                label = group.title if name == next(iter(sets)) else None
                axes.plot(np.full(len(values), x), values, marker, ms=4, alpha=0.55, color=colour, label=label)
                if values:
                    axes.hlines(np.mean(values), x - 0.4 * width, x + 0.4 * width, color=colour, lw=2.4)
        for column, name in enumerate(names):
            if name not in numbers["datasets"]:
                continue
            spot = numbers["datasets"].index(name)
            tides = numbers["model"][0]
            label = "TIDES, published" if column == 0 else None
            style = {"fmt": "D", "color": "#1b1f24", "ms": 5, "mfc": "white", "capsize": 3, "label": label}
            axes.errorbar(column + 0.42, tides["mean"][spot], tides["std"][spot], **style)
            best = np.nanmax([model["mean"][spot] for model in [*numbers["model"], *numbers["later"]]])
            line = {"color": "#59636e", "ls": "--", "lw": 1, "label": "best published" if column == 0 else None}
            axes.hlines(best, column - 0.45, column + 0.45, **line)
        axes.set(ylabel="test accuracy in %", xticks=range(len(names)), xticklabels=names)
        figure.legend(loc="outside lower center", ncols=3)
        return save(figure, folder, "uea")
