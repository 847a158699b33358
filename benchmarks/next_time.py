"""Does it pay to ask the model when to look next? Suggested, regular and random times at equal budgets.

    python benchmarks/next_time.py --seeds 20 --out curve.json --plot curve.png

A forecaster with a Gaussian head learns to continue the calcium oscillator by half a second from a few observations in
the three seconds before. Every seed draws its own cells and noise. All policies begin with one observation at the start
of the three seconds and then add one at a time: `suggested` asks `suggest_next_time` on a grid of candidates (samples
kept and not analysed yet), `random` draws from the same grid, `regular` spreads its budget evenly up to the end.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from tides.data import IrregularDataset, IrregularSeries, Scaling, collate, systems
from tides.explain import suggest_next_time
from tides.nn import Forecaster, TIDESConfig
from tides.training import Forecasting, TrainConfig, fit

PAST, FUTURE = (0.0, 3.0), np.linspace(3.05, 3.5, 10)
BUDGETS = (1, 2, 3, 4, 5)
NOISE = 0.05
GRID = np.linspace(*PAST, 31)


class Cells:
    """Instances of the oscillator that can be measured at any time."""

    def __init__(self, n: int, seed: int) -> None:
        self.grid, self.states = systems.simulate("calcium", n, seed)
        self.noise, self.deviation = np.random.default_rng((seed, 7)), self.states.std(axis=(0, 1))

    def __len__(self) -> int:
        return len(self.states)

    def truth(self, cell: int, times: np.ndarray) -> np.ndarray:
        return np.stack([np.interp(times, self.grid, channel) for channel in self.states[cell].T], axis=1)

    def measure(self, cell: int, times: np.ndarray) -> np.ndarray:
        exact = self.truth(cell, times)
        return exact + NOISE * self.deviation * self.noise.standard_normal(exact.shape)

    def question(self, cell: int, times: np.ndarray, values: np.ndarray) -> IrregularSeries:
        return IrregularSeries(values, times, query_times=FUTURE, target=self.truth(cell, FUTURE), id=cell)


def training_data(n: int, seed: int) -> IrregularDataset:
    """Two to eight times of each cell: anywhere, or crowded towards the end."""
    cells, draw = Cells(n, seed), np.random.default_rng((seed, 8))
    series = []
    for cell in range(n):
        times = np.sort(draw.uniform(draw.uniform(PAST[0], PAST[1] - 0.3), PAST[1], draw.integers(2, 9)))
        series.append(cells.question(cell, times, cells.measure(cell, times)))
    return IrregularDataset(series)


def train(n: int, epochs: int, seed: int) -> tuple[Forecaster, Forecasting]:
    data, held = training_data(n, 1000 + seed), training_data(n // 10, 2000 + seed)
    torch.manual_seed(seed)
    config = TIDESConfig(input_size=2, hidden_size=24, state_size=8, depth=2, rank=4, hold="preceding")
    model = Forecaster(config, channels=4)
    task = Forecasting(scale=tuple(Scaling.fit(data).std.tolist()), gaussian=True)
    settings = TrainConfig(epochs=epochs, batch_size=64, lr=6e-3, seed=seed, clip_norm=1.0)
    fit(model, task, (data, held), settings, progress=False)
    return model.eval(), task


def error(model: Forecaster, task: Forecasting, questions: list[IrregularSeries]) -> float:
    """Root mean squared error of the forecasts, in standard deviations."""
    batch = collate(questions, first_gap=0.1)
    with torch.no_grad():
        mean, _ = task.moments(task.predict(model, batch))
    assert batch.targets is not None
    assert task.scale is not None
    return float(((mean - batch.targets) / torch.tensor(task.scale)).square().mean().sqrt())


def follow(model: Forecaster, task: Forecasting, cells: Cells, policy: str, seed: int) -> list[float]:
    """The error at every budget under one policy."""
    draw, found = np.random.default_rng((seed, 9)), []
    chosen = [[0] for _ in range(len(cells))]
    values = [dict(zip(at, cells.measure(c, GRID[at]), strict=True)) for c, at in enumerate(chosen)]
    for budget in BUDGETS:
        for c in range(len(cells)):
            if policy == "regular":
                chosen[c] = np.linspace(0, len(GRID) - 1, budget + 1).round().astype(int).tolist()
                values[c] = dict(zip(chosen[c], cells.measure(c, GRID[chosen[c]]), strict=True))
            while len(chosen[c]) < budget + 1:
                free = [i for i in range(len(GRID)) if i not in chosen[c]]
                if policy == "random":
                    new = int(draw.choice(free))
                else:
                    batch = collate([cells.question(c, GRID[chosen[c]], np.stack([values[c][i] for i in chosen[c]]))])
                    best = suggest_next_time(model, batch, GRID[free], task=task, samples=4)
                    new = free[int(best.gain.argmax())]
                values[c][new] = cells.measure(c, GRID[[new]])[0]
                chosen[c] = sorted([*chosen[c], new])
        asked = [cells.question(c, GRID[at], np.stack([values[c][i] for i in at])) for c, at in enumerate(chosen)]
        found.append(error(model, task, asked))
    return found


def draw(curves: dict[str, list[list[float]]], path: Path) -> None:
    """Mean error and its standard error over the seeds, against the number of observations."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    panel = figure.subplots()
    for (policy, rows), colour in zip(curves.items(), ("#7F7F7F", "#E69F00", "#0072B2"), strict=True):
        mean, spread = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / np.sqrt(len(rows))
        panel.errorbar(BUDGETS, mean, spread, color=colour, marker="o", markersize=4, capsize=3, label=policy)
    panel.spines[["top", "right"]].set_visible(False)
    panel.set_xticks(BUDGETS)
    panel.set_xlabel("observations after the first")
    panel.set_ylabel("error of the forecast (standard deviations)")
    panel.legend(frameon=False)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--cells", type=int, default=8, help="cells of each seed")
    parser.add_argument("--train", type=int, default=6000, help="cells to learn from")
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--out", type=Path, default=Path("next_time.json"))
    parser.add_argument("--plot", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, task = train(options.train, options.epochs, seed=0)
    print("trained", flush=True)
    curves = {
        policy: [follow(model, task, Cells(options.cells, seed), policy, seed) for seed in range(options.seeds)]
        for policy in ("regular", "random", "suggested")
    }
    options.out.write_text(json.dumps({"budgets": BUDGETS, "curves": curves}))
    if options.plot is not None:
        draw(curves, options.plot)
    for policy, rows in curves.items():
        mean, spread = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / np.sqrt(len(rows))
        print(policy, " ".join(f"{m:.3f}±{s:.3f}" for m, s in zip(mean, spread, strict=True)))
    for other in ("regular", "random"):
        wins = (np.array(curves["suggested"]) < np.array(curves[other])).mean(axis=0)
        print(f"suggested better than {other} in", " ".join(f"{w:.0%}" for w in wins), "of the seeds")


if __name__ == "__main__":
    main()
