"""A data set on one page: lengths, gaps, missing entries, labels."""

from pathlib import Path
from typing import Any

import numpy as np

from tides.data.dataset import IrregularDataset
from tides.data.summary import Summary
from tides.errors import DataError

_COLOUR = "#31688e"
_MOST_CHANNELS = 30


def plot_summary(data: IrregularDataset, summary: Summary, path: str | Path) -> None:
    """Draw the page and write it to `path` (.png, .svg, .pdf)."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise DataError("plots need matplotlib: pip install 'tides-ssm[plots]'") from None
    figure = Figure(figsize=(10, 7), layout="constrained")
    (top_left, top_right), (bottom_left, bottom_right) = figure.subplots(2, 2)
    unit = f" ({summary.unit})" if summary.unit else ""
    _histogram(top_left, data.lengths, "steps per series", "series")
    gaps = [np.diff(data.times(i)) for i in range(len(data))]
    positive = np.concatenate(gaps) if gaps else np.empty(0)
    _histogram(top_right, positive[positive > 0], f"gap between steps{unit}", "gaps", logarithmic=True)
    _missing(bottom_left, summary)
    _labels(bottom_right, data, summary)
    figure.suptitle(f"{summary.series} series, {summary.steps} steps, {len(summary.channels)} channels")
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be written: {error}") from None


def _histogram(axes: Any, numbers: Any, x_label: str, y_label: str, *, logarithmic: bool = False) -> None:
    if len(numbers) == 0:
        axes.text(0.5, 0.5, "none", ha="center", transform=axes.transAxes)
    elif logarithmic and numbers.max() > 20 * numbers.min():
        axes.hist(numbers, bins=np.geomspace(numbers.min(), numbers.max(), 40), color=_COLOUR)
        axes.set_xscale("log")
    else:
        axes.hist(numbers, bins=min(40, max(1, len(np.unique(numbers)))), color=_COLOUR)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)


def _missing(axes: Any, summary: Summary) -> None:
    worst = sorted(summary.channels, key=lambda channel: channel.missing)[-_MOST_CHANNELS:]
    names = [_as_written(channel.name) for channel in worst]
    axes.barh(names, [100.0 * channel.missing for channel in worst], color=_COLOUR)
    axes.set_xlim(0, 100)
    shown = "" if len(worst) == len(summary.channels) else f", worst {len(worst)} of {len(summary.channels)} channels"
    axes.set_xlabel(f"missing (% of steps{shown})")
    axes.tick_params(axis="y", labelsize=7 if len(worst) > 12 else 9)


def _labels(axes: Any, data: IrregularDataset, summary: Summary) -> None:
    labels = data.labels
    if labels is None or summary.labels is None:
        axes.set_title("no labels", fontsize=10)
        axes.plot(*_example(data), ".", markersize=3, color=_COLOUR)
        axes.set_xlabel("time" + (f" ({summary.unit})" if summary.unit else ""))
        axes.set_ylabel("step times of the first series")
    elif summary.labels["kind"] == "class":
        counts = summary.labels["counts"]
        axes.bar([_as_written(name) for name in counts], list(counts.values()), color=_COLOUR)
        axes.set_ylabel("series per class")
    else:
        _histogram(axes, np.ravel(labels), "label", "series")


def _as_written(name: str) -> str:
    """Text with dollars escaped, since matplotlib takes text between dollars for mathematics."""
    return name.replace("$", r"\$")


def _example(data: IrregularDataset) -> tuple[Any, Any]:
    """Step times of the first twenty series, one row each."""
    times = [data.times(i) for i in range(min(20, len(data)))]
    rows = [np.full(len(one), i) for i, one in enumerate(times)]
    return (np.concatenate(times), np.concatenate(rows)) if times else ([], [])
