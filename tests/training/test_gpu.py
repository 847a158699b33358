"""On a GPU: training works, continues after an interruption, and ends with finite, equal metrics."""

from pathlib import Path

import pytest
import torch

from tides.data import split, systems
from tides.nn import SequenceClassifier, TIDESConfig
from tides.training import Classification, FitResult, TrainConfig, fit

pytestmark = pytest.mark.gpu


class Stop(Exception):
    pass


def run(
    folder: Path | None, *, stop_at: float = 2.0, autocast: bool = False
) -> tuple[FitResult, dict[str, torch.Tensor]]:
    train, val = split(systems.classification(n=60, points=16), (0.7, 0.3))
    torch.manual_seed(0)
    config = TIDESConfig(input_size=2, hidden_size=8, state_size=8, depth=1, rank=2, dropout=0.1, mask_channels=True)
    model = SequenceClassifier(config, classes=3).cuda()

    def watch(fraction: float) -> None:
        if fraction >= stop_at:
            raise Stop

    settings = TrainConfig(epochs=8, batch_size=16, lr=2e-2, checkpoint_seconds=0, autocast=autocast)
    result = fit(model, Classification(), (train, val), settings, folder=folder, progress=watch)
    return result, {name: tensor.cpu() for name, tensor in model.state_dict().items()}


def test_an_interrupted_run_continues(tmp_path: Path) -> None:
    whole, weights = run(tmp_path / "whole")
    with pytest.raises(Stop):
        run(tmp_path / "parts", stop_at=0.4)
    result, again = run(tmp_path / "parts")
    assert result.steps == whole.steps
    for name, tensor in weights.items():
        # Sums on a GPU may change their order from run to run.
        torch.testing.assert_close(again[name], tensor, rtol=1e-2, atol=1e-3)
    assert whole.best["val_accuracy"] is not None
    assert whole.best["val_accuracy"] > 0.6


def test_bfloat16(tmp_path: Path) -> None:
    result, weights = run(None, autocast=True)
    assert result.epochs == 8
    assert all(bool(torch.isfinite(tensor).all()) for tensor in weights.values())
    assert result.best["val_accuracy"] is not None
    assert result.best["val_accuracy"] > 0.5
