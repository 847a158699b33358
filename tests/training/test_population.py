"""Populations: every member ends where it would have ended alone."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tides.data import IrregularDataset, collate, systems
from tides.errors import ConfigError, DataError
from tides.nn import Forecaster, SequenceClassifier, TIDESConfig
from tides.training import (
    Classification,
    FitResult,
    Forecasting,
    Task,
    TrainConfig,
    evaluate,
    fit,
    fit_population,
    population_losses,
)
from tides.training.population_steps import PopulationSteps

pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
MEMBERS = 3


class Stop(Exception):
    pass


def forecaster(seed: int, **fields: Any) -> Forecaster:
    torch.manual_seed(seed)
    chosen = {"input_size": 2, "hidden_size": 4, "state_size": 4, "depth": 1, "rank": 2, "decay_depth": 1, **fields}
    return Forecaster(TIDESConfig(**chosen), channels=2).double()


def classifier(seed: int, **fields: Any) -> SequenceClassifier:
    torch.manual_seed(seed)
    config = TIDESConfig(input_size=2, hidden_size=6, state_size=4, depth=1, rank=2, mask_channels=True, **fields)
    return SequenceClassifier(config, classes=3).double()


@cache
def simulated(kind: type[Task]) -> list[IrregularDataset]:
    make = systems.forecasting if kind is Forecasting else systems.classification
    return [make("calcium", n=20, points=8, seed=seed) for seed in range(MEMBERS)]


def folds(task: Task) -> list[tuple[IrregularDataset, IrregularDataset]]:
    """Every member has its own series, of its own lengths; 14 of them make batches of 8 and 6."""
    return [(one[:14], one[14:]) for one in simulated(type(task))]


def settings(**fields: Any) -> TrainConfig:
    return TrainConfig(**{"epochs": 3, "batch_size": 8, "lr": 1e-2, "lr_factor": 3.0, "weight_decay": 0.1, **fields})


def alone(make: Callable[[int], nn.Module], task: Task, config: TrainConfig) -> tuple[list[nn.Module], list[FitResult]]:
    models = [make(seed) for seed in range(MEMBERS)]
    pairs = zip(models, folds(task), range(MEMBERS), strict=True)
    return models, [fit(m, task, d, config.replace(seed=seed), progress=False) for m, d, seed in pairs]


def together(
    make: Callable[[int], nn.Module], task: Task, config: TrainConfig, **options: Any
) -> tuple[list[nn.Module], list[FitResult]]:
    models = [make(seed) for seed in range(MEMBERS)]
    return models, fit_population(models, task, folds(task), config, **{"progress": False, **options})


def assert_same(found: tuple[Any, Any], wanted: tuple[Any, Any], tolerance: float) -> None:
    for member, (model, other) in enumerate(zip(found[0], wanted[0], strict=True)):
        for name, tensor in other.state_dict().items():
            where = f"member {member}, {name}"
            torch.testing.assert_close(model.state_dict()[name], tensor, rtol=tolerance, atol=tolerance, msg=where)
    for one, other in zip(found[1], wanted[1], strict=True):
        assert (one.stopped, one.epochs, one.steps, one.best_epoch) == (
            other.stopped,
            other.epochs,
            other.steps,
            other.best_epoch,
        )
        for row, known in zip(one.history, other.history, strict=True):
            for name, value in row.items():
                assert value == pytest.approx(known[name], rel=1e-6), name


@pytest.mark.parametrize(
    "fields",
    [
        {"clip_norm": 0.5, "warmup_epochs": 1},
        {"optimiser": "adam", "schedule": "constant", "calibrate": "time"},
    ],
    ids=["adamw-clipped", "adam-constant"],
)
def test_members_end_where_they_would_have_ended_alone(fields: dict[str, Any]) -> None:
    task, config = Forecasting(), settings(**fields)
    assert_same(together(forecaster, task, config), alone(forecaster, task, config), 1e-8)


@pytest.mark.parametrize("fields", [{"bidirectional": True, "compat": "release"}, {"variant": "mamba-s"}])
def test_other_models(fields: dict[str, Any]) -> None:
    def make(seed: int) -> Forecaster:
        return forecaster(seed, **fields)

    config = settings(epochs=2, calibrate="none")
    if "compat" in fields:
        # Padding enters the statistics there, and alone a batch is padded to its own longest series.
        models, results = together(make, Forecasting(), config)
        assert all(len(result.history) == 2 for result in results)
        assert all(bool(torch.isfinite(p).all()) for model in models for p in model.parameters())
        return
    assert_same(together(make, Forecasting(), config), alone(make, Forecasting(), config), 1e-8)


@pytest.mark.parametrize("summary", [False, True], ids=["features", "summary"])
def test_classifiers_and_class_weights(summary: bool) -> None:
    task, config = Classification((1.0, 2.0, 1.5)), settings(epochs=3)
    make = partial(classifier, summary=summary)
    found = together(make, task, config)
    assert_same(found, alone(make, task, config), 1e-8)
    data = [val for _, val in folds(task)]
    nll = [float(evaluate(m, Classification(), d)["nll"].value) for m, d in zip(found[0], data, strict=True)]
    assert population_losses(found[0], Classification(), data) == pytest.approx(nll, rel=1e-9)


@pytest.fixture
def dismissals(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Filled with the rows of the stack that went on, whenever others were dismissed."""
    seen: list[list[int]] = []
    real = PopulationSteps.dismiss_others

    def watched(steps: PopulationSteps, members: list[int]) -> None:
        seen.append(members)
        real(steps, members)

    monkeypatch.setattr(PopulationSteps, "dismiss_others", watched)
    return seen


