"""Weights of series: a whole number counts as so many equal series, in every loss and metric; 1 is as good as none."""

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.tolerances import EXACT
from tides.data import IrregularDataset, IrregularSeries, collate, systems
from tides.errors import DataError
from tides.nn import Forecaster, SequenceClassifier, SequenceRegressor, TIDESConfig
from tides.training import Classification, Forecasting, Regression, Task, TrainConfig, evaluate, fit, fit_population
from tides.training.evaluation import answer
from tides.training.order import epoch_batches

WEIGHTS = (2.0, 0.0, 1.0, 3.0, 1.0)
SMALL: dict[str, Any] = {"input_size": 2, "hidden_size": 4, "state_size": 4, "depth": 1, "rank": 2}


def labelled(labels: list[Any]) -> IrregularDataset:
    rng = np.random.default_rng(0)
    return IrregularDataset(
        [IrregularSeries(rng.normal(size=(4, 2)), np.arange(4.0), label=label) for label in labels],
        class_names=("a", "b", "c"),
    )


def asked() -> IrregularDataset:
    rng = np.random.default_rng(1)
    target = rng.normal(size=(len(WEIGHTS), 3, 2))
    target[1, 1, 0] = target[3, 2] = np.nan
    return IrregularDataset(
        [
            IrregularSeries(rng.normal(size=(4, 2)), np.arange(4.0), query_times=[5.0, 6.0, 7.0], target=one)
            for one in target
        ]
    )


def weighed(data: IrregularDataset, weights: Any = WEIGHTS) -> IrregularDataset:
    return IrregularDataset(
        [one.replace(weight=weight) for one, weight in zip(data, weights, strict=True)], schema=data.schema
    )


def repeated(data: IrregularDataset) -> IrregularDataset:
    return data[np.repeat(np.arange(len(WEIGHTS)), np.array(WEIGHTS, int))]


def classifier(seed: int = 0) -> SequenceClassifier:
    torch.manual_seed(seed)
    return SequenceClassifier(TIDESConfig(**SMALL, mask_channels=True), classes=3).double()


def regressor() -> SequenceRegressor:
    torch.manual_seed(0)
    return SequenceRegressor(TIDESConfig(**SMALL), targets=4).double()


def forecaster() -> Forecaster:
    torch.manual_seed(0)
    return Forecaster(TIDESConfig(**SMALL), channels=2).double()


CASES = [
    (classifier, Classification((1.0, 2.0, 0.5)), labelled([0, 1, 2, 1, 0])),
    (regressor, Regression(gaussian=True), labelled([np.array([i, i * 0.5]) for i in range(5)])),
    (forecaster, Forecasting((1.0, 2.0)), asked()),
]


@pytest.mark.parametrize(("make", "task", "data"), CASES, ids=["classes", "numbers", "forecasts"])
@pytest.mark.parametrize("size", [2, 64])
def test_a_whole_number_counts_as_so_many_series(make: Any, task: Task, data: IrregularDataset, size: int) -> None:
    model = make()
    found, wanted = answer(model, task, weighed(data), size), answer(model, task, repeated(data), size)
    assert found.loss == pytest.approx(wanted.loss, rel=EXACT)
    assert found.weight == pytest.approx(wanted.weight, rel=EXACT)
    ones, more = np.ones((1, len(data))), np.ones((1, len(repeated(data))))
    plain = answer(model, task, data, size).predictions.metrics()
    for name, metric in wanted.predictions.metrics().items():
        value = found.predictions.metrics()[name](ones)
        np.testing.assert_allclose(value, metric(more), rtol=EXACT, err_msg=name)
        assert name == "accuracy" or not np.allclose(value, plain[name](ones)), name


@pytest.mark.parametrize(("make", "task", "data"), CASES, ids=["classes", "numbers", "forecasts"])
def test_gradients_are_those_of_repeated_series(make: Any, task: Task, data: IrregularDataset) -> None:
    def gradient(part: IrregularDataset) -> Tensor:
        model = make().eval()
        batch = collate(part, dtype=torch.float64)
        total, weight = task.loss(task.predict(model, batch), batch)
        found = torch.autograd.grad(
            total / weight, [p for p in model.parameters() if p.requires_grad], allow_unused=True
        )
        return torch.cat([g.flatten() for g in found if g is not None])

    found, wanted = gradient(weighed(data)), gradient(repeated(data))
    assert float((found - wanted).abs().max() / wanted.abs().max()) < EXACT
    doubled = gradient(weighed(data, [2 * weight for weight in WEIGHTS]))
    assert float((found - doubled).abs().max() / wanted.abs().max()) < EXACT


def test_evaluation_counts_weights_in_values_and_intervals() -> None:
    model, data = classifier(), labelled([0, 1, 2, 1, 0])
    truth = model.eval()(collate(data).values.double(), collate(data).gaps.double()).argmax(-1).numpy() == data.labels
    found = evaluate(model, Classification(), weighed(data))["accuracy"]
    assert found.value == pytest.approx(float(np.average(truth, weights=WEIGHTS)))
    alone = evaluate(model, Classification(), weighed(data, (0.0, 0.0, 1.0, 0.0, 0.0)))["accuracy"]
    assert alone.low == alone.high == alone.value


def test_weights_of_some_batches_are_refused() -> None:
    data = labelled([0, 1, 2, 1])
    half = IrregularDataset([*weighed(data[:2], (1.0, 2.0)), *data[2:]], schema=data.schema)
    with pytest.raises(DataError, match="weight: some batches of series have weights and others none"):
        evaluate(classifier(), Classification(), half, batch_size=2)
    with pytest.raises(DataError, match="series 2 has no weight while others have one"):
        evaluate(classifier(), Classification(), half)


