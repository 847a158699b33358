"""Error against the Joint Gradient Deviation."""

from pathlib import Path
from typing import Any

import numpy as np

from tides.reports.drawing import COLOURS, canvas, save
from tides.reports.physiome_tables import Groups, fold_errors, rows
from tides.reports.published import published

_MARKERS = "osD^vP*X"


def draw(groups: Groups, folder: Path) -> str:
    """All published points, and ours where they were run; saved as PNG and PDF and returned as an inline image."""
    numbers = published("physiome")
    jgd = np.array([row["jgd"] for row in rows()])
    tides = np.array([row["mse"][0] for row in rows()])
    best = np.array([min(row["mse"]) for row in rows()])
    zero = np.array([row["trivial"][0] for row in rows()])
    with canvas(1, 1, (9, 5.2)) as (figure, axes):
        axes.plot(jgd, zero, color="#c4cad1", lw=1.2, label="zero forecast")
        axes.axhline(numbers["floor"], color="#59636e", ls="--", lw=1, label="noise floor")
        axes.plot(jgd, tides, "o", mfc="none", color="#1b1f24", ms=6, label="TIDES, published")
        axes.plot(jgd, best, "x", color=COLOURS[6], ms=5, label="best published")
        for place, (group, results) in enumerate(groups.items()):
            ran = [row for row in rows() if row["dataset"] in results]
            style: dict[str, Any] = {"ls": "none", "ms": 5, "color": COLOURS[place % len(COLOURS)]}
            errors = [fold_errors(results[row["dataset"]]) for row in ran]
            x, y = [row["jgd"] for row in ran], [float(np.mean(found)) for found in errors]
            spread = [float(np.std(found, ddof=1)) if len(found) > 1 else 0.0 for found in errors]
            marker = _MARKERS[place % len(_MARKERS)]
            axes.errorbar(x, y, spread, marker=marker, label=group.title, elinewidth=1, capsize=2, **style)
        axes.set(xscale="log", yscale="log", xlabel="Joint Gradient Deviation", ylabel="test mean squared error")
        figure.legend(loc="outside lower center", ncols=3)
        return save(figure, folder, "physiome-jgd")
