"""Calls of `fit` that cannot work, each answered by name."""

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.training.test_engine import Answers, Mean, config, run, series
from tests.training.test_tasks import labelled, questions
from tides.errors import ConfigError, DataError
from tides.nn import Forecaster, SequenceClassifier, SequenceRegressor, TIDESConfig
from tides.training import Classification, Forecasting, Regression, TrainConfig, evaluate, fit


def test_bad_requests_are_named() -> None:
    with pytest.raises(ConfigError, match=r"^monitor: found 'mse', wanted one of loss, accuracy"):
        run(monitor="mse")
    with pytest.raises(ConfigError, match=r"Mean has no method calibrate\(\); use calibrate='none'"):
        run(calibrate="all")
    with pytest.raises(ConfigError, match=r"^data: wanted a pair"):
        fit(Mean(), Classification(), series(4), config(), progress=False)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="the validation set is empty"):
        fit(Mean(), Classification(), (series(4), series(4)[:0]), config(), progress=False)
    with pytest.raises(ConfigError, match="found list as training set, wanted an IrregularDataset"):
        fit(Mean(), Classification(), (list(series(4)), None), config(), progress=False)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Answers has no parameters to train"):
        fit(Answers(torch.zeros(2)), Classification(), (series(4), None), config(), progress=False)
    with pytest.raises(ConfigError, match=r"task: found the class Classification, wanted .*: Classification\(\)"):
        fit(Mean(), Classification, (series(4), None), config(), progress=False)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="config: found a dict, wanted a TrainConfig"):
        fit(Mean(), Classification(), (series(4), None), {"epochs": 3}, progress=False)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="model: found a str, wanted a torch module"):
        fit("s5", Classification(), (series(4), None), config(), progress=False)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="batch_size: found 0, wanted at least 1"):
        evaluate(Mean(), Classification(), series(4), batch_size=0)
    one_class = series(12, 1)[::2]
    with pytest.raises(DataError, match="monitor: auroc is undefined"):
        fit(Mean(), Classification(), (series(8), one_class), config(monitor="auroc"), progress=False)


def test_a_model_of_other_channels_is_named_before_training() -> None:
    settings = TIDESConfig(input_size=3, hidden_size=4, state_size=4)
    with pytest.raises(ConfigError, match="input_size: the model was built for 3 channels, the training data has 2"):
        fit(SequenceClassifier(settings, 2), Classification(), (series(4), None), TrainConfig(epochs=1), progress=False)


def test_a_task_that_wants_numbers_refuses_a_classifier() -> None:
    model = SequenceClassifier(TIDESConfig(input_size=2, hidden_size=4, state_size=4), 1)
    with pytest.raises(
        ConfigError, match=r"^task: found regression or forecasting.*SequenceClassifier does not give them"
    ):
        fit(model, Regression(), (series(4, numbers=True), None), TrainConfig(epochs=1), progress=False)
    fit(model, Regression(), (series(4, numbers=True), None), TrainConfig(epochs=1, calibrate="time"), progress=False)


def test_a_model_with_too_few_answers_is_named_before_training() -> None:
    config = TIDESConfig(input_size=2, hidden_size=4, state_size=4, depth=1)
    data = (series(4, numbers=True), None)
    with pytest.raises(ConfigError, match=r"^task: it wants 2 numbers .*gaussian.*, SequenceRegressor was built for 1"):
        fit(SequenceRegressor(config, 1), Regression(gaussian=True), data, TrainConfig(epochs=1), progress=False)
    asked = (questions([[1.0], [2.0]]), None)
    with pytest.raises(ConfigError, match=r"^task: it wants 1 numbers .*, Forecaster was built for 3"):
        fit(Forecaster(config, 3), Forecasting(), asked, TrainConfig(epochs=1), progress=False)


def test_data_in_which_nothing_is_scored_is_no_divergence() -> None:
    def train(targets: list[list[float]], checked: list[list[float]]) -> None:
        model = Forecaster(TIDESConfig(input_size=2, hidden_size=4, state_size=4, depth=1), channels=1)
        settings = TrainConfig(epochs=1, calibrate="time")
        fit(model, Forecasting(), (questions(targets), questions(checked)), settings, progress=False)

    known, unknown = [[1.0, 2.0], [3.0]], [[np.nan], [np.nan, np.nan]]
    with pytest.raises(DataError, match="nothing in the training set is scored"):
        train(unknown, known)
    with pytest.raises(DataError, match="nothing in the validation set is scored"):
        train(known, unknown)


def test_a_model_and_a_task_that_do_not_fit_are_named_both() -> None:
    settings = TIDESConfig(input_size=2, hidden_size=4, state_size=4, depth=1)
    refused = r"^task: Classification cannot call a Forecaster: .*query_times"
    with pytest.raises(ConfigError, match=refused):
        fit(Forecaster(settings, 1), Classification(), (series(4), None), TrainConfig(epochs=1), progress=False)
    with pytest.raises(ConfigError, match=refused):
        evaluate(Forecaster(settings, 1), Classification(), series(4))
    with pytest.raises(ConfigError, match=r"^task: Forecasting cannot call a SequenceClassifier"):
        evaluate(SequenceClassifier(settings, 1), Forecasting(), questions([[1.0], [2.0]]))


def test_a_mistake_inside_of_a_model_is_not_blamed_on_the_task() -> None:
    class Broken(Mean):
        def forward(self, x: Tensor, gaps: Tensor, *, observed: Tensor, valid: Tensor) -> Tensor:
            return x + "one"  # type: ignore[operator]

    with pytest.raises(TypeError, match="unsupported operand"):
        evaluate(Broken(), Classification(), series(4))


def test_a_model_without_the_static_features_of_the_data_is_named_before_training() -> None:
    model = SequenceClassifier(TIDESConfig(input_size=2, hidden_size=4, state_size=4, depth=1), 2, static_size=2)
    data = labelled([0, 1], static=np.array([1.0]))
    with pytest.raises(ConfigError, match="static_size: the model was built for 2 static features, the training data "):
        fit(model, Classification(), (data, None), TrainConfig(epochs=1), progress=False)