def test_balanced_classes_have_equal_sums_of_weights() -> None:
    data = weighed(labelled([0, 1, 2, 1, 0]))
    task = Classification.balanced(data)
    labels, weights = data.labels, data.weights
    assert task.class_weights is not None
    sums = [task.class_weights[k] * weights[labels == k].sum() for k in range(3)]
    np.testing.assert_allclose(sums, weights.sum() / 3, rtol=EXACT)
    again = Classification.balanced(repeated(labelled([0, 1, 2, 1, 0])))
    np.testing.assert_allclose(task.class_weights, again.class_weights, rtol=EXACT)
    with pytest.raises(DataError, match="of class 2"):
        Classification.balanced(weighed(data, (1.0, 1.0, 0.0, 1.0, 1.0)))


def trained(train: IrregularDataset, val: IrregularDataset, **fields: Any) -> tuple[nn.Module, Any]:
    model = classifier()
    config = TrainConfig(**{"epochs": 4, "batch_size": 8, "lr": 1e-2, **fields})
    return model, fit(model, Classification(), (train, val), config, progress=False)


def test_weights_of_one_train_as_none_do_and_a_weightless_series_teaches_nothing() -> None:
    data = systems.classification("calcium", n=20, points=8, seed=0)
    train, val = data[:14], data[14:]
    plain, result = trained(train, val)
    ones, same = trained(weighed(train, np.ones(14)), weighed(val, np.ones(6)))
    assert same.history == result.history
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, ones.state_dict()[name]), name
    # Relabelled, the first series would teach and choose otherwise.
    first = np.arange(14) > 0
    wrong = IrregularDataset([train[0].replace(label=(train[0].label + 1) % 3), *train[1:]], schema=train.schema)  # type: ignore[operator]
    one, other = trained(weighed(train, first), val), trained(weighed(wrong, first), val)
    assert one[1].history == other[1].history
    assert trained(wrong, val)[1].history != result.history


def test_weights_choose_the_best_epoch() -> None:
    data = systems.classification("calcium", n=30, points=8, seed=0)
    train, val = data[:14], data[14:]
    _, plain = trained(train, val)
    _, result = trained(train, weighed(val, np.arange(16.0)))
    assert [row["train_loss"] for row in result.history] == [row["train_loss"] for row in plain.history]
    for name in ("val_loss", "val_accuracy", "val_auroc"):
        assert [row[name] for row in result.history] != [row[name] for row in plain.history], name
    with pytest.raises(DataError, match="nothing in the validation set is scored"):
        trained(train, weighed(val, np.zeros(16)))
    with pytest.raises(DataError, match="nothing in the training set is scored"):
        trained(weighed(train, np.zeros(14)), val)


def test_a_batch_that_counts_for_nothing_is_no_first_loss() -> None:
    """Later losses would explode beside its zero."""
    rng = np.random.default_rng(0)
    data = IrregularDataset(
        [IrregularSeries(rng.normal(size=(4, 2)), np.arange(4.0), label=1e4 * (i % 2), weight=1.0) for i in range(6)]
    )
    config = TrainConfig(epochs=2, batch_size=2, calibrate="time")
    first = epoch_batches(data.lengths, config, 0)[0]
    train = weighed(data, [float(i not in first) for i in range(6)])
    torch.manual_seed(0)
    model = SequenceRegressor(TIDESConfig(**SMALL)).double()
    (member,) = fit_population([deepcopy(model)], Regression(), [(train, data)], config, progress=False)
    result = fit(model, Regression(), (train, data), config, progress=False)
    assert (result.stopped, member.stopped) == ("epochs", "epochs")
    assert result.history[0]["train_loss"] == pytest.approx(member.history[0]["train_loss"], rel=1e-6)
    assert result.history[0]["train_loss"] > config.explosion  # type: ignore[operator]


def test_another_weight_is_another_run(tmp_path: Any) -> None:
    data = systems.classification("calcium", n=20, points=8, seed=0)
    train, val = weighed(data[:14], np.ones(14)), data[14:]
    config = TrainConfig(epochs=1, batch_size=8)
    fit(classifier(), Classification(), (train, val), config, folder=tmp_path, progress=False)
    other = weighed(train, [2.0, *np.ones(13)])
    with pytest.raises(Exception, match="train"):
        fit(classifier(), Classification(), (other, val), config, folder=tmp_path, progress=False)


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_members_of_a_population_have_weights_of_their_own() -> None:
    sets = [systems.classification("calcium", n=20, points=8, seed=seed) for seed in range(2)]
    rng = np.random.default_rng(0)
    pairs = [(weighed(one[:14], rng.uniform(0, 3, 14)), weighed(one[14:], rng.uniform(0, 3, 6))) for one in sets]
    config = TrainConfig(epochs=3, batch_size=8, lr=1e-2)
    models = [classifier(0), classifier(1)]
    found = fit_population(models, Classification(), pairs, config, progress=False)
    for seed, (pair, result) in enumerate(zip(pairs, found, strict=True)):
        alone = fit(classifier(seed), Classification(), pair, config.replace(seed=seed), progress=False)
        for row, known in zip(result.history, alone.history, strict=True):
            assert row["train_loss"] == pytest.approx(known["train_loss"], rel=1e-6)
            assert row["val_loss"] == pytest.approx(known["val_loss"], rel=1e-6)
    with pytest.raises(DataError, match="member 1: weights must be given for all members or for none"):
        fit_population(models, Classification(), [pairs[0], (sets[1][:14], pairs[1][1])], config, progress=False)
