"""Time may be any axis: shapes of curves indexed by arc length, so that the pace of the pen does not matter.

    python examples/arc_length.py

Closed curves with three, four or five lobes are drawn by a pen that reports where it is heading at irregular points.
One classifier reads the reports by the clock, the other by the distance drawn. Both learn from unhurried pens and are
then shown pens that hurry and hesitate. Expect an accuracy above 0.9 for both on unhurried pens, and above 0.9 for arc
length alone on the others. A plain model with `tides.training.fit`; some seconds.
"""

import numpy as np
import torch

import tides
from tides.training import Classification, TrainConfig, evaluate, fit

LOBES = (3, 4, 5)


def draw(curves: int, seed: int, *, by: str, hurried: bool, points: int = 30) -> tides.data.IrregularDataset:
    """Headings (cosine, sine) at irregular points of curves r = 1 + 0.5 cos(lobes·φ + phase), by time or arc length."""
    generator = np.random.default_rng(seed)
    phi = np.linspace(0, 2 * np.pi, 1000)
    series = []
    for number in range(curves):
        label = number % len(LOBES)
        radius = 1 + 0.5 * np.cos(LOBES[label] * phi + generator.uniform(0, 2 * np.pi))
        x, y = radius * np.cos(phi), radius * np.sin(phi)
        length = np.concatenate([[0], np.cumsum(np.hypot(np.diff(x), np.diff(y)))])
        # An unhurried pen moves evenly; a hurried one has its own speed, and is four times faster here than there.
        speed, strength, waves = (generator.uniform(*span) for span in ((0.3, 3), (0.6, 0.8), (1, 6)))
        slowness = np.exp(strength * np.cos(waves * phi)) / speed if hurried else np.ones(1000)
        clock = np.concatenate([[0], np.cumsum(np.diff(length) * slowness[1:])])
        rows = np.sort(generator.choice(999, points, replace=False))
        heading = np.arctan2(np.diff(y), np.diff(x))[rows]
        axis = (length if by == "arc length" else clock)[rows]
        values = np.stack([np.cos(heading), np.sin(heading)], axis=1)
        series.append(tides.data.IrregularSeries(values, axis, label=label, id=number))
    names = [f"{lobes} lobes" for lobes in LOBES]
    return tides.data.IrregularDataset(series, channels=("cos", "sin"), unit="cm", class_names=names)


def main(epochs: int = 20) -> dict[str, float]:
    found = {}
    for by in ("time", "arc length"):
        torch.manual_seed(0)
        config = tides.TIDESConfig(input_size=2, hidden_size=16, state_size=16, depth=1, rank=4, step_init=(0.01, 1.0))
        model = tides.SequenceClassifier(config, classes=len(LOBES))
        parts = draw(300, 0, by=by, hurried=False), draw(60, 1, by=by, hurried=False)
        fit(model, Classification(), parts, TrainConfig(epochs=epochs, lr=1e-2), progress=False)
        for hurried in (False, True):
            test = draw(150, 2, by=by, hurried=hurried)
            pens = "hurried" if hurried else "unhurried"
            found[f"{by}, {pens}"] = evaluate(model, Classification(), test, resamples=1)["accuracy"].value
            print(f"by {by}, {pens} pens: accuracy {found[f'{by}, {pens}']:.2f}")
    return found


if __name__ == "__main__":
    main()
