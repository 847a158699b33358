"""The loop on small problems: it learns, stops, resumes, diverges and repeats itself exactly."""

import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tides.data import IrregularDataset, IrregularSeries
from tides.errors import ConfigError, Diverged, ShapeError
from tides.training import Classification, Loss, Regression, TrainConfig, evaluate, fit
from tides.training.evaluation import answer
from tides.training.order import epoch_batches


class Mean(nn.Module):
    """A linear map of the mean observation, with dropout: small enough to train in milliseconds."""

    def __init__(self, outputs: int = 2) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.1)
        self.map = nn.Linear(2, outputs)

    def forward(self, x: Tensor, gaps: Tensor, *, observed: Tensor, valid: Tensor) -> Tensor:
        return self.map(self.drop((x * valid[..., None]).sum(1) / valid.sum(1, keepdim=True)))


def series(n: int, seed: int = 0, *, numbers: bool = False) -> IrregularDataset:
    rng = np.random.default_rng(seed)
    made = []
    for i in range(n):
        length, label = int(rng.integers(2, 7)), i % 2
        values = rng.normal(size=(length, 2)) + (2 * label - 1)
        answer = float(values.mean()) if numbers else label
        made.append(IrregularSeries(values, np.sort(rng.uniform(size=length)), label=answer, id=(seed, i)))
    return IrregularDataset(made)


def config(**fields: Any) -> TrainConfig:
    return TrainConfig(**{"epochs": 6, "batch_size": 8, "lr": 0.05, "calibrate": "none", **fields})


def run(folder: Path | None = None, outputs: int = 2, **fields: Any) -> tuple[Mean, Any]:
    torch.manual_seed(3)
    model = Mean(outputs)
    data = series(24), series(12, 1)
    return model, fit(model, Classification(), data, config(**fields), folder=folder, progress=False)


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def test_it_learns_and_ends_with_the_best_epoch() -> None:
    model, result = run(monitor="accuracy")
    assert result.best["val_accuracy"] >= 0.9
    best = max(row["val_accuracy"] for row in result.history)
    assert result.best["val_accuracy"] == best
    assert result.best_epoch == next(row["epoch"] for row in result.history if row["val_accuracy"] == best)
    assert result.epochs == 6
    assert result.steps == 18
    assert result.stopped == "epochs"
    assert model.training


def test_the_loss_of_an_epoch_is_the_mean_over_its_series() -> None:
    """With next to no learning rate every batch, the short last one too, is answered by the same model."""
    model, data = Mean(), series(24)
    model.drop.p = 0.0
    wanted = answer(model, Classification(), data, 24).loss
    result = fit(model, Classification(), (data, series(12, 1)), config(batch_size=7, lr=1e-12), progress=False)
    assert [row["train_loss"] for row in result.history] == pytest.approx([wanted] * 6, rel=1e-5)
    losses = [row["val_loss"] for row in result.history]
    assert losses == pytest.approx([answer(model, Classification(), series(12, 1), 5).loss] * 6, rel=1e-5)


def test_equal_seeds_repeat_bit_for_bit_and_leave_the_global_generator_alone() -> None:
    (a, first), (b, second), (c, _) = run(), run(), run(seed=1)
    assert same(a, b)
    assert first.history == second.history
    assert not same(a, c)
    torch.manual_seed(3)
    Mean()
    expected = torch.rand(1)
    run()
    assert torch.equal(expected, torch.rand(1))


def test_early_stopping_restores_the_best_weights() -> None:
    kept: list[Tensor] = []

    class Scripted(Classification):
        """Validation losses as written here; one batch an epoch."""

        def predict(self, model: nn.Module, batch: Any) -> Tensor:
            if not model.training:
                kept.append(model.map.weight.detach().clone())  # type: ignore[union-attr,operator]
            return super().predict(model, batch)

        def loss(self, output: Tensor, batch: Any) -> Loss:
            if torch.is_grad_enabled():
                return super().loss(output, batch)
            return Loss(torch.tensor([3.0, 1.0, 2.0, 1.5, 1.0][len(kept) - 1]), torch.tensor(1.0))

    model = Mean()
    data = series(24), series(8, 1)
    result = fit(model, Scripted(), data, config(epochs=20, patience=3), progress=False)
    assert (result.best_epoch, result.epochs, result.stopped) == (2, 5, "patience")
    assert torch.equal(model.map.weight, kept[1])


