"""From runs of the scale benchmark to rates, efficiencies and a fit that says what it extrapolates."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

Groups = dict[tuple[str, int, int], list[dict[str, Any]]]
"""Runs by engine, workers and processors."""
# Other work on a machine that counts as idle, in processors.
_IDLE = 0.1
_EXTRAPOLATED = (4, 8, 16, 32, 64)
MODEL = "speed-up(n) = n / (1 + s (n − 1)), Amdahl's law"


def summarise(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Rows by engine, workers and processors (medians over the repeats), and one fit per engine.

    What was measured beside other work is not extrapolated: a fit would magnify what that work did to it.
    """
    groups: Groups = {}
    for run in runs:
        groups.setdefault((run["engine"], run["workers"], run["processors"]), []).append(run)
    rows = [_row(group, _single(groups, group[0]["engine"])) for group in groups.values()]
    engines = dict.fromkeys(run["engine"] for run in runs)
    busy = (_largest(run["other_processors"] for run in runs) or 0.0) > _IDLE
    return {"rows": rows, "busy": busy, "fits": [] if busy else [_fit(engine, groups) for engine in engines]}


def rate(run: dict[str, Any]) -> float:
    """Cells per minute from the start of the first process to the end of the last."""
    return float(60 * run["cells"] / run["wall"])


def cost(run: dict[str, Any]) -> float:
    """Processor seconds of a cell. Other work on the machine, which lengthens wall time, does not lengthen them."""
    return float(statistics.median(run["cell_processor_seconds"]))


def _single(groups: Groups, engine: str) -> list[dict[str, Any]]:
    """The runs that efficiency is relative to."""
    return groups[engine, 1, 1]


def _row(group: Sequence[dict[str, Any]], single: Sequence[dict[str, Any]]) -> dict[str, Any]:
    first = group[0]
    workers = first["workers"]
    rates = [rate(run) for run in group]
    return {
        "engine": first["engine"],
        "workers": workers,
        "processors": first["processors"],
        "repeats": len(group),
        "cells_per_minute": statistics.median(rates),
        "cells_per_minute_range": [min(rates), max(rates)],
        "observations_per_second": _median(run["observations"] / run["wall"] for run in group),
        "cell_seconds": _median(statistics.median(run["cell_seconds"]) for run in group),
        # What a worker does besides training: start, imports, waiting for the last one.
        "other_seconds": _median(run["wall"] - sum(run["cell_seconds"]) / workers for run in group),
        "efficiency": statistics.median(rates) / _median(map(rate, single)) / workers,
        "processor_seconds": _median(map(cost, group)),
        "processor_efficiency": _median(map(cost, single)) / _median(map(cost, group)),
        "other_processors": _largest(run["other_processors"] for run in group),
        "load_average": _largest(run["load_average"] for run in group),
    }


def _fit(engine: str, groups: Groups) -> dict[str, Any]:
    """The serial share s from cells of workers with a processor each, and what it would mean for more workers.

    s = Σ (n − 1)(c_n − 1) / Σ (n − 1)² with c_n the processor seconds of a cell beside n − 1 others, relative to one
    alone: least squares on c_n = n / speed-up = 1 + s (n − 1). Its range is that of the repeats, each fitted alone.
    """
    own = {
        workers: group
        for (name, workers, processors), group in groups.items()
        if name == engine and workers == processors and workers > 1
    }
    single = _single(groups, engine)
    found: dict[str, Any] = {"engine": engine, "model": MODEL, "measured": [1, *sorted(own)], "serial_share": None}
    if not own:
        return found
    share = serial_share({n: _median(map(cost, group)) / _median(map(cost, single)) for n, group in own.items()})
    repeats = [serial_share({n: cost(run[k]) / cost(single[k]) for n, run in own.items()}) for k in range(len(single))]
    low, high = min(repeats), max(repeats)
    return {
        **found,
        "serial_share": share,
        "serial_share_range": [low, high],
        "extrapolated": [
            {"workers": n, "speedup": speedup(n, share), "speedup_range": [speedup(n, high), speedup(n, low)]}
            for n in _EXTRAPOLATED
            if n > max(own)
        ],
    }


def serial_share(costs: dict[int, float]) -> float:
    """Least squares over relative costs by workers; a share below zero is noise and counts as zero."""
    above = sum((n - 1) * (ratio - 1) for n, ratio in costs.items())
    return max(0.0, above / sum((n - 1) ** 2 for n in costs))


def speedup(workers: int, share: float) -> float:
    """Amdahl's law."""
    return workers / (1 + share * (workers - 1))


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)
