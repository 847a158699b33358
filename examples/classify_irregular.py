"""Classify irregular, partly observed series with a plain PyTorch loop; no download, some seconds.

    python examples/classify_irregular.py

Three regimes of a calcium oscillator, 2 channels, 30 to 60 random times per series, half of the entries missing.
Expect an accuracy above 0.95 on the 100 test series (chance is 0.33), and the same answers after reloading.
"""

import tempfile

import torch
from torch.nn import functional as F

import tides


def main(steps: int = 40) -> float:
    torch.manual_seed(0)
    data = tides.data.systems.classification("calcium", n=500, seed=0)
    train, test = data[:400], data[400:]

    # Units are learned from the training data only and travel with the model: channel scales and the time scale.
    scaling = tides.data.Scaling.fit(train)
    seen, held = (tides.data.collate(part, first_gap=train.median_gap()) for part in (train, test))
    config = tides.TIDESConfig(input_size=2, hidden_size=16, state_size=8, depth=1, rank=4, mask_channels=True)
    model = tides.SequenceClassifier(config, classes=3)
    model.calibrate(seen.gaps[seen.valid], torch.tensor(scaling.mean), torch.tensor(scaling.std))
    print(f"{model.count_parameters()} parameters, time scale {model.backbone.calibration.time_scale:.3f} {data.unit}")

    optimiser = torch.optim.AdamW(optimiser_groups(model), lr=0.01)
    for step in range(1, steps + 1):
        rows = torch.randperm(len(seen))[:64]
        loss = F.cross_entropy(logits(model, seen, rows), seen.targets[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.3f}")

    model.eval()
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        answers = logits(model, held).argmax(-1)
        tides.save(model, folder, metadata={"classes": list(data.class_names or ()), "channels": list(data.channels)})
        again = logits(tides.load(folder), held).argmax(-1)
    accuracy = (answers == held.targets).float().mean().item()
    same = "the same" if again.equal(answers) else "different"
    print(f"test accuracy {accuracy:.2f}; after saving and loading the answers are {same}")
    return accuracy


def logits(
    model: torch.nn.Module, batch: tides.data.IrregularBatch, rows: torch.Tensor | slice = slice(None)
) -> torch.Tensor:
    answer: torch.Tensor = model(
        batch.values[rows], batch.gaps[rows], observed=batch.observed[rows], valid=batch.valid[rows]
    )
    return answer


def optimiser_groups(model: torch.nn.Module) -> list[dict[str, object]]:
    """Every parameter says where it was made whether it wants weight decay: no matching on names."""
    parts: dict[bool, list[torch.nn.Parameter]] = {True: [], False: []}
    for _, parameter, tag in tides.nn.tagged_parameters(model):
        parts[tag == "decayed"].append(parameter)
    return [{"params": parts[True], "weight_decay": 0.01}, {"params": parts[False], "weight_decay": 0.0}]


if __name__ == "__main__":
    main()
