"""Error against horizon."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tides.records import Record
from tides.reports.drawing import COLOURS, canvas, save
from tides.reports.page import Image

_LOOKS = {"tides": (COLOURS[0], "o"), "s5": (COLOURS[6], "s"), "mamba-s": (COLOURS[1], "^")}


def draw(results: Mapping[Any, list[Record]], labels: Mapping[str, str], folder: Path, name: str) -> Image:
    """One panel per way of asking; saved as PNG and PDF and returned as an inline image."""
    modes = list(dict.fromkeys(line.mode for line in results))
    with canvas(1, len(modes), (4.6 * len(modes) + 1, 4.4), sharey=True, squeeze=False) as (figure, axes):
        for axis, mode in zip(axes[0], modes, strict=True):
            lines = {line.model: records for line, records in results.items() if line.mode == mode}
            bins = next(iter(lines.values()))[0].results["bins"]
            x = np.array([(entry["from"] + entry["to"]) / 2 for entry in bins])
            for trivial, style in (("mean", "--"), ("last", "-")):
                each = [[e["trivial_mse"][trivial] for e in r.results["bins"]] for r in next(iter(lines.values()))]
                axis.plot(x, np.nanmean(np.array(each, float), axis=0), color="#c4cad1", ls=style, lw=1.2)
            for place, (model, records) in enumerate(lines.items()):
                values, alone = (
                    np.array([[entry[name] for entry in record.results["bins"]] for record in records], float)
                    for name in ("mse", "alone_mse")
                )
                colour, marker = _LOOKS.get(model, (COLOURS[place % len(COLOURS)], "x"))
                middle = values.mean(axis=0)
                axis.plot(x, middle, color=colour, marker=marker, ms=4, label=labels.get(model, model))
                if len(values) > 1:
                    spread = values.std(axis=0, ddof=1)
                    axis.fill_between(x, middle - spread, middle + spread, color=colour, alpha=0.15, lw=0)
                if mode == "steps":
                    axis.plot(x, alone.mean(axis=0), color=colour, ls="--", lw=1)
            axis.axvline(1.0, color="#59636e", ls=":", lw=1.2)
            axis.set(title=mode, xlabel="horizon, in training horizons", yscale="log")
        axes[0, 0].set_ylabel("test mean squared error")
        handles = axes[0, 0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=3)
        return save(figure, folder, name)
