"""Forecasts at any time: ask for ten minutes ahead or for ten hours, alone or together, with intervals.

    python examples/forecast_any_time.py

Simulated tide gauges: water level and water temperature over three days, read at random hours, a third of the readings
missing. The forecaster is trained once, for anything up to twelve hours ahead, and asked at times that it has never
been asked for. Expect errors of about 0.2 whatever the distance (the last value is off by 0.2 to 1.2), intervals that
hold about nine values in ten, and the same answer however many questions are asked together.
Needs the extra `sklearn`; some seconds.
"""

import numpy as np

from tides.data import IrregularDataset, IrregularSeries
from tides.estimators import TIDESForecaster

MOON, SUN, DAY = 12.42, 12.0, 24.0  # periods in hours
AHEAD = ("10min", "2h", "6h", "11h")


class Gauge:
    """Level (m) and temperature (°C) at any hour; every place has its own heights and phases."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.height, self.neap, self.warmth = generator.uniform((0.8, 0.1, 0.5), (1.6, 0.4, 1.5))
        self.phases = generator.uniform(0, 2 * np.pi, 3)

    def __call__(self, hours: np.ndarray) -> np.ndarray:
        moon, sun, day = (np.cos(2 * np.pi * hours / p + f) for p, f in zip((MOON, SUN, DAY), self.phases, strict=True))
        return np.stack([self.height * moon + self.neap * sun, 12 + self.warmth * day], axis=-1)


def read(gauges: list[Gauge], generator: np.random.Generator, readings: int = 50) -> IrregularDataset:
    """Three days of readings at random hours, a little noise, a third of the entries missing."""
    series = []
    for number, gauge in enumerate(gauges):
        hours = np.sort(generator.uniform(0, 72, readings))
        values = gauge(hours) + generator.normal(0, 0.05, (readings, 2))
        values[generator.random(values.shape) < 1 / 3] = np.nan
        series.append(IrregularSeries(values, hours, id=number))
    return IrregularDataset(series, channels=("level", "temperature"), unit="h")


def main(epochs: int = 20) -> dict[str, float]:
    generator = np.random.default_rng(0)
    train, places = ([Gauge(generator) for _ in range(n)] for n in (200, 60))
    small = {"hidden_size": 16, "state_size": 16, "depth": 1, "dropout": 0.0, "lr": 0.02, "origins": 2}
    # A mode forgets within 2/step median gaps: here from 2 to 200 of them, that is from two hours to a week.
    memory = {"step_init": (0.01, 1.0)}
    forecaster = TIDESForecaster(horizon="12h", epochs=epochs, **small, model=memory, random_state=0)
    forecaster.fit(read(train, generator))

    past = read(places, generator)
    asked = [f"+{ahead}" for ahead in AHEAD]
    found = forecaster.predict(past, at=asked)  # (gauges, questions, channels)
    low, high = forecaster.predict_interval(past, at=asked, coverage=0.9)

    hours = np.array([one.times[-1] for one in past])
    last = np.stack([last_values(one) for one in past])
    errors, naive, inside = [], [], []
    for q, ahead in enumerate((1 / 6, 2.0, 6.0, 11.0)):
        truth = np.stack([gauge(hour + ahead) for gauge, hour in zip(places, hours, strict=True)])
        errors.append(float(np.abs(found[:, q] - truth).mean()))
        naive.append(float(np.abs(last - truth).mean()))
        inside.append(float(((low[:, q] <= truth) & (truth <= high[:, q])).mean()))
        print(f"{AHEAD[q]:>5} ahead: error {errors[-1]:.2f}, last value {naive[-1]:.2f}, covered {inside[-1]:.0%}")

    alone = forecaster.predict(past, at="+2h")[:, 0]
    difference = float(np.abs(alone - found[:, 1]).max())
    print(f"asked alone or with three others, an answer differs by {difference:.1e}")
    return {"ratio": sum(errors) / sum(naive), "coverage": float(np.mean(inside)), "difference": difference}


def last_values(series: IrregularSeries) -> np.ndarray:
    """The newest measurement of each channel."""
    newest = [np.flatnonzero(series.observed[:, c])[-1] for c in (0, 1)]
    return np.array([series.values[row, c] for c, row in enumerate(newest)])


if __name__ == "__main__":
    main()
