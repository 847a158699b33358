"""Tasks: the call a batch becomes, losses worked out by hand, padding and missing targets that do not count."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tides.data import IrregularDataset, IrregularSeries, collate
from tides.errors import ConfigError, DataError, ShapeError
from tides.nn import Forecaster, SequenceClassifier, SequenceRegressor, TIDESConfig
from tides.training import Classification, Forecasting, Regression, TrainConfig, fit
from tides.training.predictions import point_metrics


def labelled(labels: list[Any], **fields: Any) -> IrregularDataset:
    made = [
        IrregularSeries(np.arange(2.0 * (i + 2)).reshape(i + 2, 2), np.arange(i + 2) * 0.5, label=label, id=i, **fields)
        for i, label in enumerate(labels)
    ]
    return IrregularDataset(made)


def questions(targets: list[list[float]]) -> IrregularDataset:
    """One target channel, NaN = not observed, numbers of queries as given."""
    made = []
    for i, numbers in enumerate(targets):
        asked = np.array(numbers)[:, None]
        made.append(
            IrregularSeries(
                np.ones((3, 2)), np.arange(3.0), query_times=3.0 + np.arange(len(numbers)), target=asked, id=i
            )
        )
    return IrregularDataset(made)


def test_weights_and_scales_may_be_lists_or_arrays() -> None:
    assert Classification([1, 2]) == Classification(np.array([1.0, 2.0])) == Classification((1.0, 2.0))  # type: ignore[arg-type]
    assert Forecasting([2.0]) == Forecasting((2.0,))  # type: ignore[arg-type]
    assert Regression(np.array([3.0])).scale == (3.0,)  # type: ignore[arg-type]
    batch = collate(labelled([0, 1]))
    assert Classification([1, 3]).loss(torch.zeros(2, 2), batch).weight == 4  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Classification((1.0, -1.0)), r"class_weights: found \(1.0, -1.0\), wanted finite numbers ≥ 0"),
        (lambda: Classification((0.0, 0.0)), "class_weights: found zeros only"),
        (lambda: Regression((0.0,)), r"scale: found \(0.0,\), wanted finite numbers > 0"),
        (lambda: Forecasting(2.0), "scale: found 2.0, wanted several numbers"),
        (lambda: Forecasting((float("nan"),)), "scale: found"),
    ],
)
def test_weights_and_scales_that_nothing_can_be_learnt_with(make: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make()


def test_cross_entropy_with_class_weights() -> None:
    batch = collate(labelled([0, 1, 1]))
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    plain = Classification().loss(logits, batch)
    own = torch.nn.functional.cross_entropy(logits, batch.targets, reduction="none")
    assert plain.total == pytest.approx(own.sum().item())
    assert plain.weight == 3
    total, weight = Classification(class_weights=(3.0, 0.5)).loss(logits, batch)
    expected = torch.nn.functional.cross_entropy(logits, batch.targets, weight=torch.tensor([3.0, 0.5]))
    assert (total / weight).item() == pytest.approx(expected.item())
    with pytest.raises(ConfigError, match="class_weights: found 1"):
        Classification(class_weights=(1.0,)).loss(logits, batch)


def test_balanced_weights_make_classes_equal() -> None:
    task = Classification.balanced(labelled([0, 1, 1, 1]))
    assert task.class_weights == pytest.approx((2.0, 2 / 3))
    with pytest.raises(DataError, match="of class 1"):
        Classification.balanced(labelled([0, 2]))
    with pytest.raises(DataError, match="no class labels"):
        Classification.balanced(labelled([0.5, 2.0]))


def test_labels_must_be_classes_of_the_model() -> None:
    with pytest.raises(DataError, match="found classes 0 to 5, the model has 2"):
        Classification().loss(torch.zeros(2, 2), collate(labelled([0, 5])))
    with pytest.raises(DataError, match=r"labels: found torch\.float32"):
        Classification().loss(torch.zeros(2, 2), collate(labelled([0.5, 1.0])))
    # Neither more series than classes nor more classes than series is a mistake.
    Classification().loss(torch.zeros(3, 2), collate(labelled([0, 1, 1])))
    Classification().loss(torch.zeros(2, 4), collate(labelled([0, 3])))
    with pytest.raises(DataError, match="found classes 0 to 2, the model has 2"):
        Classification().loss(torch.zeros(3, 2), collate(labelled([0, 1, 2])))


def test_squared_error_counts_observed_queries_only() -> None:
    batch = collate(questions([[1.0, np.nan, 4.0], [2.0]]))
    output = torch.full((2, 3, 1), 3.0, requires_grad=True)
    total, weight = Forecasting().loss(output, batch)
    assert (total.item(), weight.item()) == (4 + 1 + 1, 3)
    total.backward()
    assert output.grad is not None
    assert (output.grad != 0).squeeze(-1).tolist() == [[True, False, True], [True, False, False]]
    scaled = Forecasting(scale=(2.0,))
    assert scaled.loss(output, batch).total.item() == 6 / 4
    assert point_metrics(Forecasting().score(output, batch)) == pytest.approx({"mse": 2.0, "mae": 4 / 3})
    assert point_metrics(scaled.score(output, batch)) == pytest.approx({"mse": 0.5, "mae": 2 / 3})
    with pytest.raises(ShapeError, match=r"found \(2, 3, 2\), wanted \(b, q, c\) = \(2, 3, 1\)"):
        Forecasting().loss(torch.zeros(2, 3, 2), batch)


def test_gaussian_likelihood_agrees_with_torch() -> None:
    task = Forecasting(scale=(2.0,), gaussian=True)
    batch = collate(questions([[1.0, np.nan, 4.0], [2.0]]))
    output = torch.randn(2, 3, 2, dtype=torch.float64)
    means, spreads = task.moments(output)
    assert spreads is not None
    # The likelihood of targets in units of the scale.
    law = torch.distributions.Normal(means / 2, spreads / 2)
    assert batch.targets is not None
    expected = -(law.log_prob(batch.targets / 2))[batch.target_observed]
    total, weight = task.loss(output, batch)
    assert (total / weight).item() == pytest.approx(expected.mean().item())
    found = point_metrics(task.score(output, batch))
    assert found["nll"] == pytest.approx(expected.mean().item())
    assert set(found) == set(task.metrics)
    with pytest.raises(ShapeError, match="a mean and a spread"):
        task.loss(output[..., :1], batch)


def test_regression_takes_numbers_and_vectors() -> None:
    batch = collate(labelled([1.0, 3.0]))
    assert Regression().loss(torch.zeros(2, 1), batch).total.item() == 10
    vectors = collate(labelled([np.array([1.0, 2.0]), np.array([0.0, 4.0])]))
    task = Regression.standardised(labelled([np.array([1.0, 2.0]), np.array([0.0, 4.0])]))
    assert task.scale == pytest.approx((0.5, 1.0))
    assert task.loss(torch.zeros(2, 2), vectors).total.item() == pytest.approx(4 + 4 + 0 + 16)
    with pytest.raises(ShapeError, match=r"wanted \(b, t\) = \(2, 1\)"):
        Regression().loss(torch.zeros(2, 3), batch)
    for others in (questions([[1.0], [2.0]]), labelled([None, None])):
        with pytest.raises(DataError, match="regression: the series have no labels"):
            Regression().loss(torch.zeros(2, 1), collate(others))


def test_a_series_model_forms_its_gaps_by_its_own_policy() -> None:
    data = labelled([0, 1], static=np.array([1.0]))
    config = TIDESConfig(input_size=2, hidden_size=4, state_size=4, depth=1, first_gap=7.0, variant="mamba-s")
    model = SequenceClassifier(config, classes=2, static_size=1).eval()
    batch = collate(data)
    found = Classification().predict(model, batch)
    gaps = torch.tensor([[7.0, 0.5, 0.0], [7.0, 0.5, 0.5]])
    wanted = model(batch.values, gaps, observed=batch.observed, valid=batch.valid, static=batch.static)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("kind", [SequenceClassifier, SequenceRegressor])
def test_a_static_feature_that_was_not_recorded_counts_as_its_training_mean(kind: Any) -> None:
    """0 after scaling, not a raw 0: ages around 60 have no 0 among them."""
    data, ages = labelled([0, 1, 1]), (50.0, 70.0, np.nan)
    given = IrregularDataset([one.replace(static=np.array([age])) for one, age in zip(data, ages, strict=True)])
    filled = IrregularDataset([one.replace(static=np.nan_to_num(one.static, nan=60.0)) for one in given])
    task = Classification() if kind is SequenceClassifier else Regression()
    model = kind(TIDESConfig(input_size=2, hidden_size=4, state_size=4, depth=1), 2, static_size=1).double()
    task.calibrate(model, given, values=False)
    assert (model.static_shift.item(), model.static_scale.item()) == (0.0, 1.0)
    Classification().calibrate(model, given, values=True)
    assert (model.static_shift.item(), model.static_scale.item()) == (60.0, 10.0)
    model.eval()
    found, wanted = (task.predict(model, collate(part, dtype=torch.float64)) for part in (given, filled))
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_any_other_module_is_given_the_gaps_of_the_batch() -> None:
    class Plain(nn.Module):
        def forward(self, x: Tensor, gaps: Tensor, *, observed: Tensor, valid: Tensor) -> Tensor:
            return gaps

    batch = collate(labelled([0, 1]))
    assert torch.equal(Classification().predict(Plain(), batch), batch.gaps)


def test_calibration_stores_scales_of_time_values_and_answers() -> None:
    data = labelled([1.0, 3.0])
    config = TIDESConfig(input_size=2, hidden_size=4, state_size=4, depth=1)
    model = SequenceRegressor(config)
    Regression().calibrate(model, data, values=True)
    kept = model.backbone.calibration
    assert kept.time_scale.item() == 0.5
    assert kept.shift.tolist() == pytest.approx(np.concatenate([s.values for s in data]).mean(0).tolist())
    assert (model.output_shift.item(), model.output_scale.item()) == (2.0, 1.0)
    assert torch.equal(SequenceRegressor(config).output_scale, torch.ones(1))
    other = SequenceRegressor(config)
    Regression().calibrate(other, data, values=False)
    assert other.backbone.calibration.time_scale.item() == 0.5
    assert other.backbone.calibration.shift.tolist() == [0.0, 0.0]


def test_calibration_of_a_gaussian_forecaster_leaves_the_spreads_alone() -> None:
    data = questions([[1.0, np.nan, 4.0], [2.0]])
    model = Forecaster(TIDESConfig(input_size=2, hidden_size=4, state_size=4, depth=1), channels=2)
    task = Forecasting.standardised(data, gaussian=True)
    task.calibrate(model, data, values=True)
    std = float(np.std([1.0, 4.0, 2.0]))
    assert model.output_shift.tolist() == pytest.approx([7 / 3, 0.0])
    assert model.output_scale.tolist() == pytest.approx([std, 1.0])
    assert task.scale == pytest.approx((std,))
    batch = collate(data)
    assert task.predict(model, batch).shape == (2, 3, 2)
    with pytest.raises(DataError, match="has no forecast target"):
        Forecasting.standardised(labelled([1.0]))


def test_a_likelihood_finds_mean_and_spread() -> None:
    class Constant(nn.Module):
        """The same answer whatever the input: its best mean and spread are those of the targets."""

        def __init__(self) -> None:
            super().__init__()
            self.answer = nn.Parameter(torch.zeros(2))

        def forward(self, values: Tensor, times: Tensor, observed: Tensor, query_times: Tensor, **_: Any) -> Tensor:
            return self.answer.expand(*query_times.shape, 2)

    rng = np.random.default_rng(0)
    data = questions([list(0.5 + 0.3 * rng.normal(size=10)) for _ in range(20)])
    task, model = Forecasting(gaussian=True), Constant()
    settings = TrainConfig(epochs=60, lr=0.1, calibrate="none", monitor="nll")
    fit(model, task, (data, data), settings, progress=False)
    mean, spread = task.moments(model.answer.detach())
    assert spread is not None
    targets = np.concatenate([one.target for one in data])  # type: ignore[misc]
    assert mean.item() == pytest.approx(targets.mean(), abs=0.05)
    assert spread.item() == pytest.approx(targets.std(), rel=0.1)


@pytest.mark.parametrize("kind", [Classification, Regression, Forecasting])
def test_hidden_inputs_while_training_only(kind: type[Classification | Regression | Forecasting]) -> None:
    """A model is shown fewer values in training, all of them in evaluation; the targets stay."""
    seen: list[Tensor] = []

    class Watcher(nn.Module):
        def forward(self, *arguments: Tensor, **options: Tensor) -> Tensor:
            seen.append(options["observed"] if "observed" in options else arguments[2])
            return torch.zeros(len(seen[-1]), 1)

    batch = collate(questions([[1.0]] * 300))
    task, model = kind(input_drop=0.25), Watcher()
    for training in (True, True, False):
        task.predict(model.train(training), batch)
    everything = batch.observed.sum()
    assert 0.65 < seen[0].sum() / everything < 0.85
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(seen[2], batch.observed)
    with pytest.raises(ConfigError, match="input_drop"):
        kind(input_drop=1.0)
