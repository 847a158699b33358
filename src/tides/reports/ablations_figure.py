"""The effect of every change, dataset by dataset."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tides.reports.drawing import COLOURS, canvas, save
from tides.reports.page import Image

# One ratio of thousands would leave no room for all others; beyond the edge there are only arrows.
EDGE = 10.0


def draw(ratios: Mapping[Any, Mapping[str, float]], folder: Path) -> Image:
    """One line per change, one colour per factor; saved as PNG and PDF and returned as an inline image."""
    changes = list(ratios)[::-1]
    factors = list(dict.fromkeys(change.factor for change in ratios))
    with canvas(1, 1, (8.5, 1.6 + 0.28 * len(changes))) as (figure, axes):
        axes.axvline(1.0, color="#59636e", lw=1)
        for place, change in enumerate(changes):
            colour = COLOURS[factors.index(change.factor) % len(COLOURS)]
            values = np.array(list(ratios[change].values()))
            mean = float(np.exp(np.mean(np.log(values))))
            below, above = values < 1 / EDGE, values > EDGE
            for marker, size, chosen in (("o", 4, ~below & ~above), ("<", 7, below), (">", 7, above)):
                x = values[chosen].clip(1 / EDGE, EDGE)
                axes.plot(x, np.full(len(x), place), marker, ms=size, alpha=0.5, color=colour)
            if 1 / EDGE <= mean <= EDGE:
                axes.vlines(mean, place - 0.35, place + 0.35, color=colour, lw=2.6)
        names = [f"{change.factor}: {change.value}" for change in changes]
        axes.set(xscale="log", xlabel="test error ÷ test error without the change")
        low, high = axes.get_xlim()
        shown = [tick for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10) if low <= tick <= high]
        axes.set_xticks(shown, [f"{tick:g}" for tick in shown])
        axes.minorticks_off()
        axes.set_yticks(range(len(changes)), names)
        axes.set_ylim(-0.6, len(changes) - 0.4)
        return save(figure, folder, "ablations")