SOON_OVER: dict[str, Any] = {"epochs": 10, "patience": 1, "lr": 0.1, "clip_norm": 1.0}


def test_members_stop_by_themselves(dismissals: list[list[int]]) -> None:
    task, config = Forecasting(), settings(**SOON_OVER)
    found = together(forecaster, task, config)
    assert_same(found, alone(forecaster, task, config), 1e-6)
    assert len({result.epochs for result in found[1]}) > 1, "the members were meant to stop at different epochs"
    assert dismissals, "those that stopped first were meant to be dismissed"
    assert len(dismissals[0]) < MEMBERS


def test_a_population_that_has_dismissed_members_continues_bit_by_bit(
    tmp_path: Path, dismissals: list[list[int]]
) -> None:
    def make(seed: int) -> Forecaster:
        return forecaster(seed, dropout=0.2)

    def stop(fraction: float) -> None:
        if dismissals:
            raise Stop

    task, config = Forecasting(), settings(**SOON_OVER, checkpoint_seconds=0)
    models, results = together(make, task, config, folder=tmp_path / "whole")
    dismissals.clear()
    with pytest.raises(Stop):
        together(make, task, config, folder=tmp_path / "parts", progress=stop)
    dismissals.clear()
    again, repeated = together(make, task, config, folder=tmp_path / "parts")
    assert len(dismissals[0]) < MEMBERS, "the checkpoint was meant to hold a smaller stack"
    for model, other in zip(models, again, strict=True):
        assert all(torch.equal(x, other.state_dict()[name]) for name, x in model.state_dict().items())
    assert [r.history for r in results] == [r.history for r in repeated]


def test_a_diverged_member_does_not_disturb_the_others() -> None:
    task, config = Forecasting(), settings(epochs=3)
    models = [forecaster(seed) for seed in range(MEMBERS)]
    with torch.no_grad():
        models[1].head.weight.fill_(float("nan"))
    start = {name: tensor.clone() for name, tensor in models[1].state_dict().items()}
    results = fit_population(models, task, folds(task), config, progress=False)
    assert [result.stopped for result in results] == ["epochs", "diverged", "epochs"]
    assert (results[1].best_epoch, results[1].best, results[1].history) == (0, {}, [])
    for name, tensor in models[1].state_dict().items():
        if "calibration" not in name and "output" not in name:
            torch.testing.assert_close(tensor, start[name], equal_nan=True, rtol=0, atol=0)
    others, wanted = alone(forecaster, task, config)
    keep = (0, 2)
    assert_same(
        ([models[i] for i in keep], [results[i] for i in keep]),
        ([others[i] for i in keep], [wanted[i] for i in keep]),
        1e-8,
    )


def test_an_interrupted_population_continues_bit_by_bit(tmp_path: Path) -> None:
    def make(seed: int) -> Forecaster:
        return forecaster(seed, dropout=0.2)

    def stop(fraction: float) -> None:
        if fraction >= 0.5:
            raise Stop

    task, config = Forecasting(), settings(checkpoint_seconds=0)
    models, results = together(make, task, config, folder=tmp_path / "whole")
    with pytest.raises(Stop):
        together(make, task, config, folder=tmp_path / "parts", progress=stop)
    again, repeated = together(make, task, config, folder=tmp_path / "parts")
    for model, other in zip(models, again, strict=True):
        assert all(torch.equal(x, other.state_dict()[name]) for name, x in model.state_dict().items())
    assert [r.history for r in results] == [r.history for r in repeated]
    with pytest.raises(ConfigError, match="lr"):
        together(make, task, config.replace(lr=0.5), folder=tmp_path / "parts")
    with pytest.raises(ConfigError, match="holds the run of other series, or of models with other settings"):
        together(lambda seed: forecaster(seed, dropout=0.3), task, config, folder=tmp_path / "parts")
    shifted = [
        tuple(IrregularDataset([x.replace(values=x.values + 1) for x in part], schema=part.schema) for part in pair)
        for pair in folds(task)
    ]
    with pytest.raises(ConfigError, match="holds the run of other series"):
        fit_population([make(seed) for seed in range(MEMBERS)], task, shifted, config, folder=tmp_path / "parts")  # type: ignore[arg-type]
    cached, _ = together(
        make, task, config, folder=tmp_path / "whole", progress=lambda fraction: pytest.fail("trained")
    )
    assert all(torch.equal(a.head.weight, b.head.weight) for a, b in zip(models, cached, strict=True))  # type: ignore[arg-type]


