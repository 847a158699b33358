"""What int8 weights cost in accuracy on the two embedded tasks: the same trained models, rounded and not.

python benchmarks/int8.py --seeds 5    # prints the table of docs/guide/small-device.md
"""

import argparse
from statistics import mean

import torch

from tides.data import split, systems
from tides.nn import Forecaster, SequenceClassifier, TIDESConfig
from tides.streaming import quantised
from tides.training import Classification, Forecasting, TrainConfig, evaluate, fit


def config(channels: int) -> TIDESConfig:
    return TIDESConfig(
        input_size=channels, hidden_size=16, state_size=8, depth=2, rank=4, mask_channels=True, projector_init="random"
    )


def classify(seed: int) -> tuple[float, float, float]:
    """Accuracy as trained and rounded, and the share of series whose answer changes."""
    train, val, test = split(systems.classification(n=600, points=40, seed=seed), (0.4, 0.1, 0.5))
    torch.manual_seed(seed)
    model = SequenceClassifier(config(2), classes=3)
    settings = TrainConfig(epochs=12, batch_size=32, lr=1e-2, seed=seed)
    fit(model, Classification(), (train, val), settings, progress=False)
    found = [evaluate(one, Classification(), test, resamples=1)["accuracy"].value for one in (model, quantised(model))]
    return found[0], found[1], abs(found[0] - found[1])


def forecast(seed: int) -> tuple[float, float, float]:
    """Mean squared error, in standard deviations of the channels, as trained and rounded, and the relative change."""
    train, val, test = split(systems.forecasting(n=300, points=60, seed=seed), (0.5, 0.1, 0.4))
    torch.manual_seed(seed)
    model, task = Forecaster(config(4), channels=4), Forecasting.standardised(train)
    settings = TrainConfig(epochs=20, batch_size=16, lr=1e-2, seed=seed, monitor="mse")
    fit(model, task, (train, val), settings, progress=False)
    found = [evaluate(one, task, test, resamples=1)["mse"].value for one in (model, quantised(model))]
    return found[0], found[1], found[1] / found[0] - 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    torch.set_num_threads(1)
    for name, run in (("classification, accuracy", classify), ("forecasting, mean squared error", forecast)):
        exact, rounded, change = zip(*(run(seed) for seed in seeds), strict=True)
        print(
            f"{name}: float32 {mean(exact):.4f}, int8 {mean(rounded):.4f}, largest change {max(map(abs, change)):.4f}"
        )
