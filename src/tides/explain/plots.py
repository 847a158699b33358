"""Explanations as pictures, with units: written to a file (.png, .svg, .pdf)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tides.data.batch import IrregularBatch
from tides.errors import ShapeError, TidesError
from tides.explain.asking import only_series
from tides.explain.attribution import Attribution
from tides.explain.clock import Clock
from tides.explain.counterfactuals import LaterAnswers, Removal
from tides.explain.next_time import Suggestion

# Colours that stay apart for colour-blind readers and in grey print (Okabe and Ito).
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")


def plot_clock(clock: Clock, path: str | Path, *, series: int = 0) -> None:
    """One panel per layer: the half-life of every mode over time. Lines are stronger the more a mode contributes."""
    one = clock.series(series)
    layers = one.rate.shape[0]
    figure, axes = _figure(layers, (8.0, 1.0 + 2.4 * layers), sharex=True)
    times, half = _array(one.times[0]), _array(one.half_life[:, 0])
    loudness = _array(one.contribution[:, 0].square().mean(1).sqrt())
    for layer, panel in enumerate(axes):
        strongest = max(float(loudness[layer].max()), 1e-30)
        for mode in range(half.shape[-1]):
            alpha = 0.3 + 0.7 * float(loudness[layer, mode]) / strongest
            line = {"color": _COLOURS[0], "alpha": alpha, "linewidth": 1.6, "marker": ".", "markersize": 4}
            panel.plot(times, half[layer, :, mode], **line)
        panel.set_yscale("log")
        panel.set_ylabel(f"half-life{_in(one.unit)}")
        panel.set_title(
            f"layer {layer + 1}: {half.shape[-1]} modes, strong lines are heard most", loc="left", fontsize=10
        )
    axes[-1].set_xlabel(f"time{_in(one.unit)}")
    _save(figure, path)


def plot_attribution(
    attribution: Attribution,
    batch: IrregularBatch,
    path: str | Path,
    *,
    series: int = 0,
    channels: Sequence[str] = (),
    unit: str = "",
) -> None:
    """Every channel's observations above, their effects on the answer below."""
    one = only_series(batch, series)
    n, count = one.values.shape[1:]
    names = list(channels) or [f"channel {c}" for c in range(count)]
    if len(names) != count:
        raise ShapeError(f"channels: found {len(names)} names, wanted one for each of {count} channels")
    parts = _array(attribution.values[series, :n])
    figure, axes = _figure(2 * count, (8.0, 1.0 + 2.6 * count), sharex=True)
    times, values, seen = _array(one.times[0]), _array(one.values[0]), _array(one.observed[0])
    limit = 1.1 * max(float(np.abs(parts).max()), 1e-30)
    width = 0.6 * float(np.median(np.diff(times))) if n > 1 else 0.5
    for c in range(count):
        upper, lower = axes[2 * c], axes[2 * c + 1]
        upper.plot(times[seen[:, c]], values[seen[:, c], c], "o-", color=_COLOURS[6], markersize=4, linewidth=1)
        upper.set_ylabel(names[c])
        colours = [_COLOURS[0] if x >= 0 else _COLOURS[1] for x in parts[seen[:, c], c]]
        lower.bar(times[seen[:, c]], parts[seen[:, c], c], width=width, color=colours)
        lower.axhline(0, color="black", linewidth=0.6)
        lower.set_ylim(-limit, limit)
        lower.set_ylabel("effect")
    start, end = float(attribution.reference[series]), float(attribution.answer[series])
    axes[0].set_title(f"answer {end:.3g} = {start:.3g} for average values + the effects below", fontsize=10)
    axes[-1].set_xlabel(f"time{_in(unit)}")
    _save(figure, path)


def plot_later(later: LaterAnswers, path: str | Path, *, names: Sequence[str] = (), unit: str = "") -> None:
    """The answers as functions of the last gap, with the real gap marked."""
    figure, (panel,) = _figure(1, (8.0, 3.4))
    answers = _array(later.answers.flatten(1))
    for k in range(answers.shape[1]):
        name = names[k] if k < len(names) else f"answer {k}"
        panel.plot(_array(later.gaps), answers[:, k], color=_COLOURS[k % len(_COLOURS)], label=name)
    panel.axvline(later.gap, color="black", linewidth=0.8, linestyle="--", label="as it was")
    panel.set_xlabel(f"gap before the last observation{_in(unit)}")
    panel.set_ylabel("answer")
    panel.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    _save(figure, path)


def plot_removal(
    removal: Removal, batch: IrregularBatch, path: str | Path, *, answer: int = 0, series: int = 0, unit: str = ""
) -> None:
    """How far the answer would move without each of the observations."""
    one = only_series(batch, series)
    figure, (panel,) = _figure(1, (7.0, 3.2))
    changes, times = removal.change.flatten(1), _array(one.times[0])
    if len(changes) != len(times):
        raise ShapeError(f"series: {series} has {len(times)} observations, but {len(changes)} were removed in turn")
    if not 0 <= answer < changes.shape[1]:
        raise ShapeError(f"answer: found {answer}, wanted an index into {changes.shape[1]} answers")
    change = _array(changes[:, answer])
    panel.vlines(times, 0, change, color=_COLOURS[0], linewidth=2)
    panel.plot(times, change, "o", color=_COLOURS[0], markersize=4)
    panel.axhline(0, color="black", linewidth=0.6)
    panel.set_xlabel(f"time of the observation{_in(unit)}")
    panel.set_ylabel("answer minus answer without it")
    _save(figure, path)


def plot_suggestion(suggestion: Suggestion, path: str | Path, *, unit: str = "") -> None:
    """Expected uncertainty with an observation at each candidate time, compared with none."""
    figure, (panel,) = _figure(1, (8.5, 3.2))
    order = suggestion.candidates.argsort()
    panel.plot(
        _array(suggestion.candidates[order]), _array(suggestion.after[order]), "o-", color=_COLOURS[0], markersize=3
    )
    panel.axhline(suggestion.before, color=_COLOURS[6], linestyle="--", label="without another observation")
    panel.axvline(suggestion.time, color=_COLOURS[1], label="suggested")
    panel.set_xlabel(f"time of the next observation{_in(unit)}")
    panel.set_ylabel("expected variance")
    panel.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    _save(figure, path)


def _array(values: Tensor) -> NDArray[Any]:
    """On the CPU, wherever they were made."""
    return values.numpy(force=True)


def _in(unit: str) -> str:
    return f" ({unit})" if unit else ""


def _figure(rows: int, size: tuple[float, float], **options: Any) -> tuple[Any, list[Any]]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise TidesError('plots need matplotlib: pip install "tides-ssm[plots]"') from error
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, squeeze=False, **options).ravel()
    for panel in axes:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(color="#e3e6ea", linewidth=0.7)
        panel.set_axisbelow(True)
    return figure, list(axes)


def _save(figure: Any, path: str | Path) -> None:
    try:
        figure.savefig(path, dpi=130)
    except (OSError, ValueError) as error:
        raise TidesError(f"{path}: cannot be written: {error}") from error