def test_other_batches_of_the_same_shapes_are_refused(tmp_path: Path) -> None:
    def train(scale: float) -> None:
        batches = [tuple(collate(part, dtype=torch.float64) for part in pair) for pair in folds(Forecasting())]
        data = [(replace(train, values=scale * train.values), val) for train, val in batches]
        models = [forecaster(seed) for seed in range(MEMBERS)]
        config = settings(epochs=1, calibrate="none")
        fit_population(models, Forecasting(), data, config, folder=tmp_path, progress=False)

    train(1.0)
    train(1.0)
    with pytest.raises(ConfigError, match="holds the run of other series"):
        train(2.0)


def test_members_with_fewer_series() -> None:
    """An epoch is as long as the smallest member's; validation scores what each has."""
    data = folds(Forecasting())
    data[1] = (data[1][0][:13], data[1][1][:5])
    models = [forecaster(seed) for seed in range(MEMBERS)]
    results = fit_population(models, Forecasting(), data, settings(epochs=2), progress=False)
    assert {result.steps for result in results} == {4}
    for model, result, (_, val) in zip(models, results, data, strict=True):
        mse = float(evaluate(model, Forecasting(), val)["mse"].value)
        assert result.best["val_loss"] == pytest.approx(mse, rel=1e-9)
    labelled = folds(Classification())
    labelled[0] = (labelled[0][0], labelled[0][1][:5])
    with pytest.raises(DataError, match="equally many"):
        fit_population([classifier(s) for s in range(MEMBERS)], Classification(), labelled, settings(), progress=False)


def test_what_a_population_refuses() -> None:
    data, models = folds(Forecasting()), [forecaster(seed) for seed in range(MEMBERS)]
    for fields, name in (({"monitor": "mse"}, "monitor"), ({"bucketed": True}, "bucketed")):
        with pytest.raises(ConfigError, match=name):
            fit_population(models, Forecasting(), data, settings(**fields), progress=False)
    with pytest.raises(ConfigError, match="one architecture"):
        fit_population([*models[:2], forecaster(0, depth=2)], Forecasting(), data, settings(), progress=False)
    with pytest.raises(ConfigError, match="seeds"):
        fit_population(models, Forecasting(), data, settings(), seeds=[1], progress=False)
    with pytest.raises(ConfigError, match="models: found one of them twice"):
        fit_population([models[0]] * MEMBERS, Forecasting(), data, settings(), progress=False)
    unchecked: list[Any] = [(train, None) for train, _ in data]
    with pytest.raises(ConfigError, match=r"data of member 0: wanted a pair \(train, validation\)"):
        fit_population(models, Forecasting(), unchecked, settings(), progress=False)
    with pytest.raises(ConfigError, match="config: found a dict"):
        fit_population(models, Forecasting(), data, {}, progress=False)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="data: found 1 data sets, wanted one for each of 3 models"):
        population_losses(models, Forecasting(), [data[0][1]])


def test_classes_that_a_model_does_not_have_are_named_before_training() -> None:
    """A stack looks at no label, and on a GPU a wrong one ends the process."""
    data = folds(Classification())
    one = SequenceClassifier(TIDESConfig(input_size=2, hidden_size=4, state_size=4, depth=1), classes=2)
    other = SequenceClassifier(TIDESConfig(input_size=2, hidden_size=4, state_size=4, depth=1), classes=2)
    fine = tuple(part[np.flatnonzero(part.labels < 2)] for part in data[0])
    wrong = (fine[0], collate(data[1][1]))
    with pytest.raises(DataError, match="member 1: labels: found classes 0 to 2, the model has 2"):
        fit_population([one, other], Classification(), [fine, wrong], settings(), progress=False)  # type: ignore[list-item]


@pytest.mark.parametrize("part", ["training", "validation"])
def test_a_member_in_whose_data_nothing_is_scored_is_named(part: str) -> None:
    def unasked(data: IrregularDataset) -> IrregularDataset:
        return IrregularDataset([one.replace(target=one.target * np.nan, target_observed=None) for one in data])

    train, val = folds(Forecasting())[0]
    empty = (unasked(train), val) if part == "training" else (train, unasked(val))
    models = [forecaster(seed) for seed in range(2)]
    with pytest.raises(DataError, match=f"member 1: nothing in its {part} set is scored"):
        fit_population(models, Forecasting(), [(train, val), empty], settings(calibrate="time"), progress=False)