def test_a_finished_folder_is_not_trained_again(tmp_path: Path) -> None:
    first, result = run(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == result.history
    written = (tmp_path / "checkpoint.json").stat().st_mtime_ns
    again, second = run(tmp_path)
    assert same(first, again)
    assert second.history == result.history
    assert (tmp_path / "checkpoint.json").stat().st_mtime_ns == written
    with pytest.raises(ConfigError, match=r"^lr: the run in"):
        run(tmp_path, lr=0.1)
    with pytest.raises(ConfigError, match="holds the run of another model; use another folder"):
        run(tmp_path, outputs=3)


@pytest.mark.parametrize("epochs", [6, 2])
def test_a_folder_belongs_to_its_training_and_validation_series(tmp_path: Path, epochs: int) -> None:
    """Other series that choose the epoch make another run, as other series to learn from do."""
    run(tmp_path, epochs=epochs)
    for data, which in (
        ((series(24, 7), series(12, 1)), "training"),
        ((series(24), series(12, 7)), "validation"),
        ((series(24), None), "validation"),
    ):
        with pytest.raises(ConfigError, match=f"holds the run of other {which} series"):
            fit(Mean(), Classification(), data, config(epochs=epochs), folder=tmp_path, progress=False)


def test_without_validation_the_last_epoch_counts() -> None:
    model = Mean()
    result = fit(model, Classification(), (series(24), None), config(), progress=False)
    assert result.best_epoch == 6
    assert "val_loss" not in result.best
    with pytest.raises(ConfigError, match=r"^patience: found 3, but there is no validation data"):
        fit(model, Classification(), (series(24), None), config(patience=3), progress=False)


def test_a_loss_that_is_not_finite_names_the_last_good_checkpoint(tmp_path: Path) -> None:
    class Breaking(Classification):
        steps = 0

        def predict(self, model: nn.Module, batch: Any) -> Tensor:
            Breaking.steps += model.training
            return super().predict(model, batch) * (float("nan") if Breaking.steps == 8 else 1.0)

    model = Mean()
    with pytest.raises(Diverged, match=rf"epoch 3 at step 8: found loss nan .* {tmp_path}/checkpoint.json"):
        fit(
            model,
            Breaking(),
            (series(24), series(12, 1)),
            config(checkpoint_seconds=0.0),
            folder=tmp_path,
            progress=False,
        )
    assert json.loads((tmp_path / "checkpoint.json").read_text())["state"]["step"] == 7
    assert all(bool(torch.isfinite(x).all()) for x in model.state_dict().values())


def test_a_model_that_diverges_at_once_can_be_trained_again(tmp_path: Path) -> None:
    model = Mean(1)
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    data = series(24, numbers=True), None
    wild = config(lr=1e30, schedule="constant")
    for folder in (None, tmp_path, tmp_path):
        # The third call continues the second, which was over before its first epoch.
        with pytest.raises(Diverged, match="in epoch 1"):
            fit(model, Regression(), data, wild, folder=folder, progress=False)
        assert all(torch.equal(tensor, start[name]) for name, tensor in model.state_dict().items())
    assert fit(model, Regression(), data, config(), progress=False).stopped == "epochs"


def test_an_exploding_loss_is_divergence() -> None:
    with pytest.raises(Diverged, match=r"wanted at most .*no folder was given"):
        fit(
            Mean(1),
            Regression(),
            (series(24, numbers=True), None),
            config(lr=1e4, explosion=100.0, schedule="constant"),
            progress=False,
        )


class Answers(nn.Module):
    """The same answer for every series, whatever it is."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, x: Tensor, gaps: Tensor, *, observed: Tensor, valid: Tensor) -> Any:
        return self.answer.expand(len(x), *self.answer.shape) if isinstance(self.answer, Tensor) else self.answer


def test_a_model_that_learns_nothing_is_scored() -> None:
    found = evaluate(Answers(torch.tensor([0.0, 1.0])), Classification(), series(8), resamples=2)
    assert found["accuracy"].value == 0.5


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (torch.zeros(3, 2), r"found \(8, 3, 2\), wanted logits \(b, k\)"),
        ((torch.zeros(8, 2), None), "Answers gave a tuple"),
    ],
)
def test_answers_of_another_kind_are_named(answer: Any, problem: str) -> None:
    with pytest.raises(ShapeError, match=problem):
        evaluate(Answers(answer), Classification(), series(8), resamples=2)


def test_a_run_of_a_plain_task_with_other_settings_is_refused(tmp_path: Path) -> None:
    class Weighted:
        metrics = Classification().metrics

        def __init__(self, weight: float) -> None:
            self.weight, self.scratch = weight, object()

        def __getattr__(self, name: str) -> Any:
            return getattr(Classification(), name)

    def train(weight: float) -> Any:
        data = series(8), series(4, 1)
        return fit(Mean(), Weighted(weight), data, config(epochs=1), folder=tmp_path, progress=False)

    assert train(1.0).history == train(1.0).history
    with pytest.raises(ConfigError, match="task: the run in"):
        train(2.0)


@pytest.mark.parametrize("bucketed", [False, True])
def test_every_series_once_per_epoch_in_an_order_of_its_own(bucketed: bool) -> None:
    lengths = np.random.default_rng(0).integers(1, 50, 45)
    orders = [epoch_batches(lengths, config(bucketed=bucketed), epoch) for epoch in range(3)]
    assert orders[0] != orders[1]
    assert orders[1] == epoch_batches(lengths, config(bucketed=bucketed), 1)
    for order in orders:
        assert sorted(i for members in order for i in members) == list(range(45))
        assert len(order) == 6


def test_bfloat16_and_deterministic_runs_train_and_put_everything_back() -> None:
    _, result = run(autocast=True, deterministic=True, bucketed=True)
    assert result.best["val_accuracy"] >= 0.8
    assert not torch.are_deterministic_algorithms_enabled()


def test_tensorboard_is_written_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, float, int]] = []

    class SummaryWriter:
        def __init__(self, folder: Path, purge_step: int) -> None:
            assert purge_step == 1

        def add_scalar(self, name: str, value: float, step: int) -> None:
            seen.append((name, value, step))

        def close(self) -> None:
            seen.append(("closed", 0.0, 0))

    fake = types.ModuleType("torch.utils.tensorboard")
    fake.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    _, result = run(tmp_path / "whole")
    assert ("val_loss", result.history[2]["val_loss"], 3) in seen
    assert seen[-1][0] == "closed"
    with pytest.raises(Diverged):
        run(tmp_path / "part", lr=1e6, explosion=1.5, schedule="constant")
    assert seen[-1][0] == "closed"
    assert [name for name, _, _ in seen].count("closed") == 2
    # A ranking is undefined where there is one class: a null in the file, no point in the picture.
    one_class = IrregularDataset([one for one in series(12, 1) if one.label == 0])
    result = fit(Mean(), Classification(), (series(24), one_class), config(), folder=tmp_path / "one", progress=False)
    assert result.history[0]["val_auroc"] is None
    assert all(value is not None for _, value, _ in seen)
    assert ("val_accuracy", result.history[5]["val_accuracy"], 6) in seen
    assert not any(name == "epoch" for name, _, _ in seen)


def test_the_bar_shows_loss_metric_speed_and_remaining_time(capsys: pytest.CaptureFixture[str]) -> None:
    fit(Mean(), Classification(), (series(24), series(12, 1)), config(monitor="auroc"), progress=True)
    shown = capsys.readouterr().err
    assert "epoch 6/6" in shown
    assert "loss" in shown
    assert "val auroc" in shown


def test_progress_can_be_told_to_a_function() -> None:
    told: list[float] = []
    fit(Mean(), Classification(), (series(24), None), config(), progress=told.append)
    assert told[-1] == 1.0
    assert told == sorted(told)
    assert len(told) >= 6
