"""The three pictures of Fading Flash: the task, the effective decays, the errors."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tides.records import Record
from tides.reports.drawing import COLOURS, canvas, save
from tides.reports.page import Image

Values = Mapping[str, NDArray[np.float64]]

LABELS = {
    "s5": "S5",
    "mamba-s": "Mamba$_S$",
    "mamba": "Mamba block",
    "tides": "TIDES",
    "tides-lambda": "TIDES$_Λ$",
    "tides-refined": "TIDES refined (ours)",
}
_LOOKS = {
    "s5": (COLOURS[6], "s"),
    "mamba-s": (COLOURS[1], "^"),
    "mamba": (COLOURS[4], "v"),
    "tides": (COLOURS[0], "o"),
    "tides-lambda": (COLOURS[5], "D"),
    "tides-refined": (COLOURS[2], "P"),
}
_TICKS = (0, 0.5, 1, 1.5, 2)
_FINE_TICKS = [digit * 10.0**power for power in range(-4, 5) for digit in (1, 2, 5)]
_ZONES = ("slow", "medium", "fast")
_ZONE_COLOURS = ("#e6f0f8", "#fdf3d9", "#fbe4d8")


def look(model: str, position: int) -> dict[str, Any]:
    """Colour and marker of a model, always the same; somebody's own model takes a free colour."""
    colour, marker = _LOOKS.get(model, (COLOURS[(3, 7)[position % 2]], "X"))
    return {"color": colour, "marker": marker, "markersize": 5, "label": LABELS.get(model, model)}


def task(record: Record, folder: Path) -> Image:
    """The same flashes and zones under three clock speeds."""
    found, gaps = record.results, record.config["gaps"]
    zones = np.array(found["zones"])
    edges = [0, *(np.flatnonzero(np.diff(zones)) + 1).tolist(), len(zones)]
    with canvas(len(gaps) + 1, 1, (8, 6), sharex=True, height_ratios=[0.55] + [1] * len(gaps)) as (figure, axes):
        for axis in axes:
            axis.grid(False)
            for left, right in pairwise(edges):
                axis.axvspan(left - 0.5, right - 0.5, color=_ZONE_COLOURS[zones[left]], lw=0)
        for left, right in pairwise(edges):
            zone = zones[left]
            text = f"{_ZONES[zone]}\n$λ$ = {found['rates'][zone]:g}"
            axes[0].text((left + right - 1) / 2, 1.12, text, ha="center", va="bottom", fontsize=9)
        lit = np.flatnonzero(found["flashes"])
        axes[0].vlines(lit, 0, 1, color="#1b1f24", lw=2.5)
        axes[0].set(ylabel="flash", yticks=[0, 1], ylim=(0, 1.08))
        for axis, gap, glow in zip(axes[1:], gaps, found["glow"], strict=True):
            axis.fill_between(range(len(glow)), glow, color="#9cc3df", lw=0)
            axis.plot(glow, color=COLOURS[0], marker="o", markersize=3.5)
            axis.set(ylabel=f"glow\n$Δ$ = {gap:g}", ylim=(0, None))
        axes[-1].set(xlabel="detector (position $k$)", xlim=(-0.5, len(zones) - 0.5))
        return save(figure, folder, "task")


def decays(
    values: Values, gaps: NDArray[np.float64], rates: list[float], inside: tuple[float, float], folder: Path, name: str
) -> Image:
    """Effective decay against the test gap, one panel per zone; `values` are (seeds, zones, gaps) per model."""
    with canvas(1, 3, (11, 4.2), sharex=True, sharey=True) as (figure, axes):
        for zone, axis in enumerate(axes):
            axis.axhline(rates[zone], color="#1b1f24", lw=1.2, ls="--", label="true rate")
            _training_range(axis, inside)
            for position, (model, found) in enumerate(values.items()):
                _band(axis, gaps, found[:, zone], look(model, position))
            axis.set(title=f"{_ZONES[zone]} zone, true rate {rates[zone]:g}", xlabel="test gap $Δ$", xticks=_TICKS)
        axes[0].set(ylabel="effective decay per unit of time", ylim=(0, 4), xlim=(0, 2.1))
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
        return save(figure, folder, name)


def errors(values: Values, gaps: NDArray[np.float64], inside: tuple[float, float], folder: Path, name: str) -> Image:
    """Relative error against the test gap, median and range over seeds; `values` are (seeds, gaps) per model."""
    with canvas(1, 1, (8.5, 5)) as (figure, axis):
        _training_range(axis, inside)
        for position, (model, found) in enumerate(values.items()):
            _band(axis, gaps, found, look(model, position))
        axis.set(
            yscale="log",
            xlabel="test gap $Δ$",
            ylabel="relative error  √(MSE / Var) in %",
            xlim=(0, 2.1),
            xticks=_TICKS,
        )
        low, high = axis.get_ylim()
        if high < 100 * low:
            # Fewer than two decades: powers of ten alone would label hardly anything.
            axis.set_yticks([tick for tick in _FINE_TICKS if low <= tick <= high])
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.yaxis.set_minor_formatter("")
        figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=4)
        return save(figure, folder, name)


def _band(axis: Any, gaps: NDArray[np.float64], found: NDArray[np.float64], style: dict[str, Any]) -> None:
    """Median line and range over seeds; seeds without a value at a gap are left out there."""
    with np.errstate(all="ignore"):
        some = np.isfinite(found).any(0)
        middle, low, high = (np.full(len(gaps), np.nan) for _ in range(3))
        middle[some] = np.nanmedian(found[:, some], 0)
        low[some], high[some] = np.nanmin(found[:, some], 0), np.nanmax(found[:, some], 0)
    axis.fill_between(gaps, low, high, color=style["color"], alpha=0.15, lw=0)
    axis.plot(gaps, middle, **style)


def _training_range(axis: Any, inside: tuple[float, float]) -> None:
    axis.axvspan(*inside, color="#eef1f4", lw=0, zorder=0, label="training range of $Δ$")
