"""Follow many streams with one model, stop without warning, go on: no observation is lost or counted twice.

    python examples/follow_streams.py

A classifier learns three regimes of a calcium oscillator. Then 100 cells are observed at once, in the order of the
clock; a session keeps one state for each and says after every observation how likely each regime is. Half-way the
process "dies"; a second one goes on from the journal while the source sends everything again. Expect more than 0.9 of
the cells recognised at the end, the answers of the whole-sequence call (differences below 1e-5), and thousands of
observations a second. From a shell: `tides stream model/ --state state/ < events.jsonl`. Some seconds.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import tides
from tides.streaming import DurableSession, StreamSession
from tides.training import Classification, TrainConfig, fit


def train(epochs: int, folder: Path) -> Path:
    """A small classifier on 300 cells, as a model folder."""
    torch.manual_seed(0)
    data = tides.data.systems.classification("calcium", n=360, seed=0)
    config = tides.TIDESConfig(input_size=2, hidden_size=16, state_size=8, depth=1, rank=4, mask_channels=True)
    model = tides.SequenceClassifier(config, classes=3)
    fit(model, Classification(), (data[:300], data[300:]), TrainConfig(epochs=epochs, lr=1e-2), progress=False)
    return tides.save(model, folder, metadata={"schema": data.schema.to_dict()})


def main(epochs: int = 10) -> dict[str, float]:
    cells = tides.data.systems.classification("calcium", n=100, seed=1)
    events = sorted(
        (float(t), cell.id, np.where(seen, x, np.nan))
        for cell in cells
        for t, x, seen in zip(cell.times, cell.values, cell.observed, strict=True)
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder, state = train(epochs, Path(scratch) / "model"), Path(scratch) / "state"

        first = DurableSession(StreamSession.load(folder), state, every=500)
        for number, (t, cell, x) in enumerate(events[: len(events) // 2], start=1):
            first.step(t, x, key=cell, number=number)
        del first  # No farewell: nothing is stored beyond what every step has written.

        start = time.perf_counter()
        with DurableSession(StreamSession.load(folder), state, every=500) as second:
            print(f"{second.applied} observations are known after the restart")
            for number, (t, cell, x) in enumerate(events, start=1):
                second.step(t, x, key=cell, number=number)
            seconds = time.perf_counter() - start
            answers = np.stack([second.session.answer(cell.id) for cell in cells])
        model = tides.load(folder)

    batch = tides.data.collate(cells)
    with torch.no_grad():
        whole = model(batch.values, model.gaps(batch.times, batch.valid), observed=batch.observed, valid=batch.valid)
    found = {
        "accuracy": float((answers.argmax(1) == cells.labels).mean()),
        "difference": float(np.abs(answers - whole.softmax(-1).numpy()).max()),
        "observations": float(second.applied),
    }
    print(f"{len(events)} observations of {len(cells)} cells, {len(events) / seconds:.0f} a second with the journal")
    print(f"regimes recognised: {found['accuracy']:.2f}; against whole sequences: {found['difference']:.1e}")
    return found


if __name__ == "__main__":
    main()
