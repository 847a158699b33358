"""Errors on the fifty datasets, in the order of their Joint Gradient Deviation."""

from pathlib import Path
from typing import Any

import numpy as np

from tides.reports.drawing import COLOURS, canvas, save
from tides.reports.page import Image
from tides.reports.physiome_tables import Groups, fold_errors, rows
from tides.reports.published import published

_MARKERS = "osD^vP*X"
_INK, _GREY = "#1b1f24", "#8a939d"
# Our columns stand side by side within this share of a dataset's place.
_SPAN = 0.75


def draw(groups: Groups, folder: Path) -> Image:
    """All published points, and ours where they were run; saved as PNG and PDF and returned as an inline image."""
    numbers, shown = published("physiome"), rows()
    names = [row["dataset"] for row in shown]
    places = np.arange(len(names))
    # TIDES first, so that it has the same colours whatever else was run.
    ours = sorted(groups.items(), key=lambda item: item[0].model != "tides")
    with canvas(1, 1, (11, 6)) as (figure, axes):
        axes.axhline(numbers["floor"], color=_INK, ls="--", lw=1, label="noise floor")
        published_style: dict[str, Any] = {"ls": "none", "zorder": 3}
        zero = [row["trivial"][0] for row in shown]
        axes.plot(places, zero, marker="_", color=_GREY, ms=9, mew=1.5, label="zero forecast", **published_style)
        tides = [row["mse"][0] for row in shown]
        axes.plot(places, tides, marker="o", mfc="none", color=_INK, ms=7, label="TIDES, published", **published_style)
        best = [min(row["mse"]) for row in shown]
        axes.plot(places, best, marker="x", color=_INK, ms=5, label="best published", **published_style)
        for place, (group, results) in enumerate(ours):
            ran = [name for name in names if name in results]
            errors = [fold_errors(results[name]) for name in ran]
            spread = [float(np.std(found, ddof=1)) if len(found) > 1 else 0.0 for found in errors]
            shift = _SPAN * ((place + 0.5) / len(ours) - 0.5)
            style: dict[str, Any] = {"ls": "none", "ms": 4.5, "color": COLOURS[place % len(COLOURS)]}
            style |= {"marker": _MARKERS[place % len(_MARKERS)], "elinewidth": 1, "label": group.title}
            x, y = [names.index(name) + shift for name in ran], [float(np.mean(found)) for found in errors]
            axes.errorbar(x, y, spread, **style)
        axes.set(yscale="log", ylabel="test mean squared error", xlim=(-0.8, len(names) - 0.2))
        axes.set_xlabel(f"Joint Gradient Deviation: from {shown[0]['jgd']:.1f} on the left to {shown[-1]['jgd']:.3f}")
        axes.set_xticks(places, names, rotation=90, fontsize=8)
        figure.legend(loc="outside lower center", ncols=4)
        return save(figure, folder, "physiome-jgd")
