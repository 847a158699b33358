"""Time and memory of a training step against sequence length."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tides.records import Record
from tides.reports.drawing import COLOURS, canvas, save
from tides.reports.page import Image
from tides.reports.published import published

_WORKLOAD = "paper-100k"
_LOOKS = {
    "triton": (COLOURS[0], "o", "TIDES, triton"),
    "cpu": (COLOURS[0], "o", "TIDES, cpu"),
    "torch": (COLOURS[5], "D", "TIDES, torch"),
    "reference": (COLOURS[3], "P", "TIDES, reference"),
    "transformer": (COLOURS[1], "^", "transformer"),
    "rformer": (COLOURS[4], "v", "RFormer, ours"),
    "naive": (COLOURS[6], "s", "TIDES, naive"),
}


def draw(records: Sequence[Record], folder: Path, name: str) -> Image:
    """The figure of one machine's records, saved as PNG and PDF; returns it as an inline image."""
    cells = [record for record in records if record.config["workload"] == _WORKLOAD]
    cells = [record for record in cells if record.results["status"] == "ok"]
    numbers, config = published("speed"), cells[0].config
    with canvas(1, 2, (11, 4.8), sharex=True) as (figure, axes):
        for backend, (colour, marker, label) in _LOOKS.items():
            points = sorted(
                (cell for cell in cells if cell.config["backend"] == backend), key=lambda cell: cell.config["length"]
            )
            if points:
                style = {"color": colour, "marker": marker, "markersize": 5, "label": label}
                _line(axes[0], points, lambda found: found["step"]["median"] * 1e3, **style)
                _line(axes[1], points, lambda found: found["memory"]["peak"] / 1e6, **style)
            graphed = [cell for cell in points if "step" in (cell.results["graph"] or {})]
            if graphed:
                style = {"color": colour, "ls": "--", "lw": 1.2, "label": f"{label}, CUDA graph"}
                _line(axes[0], graphed, lambda found: found["graph"]["step"]["median"] * 1e3, **style)
        for entry, colour, marker in zip(numbers["published"], ("#1b1f24", COLOURS[4]), "ov", strict=True):
            style = {"ls": "none", "marker": marker, "mfc": "none", "mec": colour}
            label = f"{entry['model']}, paper ({numbers['device']})"
            axes[0].plot(entry["lengths"], entry["time"], label=label, **style)
            axes[1].plot(entry["lengths"], entry["memory"], label=label, **style)
        for anchor in numbers["anchors"]["measured"]:
            here = anchor["device"] in config["hardware"].get("gpu", config["device"])
            if here and anchor["configuration"] == _WORKLOAD:
                style = {"ls": "none", "marker": "x", "color": "#1b1f24", "label": anchor["source"]}
                axes[0].plot(anchor["lengths"], anchor["time"], **style)
                axes[1].plot(anchor["lengths"], anchor["memory"], **style)
        for axis, label in zip(axes, ("training step in ms", "peak memory in MB"), strict=True):
            axis.set(xscale="log", yscale="log", xlabel="sequence length $L$", ylabel=label)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        return save(figure, folder, name)


def _line(axis: Any, points: Sequence[Record], value: Any, **style: Any) -> None:
    axis.plot([point.config["length"] for point in points], [value(point.results) for point in points], **style)
