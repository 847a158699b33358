"""The estimators' defaults on small data, without a summary and without hidden inputs, beside models of statistics.

    python benchmarks/small_tables.py --seeds 8 --json benchmarks/results/small-tables.json

Ten synthetic tasks of 100 to 200 irregular series each, drawn anew for every seed; scored on 500 fresh series.
`defaults` are those of the estimators, `features` the same with `summary=False`, `shown` with `input_drop=0`, `tabular`
a logistic or ridge regression on statistics of each channel (count, mean, spread, extremes, first and last value).
Classes: accuracy and log loss; numbers: R².
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tides.data import IrregularDataset, IrregularSeries, systems
from tides.estimators import TIDESClassifier, TIDESRegressor

Rng = np.random.Generator
TEST = 500


def drift(i: int, rng: Rng) -> IrregularSeries:
    """A heart rate that drifts upwards in half of the patients, behind noise and levels of their own."""
    times = np.sort(rng.uniform(0, 48, rng.integers(6, 16)))
    rate = rng.normal(80, 10) + i % 2 * times / 2 + rng.normal(0, 5, len(times))
    other = np.where(rng.random(len(times)) < 0.6, rng.normal(96, 1, len(times)), np.nan)
    return IrregularSeries(np.stack([rate, other], 1), times, label=i % 2, static=[30 + i % 50, i % 3 == 0], id=i)


def bursts(i: int, rng: Rng) -> IrregularSeries:
    """Five measurements that follow each other fast, in half of the series; the values say nothing."""
    gaps = rng.exponential(1.0, rng.integers(10, 25))
    if i % 2:
        first = rng.integers(0, len(gaps) - 5)
        gaps[first : first + 5] *= 0.15
    times = np.cumsum(gaps)
    wave = np.sin(times / 3 + rng.uniform(0, 6)) + rng.normal(0, 0.5, len(times))
    return IrregularSeries(np.stack([wave, rng.normal(size=len(times))], 1), times, label=i % 2, id=i)


def memory(i: int, rng: Rng) -> IrregularSeries:
    """A stationary process that forgets within one unit of time, or within four."""
    times = np.sort(rng.uniform(0, 20, rng.integers(15, 40)))
    return IrregularSeries(_stationary(times, (4.0, 1.0)[i % 2], rng)[:, None], times, label=i % 2, id=i)


def order(i: int, rng: Rng) -> IrregularSeries:
    """A bump before a dip, or a dip before a bump; three tenths of the values are missing."""
    times = np.sort(rng.uniform(0, 30, rng.integers(20, 40)))
    up, down = np.sort(rng.uniform(3, 27, 2))[:: 1 - 2 * (i % 2)]
    signal = 2 * np.exp(-((times - up) ** 2) / 4) - 2 * np.exp(-((times - down) ** 2) / 4)
    values = np.stack([signal + rng.normal(0, 0.4, len(times)), rng.normal(size=len(times))], 1)
    return IrregularSeries(np.where(rng.random(values.shape) < 0.7, values, np.nan), times, label=i % 2, id=i)


def trends(i: int, rng: Rng) -> IrregularSeries:
    """Three classes of slopes, which depend on a static number too; half of three channels is missing."""
    age, times = rng.normal(), np.sort(rng.uniform(0, 10, rng.integers(5, 20)))
    values = rng.normal(size=3) + rng.normal(0, (0.4, 1, 1), (len(times), 3))
    values[:, 0] += (0.15 * (i % 3 - 1) + 0.1 * age) * times
    values[:, 1] += 0.5 * (i % 3 == 2)
    values = np.where(rng.random(values.shape) < 0.5, values, np.nan)
    return IrregularSeries(values, times, label=i % 3, static=[age, rng.normal()], id=i)


def slope(i: int, rng: Rng) -> IrregularSeries:
    """Which slope a noisy line has."""
    times, wanted = np.sort(rng.uniform(0, 10, rng.integers(6, 20))), rng.normal()
    line = 2 * rng.normal() + wanted * times / 3 + rng.normal(0, 0.4, len(times))
    return IrregularSeries(np.stack([line, rng.normal(size=len(times))], 1), times, label=wanted, id=i)


def forgetting(i: int, rng: Rng) -> IrregularSeries:
    """The logarithm of the time within which a stationary process forgets."""
    times, wanted = np.sort(rng.uniform(0, 20, rng.integers(15, 40))), rng.uniform(-1, 1.5)
    return IrregularSeries(_stationary(times, np.exp(wanted), rng)[:, None], times, label=wanted, id=i)


def frequency(i: int, rng: Rng) -> IrregularSeries:
    """The frequency of a noisy wave; three tenths of the values are missing."""
    times, wanted = np.sort(rng.uniform(0, 20, rng.integers(15, 40))), rng.uniform(0.5, 2)
    wave = np.sin(wanted * times + rng.uniform(0, 6)) + rng.normal(0, 0.2, len(times))
    values = np.stack([wave, rng.normal(size=len(times))], 1)
    return IrregularSeries(np.where(rng.random(values.shape) < 0.7, values, np.nan), times, label=wanted, id=i)


def _stationary(times: np.ndarray, memory: float, rng: Rng) -> np.ndarray:
    values = rng.normal(size=len(times))
    for k in range(1, len(times)):
        kept = np.exp(-(times[k] - times[k - 1]) / memory)
        values[k] = kept * values[k - 1] + np.sqrt(1 - kept**2) * values[k]
    return values


CLASSES: dict[str, tuple[Callable[[int, Rng], IrregularSeries] | str, int]] = {
    "drift": (drift, 128),
    "bursts": (bursts, 150),
    "memory": (memory, 200),
    "order": (order, 150),
    "trends": (trends, 150),
    "calcium": ("calcium", 100),
    "axon": ("hodgkin-huxley", 100),
}
NUMBERS = {"slope": (slope, 150), "forgetting": (forgetting, 200), "frequency": (frequency, 200)}


def draw(source: Callable[[int, Rng], IrregularSeries] | str, n: int, seed: tuple[int, int]) -> IrregularDataset:
    """n series; those of a system come from the package."""
    if isinstance(source, str):
        return systems.classification(source, n=n, points=30, seed=1000 * seed[0] + seed[1])
    rng = np.random.default_rng(seed)
    return IrregularDataset([source(i, rng) for i in range(n)])


def statistics(data: IrregularDataset) -> np.ndarray:
    """What people put into a tabular model, and the static features."""
    rows = []
    for one in data:
        row = [float(len(one)), float(np.ptp(one.times))]
        for values, seen in zip(one.values.T, one.observed.T, strict=True):
            x = values[seen]
            row += [len(x), *([x.mean(), x.std(), x.min(), x.max(), x[0], x[-1]] if len(x) else [np.nan] * 6)]
        rows.append(row)
    table = np.array(rows, float)
    return table if data.static is None else np.concatenate([table, data.static], 1)


def measure(task: str, seed: int) -> dict[str, dict[str, float]]:
    """All models on one drawing of one task."""
    source, n = {**CLASSES, **NUMBERS}[task]
    train, test = draw(source, n, (seed, 0)), draw(source, TEST, (seed, 1))
    found: dict[str, dict[str, float]] = {}
    last = LogisticRegression(max_iter=2000) if task in CLASSES else RidgeCV()
    tabular = make_pipeline(SimpleImputer(), StandardScaler(), last).fit(statistics(train), train.labels)
    kind: Any = TIDESClassifier if task in CLASSES else TIDESRegressor
    choices: dict[str, dict[str, Any]] = {"defaults": {}, "features": {"summary": False}, "shown": {"input_drop": 0}}
    models = {name: kind(random_state=seed, **chosen).fit(train) for name, chosen in choices.items()}
    for name, model, question in [
        ("tabular", tabular, (statistics(test), test.labels)),
        *((name, model, (test,)) for name, model in models.items()),
    ]:
        found[name] = {"score": float(model.score(*question))}
        if task in CLASSES:
            found[name]["log_loss"] = float(log_loss(test.labels, model.predict_proba(question[0])))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--tasks", default=",".join([*CLASSES, *NUMBERS]))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = {}
    for task in arguments.tasks.split(","):
        results[task] = [measure(task, seed) for seed in range(arguments.seeds)]
        shown = {name: np.array([one[name]["score"] for one in results[task]]) for name in results[task][0]}
        print(
            task, *(f"{name} {x.mean():.3f} ± {x.std(ddof=1):.3f}" for name, x in shown.items()), sep="  ", flush=True
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({"seeds": arguments.seeds, "tasks": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
