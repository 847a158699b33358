"""On a GPU: training works, continues after an interruption, and ends with finite, equal metrics."""

import threading
from pathlib import Path

import pytest
import torch

from tides import kernels
from tides.data import split, systems
from tides.nn import Forecaster, SequenceClassifier, TIDESConfig
from tides.training import Classification, FitResult, Forecasting, TrainConfig, fit, fit_population
from tides.training.gradients import backpropagate

pytestmark = pytest.mark.gpu


class Stop(Exception):
    pass


def test_the_backward_pass_stays_in_the_calling_thread() -> None:
    threads: list[int] = []
    x = torch.ones(3, device="cuda", requires_grad=True)
    y = x * 2
    y.register_hook(lambda gradient: threads.append(threading.get_ident()))
    y.sum().backward(retain_graph=True)
    backpropagate((x * y).sum())
    assert threads[0] != threads[1] == threading.get_ident()


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


def population(graphs: bool) -> tuple[list[FitResult], list[Forecaster]]:
    """Five small forecasters, batches of 16, 16 and 10, trained with captured or single launches."""
    data = [split(systems.forecasting("calcium", n=60, points=16, seed=seed), (0.7, 0.3)) for seed in range(5)]
    models = []
    for seed in range(5):
        torch.manual_seed(seed)
        config = TIDESConfig(input_size=2, hidden_size=8, state_size=8, depth=2, rank=2, bidirectional=True)
        models.append(Forecaster(config, channels=2).cuda())
    settings = TrainConfig(epochs=6, batch_size=16, lr=1e-2, clip_norm=1.0, warmup_epochs=1)
    return fit_population(models, Forecasting(), data, settings, graphs=graphs, progress=False), models


@pytest.mark.parametrize("backend", ["torch", "auto"])
def test_a_captured_population_is_the_plain_one(backend: kernels.Backend) -> None:
    with kernels.use_backend(backend):
        captured, models = population(graphs=True)
        plain, others = population(graphs=False)
    for one, other in zip(captured, plain, strict=True):
        for row, known in zip(one.history, other.history, strict=True):
            # Sums on a GPU may change their order from run to run.
            assert row["train_loss"] == pytest.approx(known["train_loss"], rel=2e-3)
            assert row["val_loss"] == pytest.approx(known["val_loss"], rel=2e-3)
    for model, other in zip(models, others, strict=True):
        torch.testing.assert_close(model.head.weight, other.head.weight, rtol=2e-2, atol=2e-3)
