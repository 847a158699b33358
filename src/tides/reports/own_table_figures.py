"""Figures of a model on a user's own table: learning, classes, probabilities, numbers, forecasts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tides.reports.drawing import COLOURS, as_written, canvas, save
from tides.reports.page import Image

Array = NDArray[np.float64]
_MOST_CURVES = 8
_BINS = 10


def learning(history: Sequence[dict[str, Any]], best: int, folder: Path) -> Image:
    """Loss of training and validation by epoch."""
    epochs = [row["epoch"] for row in history]
    with canvas(1, 1, (7.5, 4)) as (figure, axis):
        axis.plot(epochs, [row["train_loss"] for row in history], color=COLOURS[0], label="training")
        if "val_loss" in history[0]:
            axis.plot(epochs, [row["val_loss"] for row in history], color=COLOURS[4], label="validation")
        axis.axvline(best, color=COLOURS[6], lw=1, ls="--", label=f"best epoch {best}")
        axis.set(xlabel="epoch", ylabel="loss")
        axis.legend()
        return save(figure, folder, "learning")


def confusion(truth: NDArray[np.int64], found: NDArray[np.int64], classes: Sequence[str], folder: Path) -> Image:
    """Rows are true classes, columns predicted ones."""
    k = len(classes)
    counts = np.zeros((k, k), np.int64)
    np.add.at(counts, (truth, found), 1)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = max(4.0, 0.7 * k + 2)
    with canvas(1, 1, (side + 1, side)) as (figure, axis):
        axis.grid(False)
        axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        for i in range(k):
            for j in range(k):
                dark = shares[i, j] > 0.55
                axis.text(j, i, str(counts[i, j]), ha="center", va="center", color="white" if dark else "#1b1f24")
        axis.set(xlabel="predicted", ylabel="true", xticks=range(k), yticks=range(k))
        names = [as_written(name) for name in classes]
        axis.set_xticklabels(names, rotation=30 if k > 4 else 0, ha="right" if k > 4 else "center")
        axis.set_yticklabels(names)
        return save(figure, folder, "confusion")


def ranking(truth: NDArray[np.int64], probabilities: Array, classes: Sequence[str], folder: Path) -> Image:
    """ROC and precision-recall curves, one class against the rest."""
    shown = range(min(len(classes), _MOST_CURVES))
    with canvas(1, 2, (10, 4.6)) as (figure, (left, right)):
        left.plot([0, 1], [0, 1], color=COLOURS[6], lw=1, ls="--")
        for position, c in enumerate(shown):
            positive = truth == c
            if positive.all() or not positive.any():
                continue
            true_rate, false_rate, precision = _curves(probabilities[:, c], positive)
            style = {"color": COLOURS[position % len(COLOURS)], "label": as_written(classes[c])}
            left.plot(false_rate, true_rate, **style)
            right.plot(true_rate[1:], precision, **style)
            right.axhline(positive.mean(), color=style["color"], lw=0.8, ls=":")
        left.set(title="ROC", xlabel="false positive rate", ylabel="true positive rate", xlim=(0, 1), ylim=(0, 1.02))
        right.set(title="precision and recall", xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02))
        if right.get_legend_handles_labels()[0]:
            right.legend(loc="lower left")
        else:
            right.text(0.5, 0.5, "one class only: nothing to rank", ha="center")
        return save(figure, folder, "ranking")


def _curves(scores: Array, positive: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """True and false positive rate at every threshold from none to all, and precision from the first on."""
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.diff(scores[order]) != 0, True)
    hits = np.cumsum(positive[order])[last]
    named = (np.arange(len(scores)) + 1)[last]
    true_rate = np.append(0.0, hits / positive.sum())
    false_rate = np.append(0.0, (named - hits) / (~positive).sum())
    return true_rate, false_rate, hits / named


def reliability(truth: NDArray[np.int64], probabilities: Array, classes: Sequence[str], folder: Path) -> Image:
    """How often what was predicted with probability p came true."""
    if len(classes) == 2:
        said, true, what = probabilities[:, 1], truth == 1, f"probability of {as_written(classes[1])}"
    else:
        said, true = probabilities.max(axis=1), probabilities.argmax(axis=1) == truth
        what = "probability of the predicted class"
    place = np.minimum((said * _BINS).astype(int), _BINS - 1)
    counts = np.bincount(place, minlength=_BINS)
    some = counts > 0
    mean = np.bincount(place, said, minlength=_BINS)[some] / counts[some]
    rate = np.bincount(place, true, minlength=_BINS)[some] / counts[some]
    with canvas(2, 1, (6.2, 5.6), sharex=True, height_ratios=[3, 1]) as (figure, (top, bottom)):
        top.plot([0, 1], [0, 1], color=COLOURS[6], lw=1, ls="--", label="perfectly calibrated")
        error = np.sqrt(rate * (1 - rate) / counts[some])
        top.errorbar(mean, rate, yerr=error, color=COLOURS[0], marker="o", capsize=2, label="found (± standard error)")
        top.set(ylabel="share that came true", ylim=(-0.02, 1.02))
        top.legend(loc="upper left")
        bottom.bar((np.arange(_BINS) + 0.5) / _BINS, counts, width=0.9 / _BINS, color=COLOURS[5])
        bottom.set(xlabel=what, ylabel="series", xlim=(0, 1))
        return save(figure, folder, "reliability")


def numbers(truth: Array, found: Array, folder: Path) -> Image:
    """Predicted against true numbers, and the errors."""
    with canvas(1, 2, (10, 4.4)) as (figure, (left, right)):
        ends = [min(truth.min(), found.min()), max(truth.max(), found.max())]
        left.plot(ends, ends, color=COLOURS[6], lw=1, ls="--")
        for target in range(truth.shape[1]):
            label = f"target {target + 1}" if truth.shape[1] > 1 else None
            left.plot(truth[:, target], found[:, target], ".", ms=5, alpha=0.6, color=COLOURS[target % 8], label=label)
            right.hist((found - truth)[:, target], bins=30, alpha=0.7, color=COLOURS[target % 8])
        left.set(xlabel="true", ylabel="predicted")
        right.set(xlabel="predicted − true", ylabel="series")
        if truth.shape[1] > 1:
            left.legend()
        return save(figure, folder, "numbers")


def forecasts(result: dict[str, Any], unit: str, folder: Path) -> Image:
    """Some series: what was known, the forecast with its interval, what came. The first channel."""
    examples = result["examples"]
    columns = min(3, len(examples))
    rows = -(-len(examples) // columns)
    with canvas(rows, columns, (3.9 * columns, 2.9 * rows), squeeze=False) as (figure, grid):
        for axis in grid.flat[len(examples) :]:
            axis.set_axis_off()
        for axis, one in zip(grid.flat, examples, strict=False):
            _forecast(axis, one)
            axis.set_title(as_written(one["id"]), fontsize=9)
        for axis in grid[-1]:
            axis.set_xlabel(f"time{unit}")
        for axis in grid[:, 0]:
            axis.set_ylabel(as_written(result["channels"][0]))
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
        return save(figure, folder, "forecasts")


def _forecast(axis: Any, one: dict[str, Any]) -> None:
    def column(name: str) -> Array:
        return np.array([np.nan if row[0] is None else row[0] for row in one[name]], np.float64)

    axis.fill_between(one["grid"], column("low"), column("high"), color=COLOURS[5], alpha=0.35, lw=0, label="interval")
    axis.plot(one["grid"], column("mean"), color=COLOURS[0], label="forecast")
    axis.plot(one["times"], column("values"), "o", ms=3, color="#1b1f24", label="known")
    axis.plot(one["asked"], column("truth"), "o", ms=4, mfc="white", color=COLOURS[4], label="came")
    axis.axvline(one["times"][-1], color=COLOURS[6], lw=0.8, ls=":")


def leads(result: dict[str, Any], unit: str, folder: Path) -> Image:
    """Error and coverage against how far ahead was asked."""
    rows = result["by_lead"]
    ahead = [row["lead"] for row in rows]
    with canvas(1, 2, (10, 4)) as (figure, (left, right)):
        left.plot(ahead, [row["rmse"] for row in rows], marker="o", color=COLOURS[0], label="forecast")
        held = [row["rmse_of_last_value"] for row in rows]
        left.plot(ahead, held, marker="s", ms=4, color=COLOURS[6], label="last value")
        left.set(xlabel=f"time ahead{unit}", ylabel="RMSE in standard deviations", ylim=(0, None))
        left.legend()
        right.axhline(result["coverage"], color=COLOURS[6], lw=1, ls="--", label="wanted")
        right.plot(ahead, [row["coverage"] for row in rows], marker="o", color=COLOURS[2], label="found")
        right.set(xlabel=f"time ahead{unit}", ylabel="share inside the interval", ylim=(0, 1.02))
        right.legend(loc="lower left")
        return save(figure, folder, "leads")
