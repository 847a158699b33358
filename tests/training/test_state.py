"""Which epoch counts as the best, whatever the metric calls good."""

import pytest

from tides.training.metrics import HIGHER_IS_BETTER
from tides.training.predictions import CLASS_METRICS
from tides.training.state import RunState


@pytest.mark.parametrize("monitor", ["loss", "mse", "mae", *CLASS_METRICS])
def test_the_first_of_the_best_epochs_is_the_best(monitor: str) -> None:
    grows = monitor in ("accuracy", "auroc", "auprc", "f1")
    assert (monitor in HIGHER_IS_BETTER) is grows
    errors = [3.0, 1.0, 2.0, 1.0, 4.0]
    values = [-error if grows else error for error in errors]
    state = RunState()
    better = [state.close_epoch({"epoch": k + 1}, monitor, value) for k, value in enumerate(values)]
    assert better == [True, True, False, False, False]
    assert (state.best_epoch, state.best_value, state.epoch) == (2, values[1], 5)
    state.stopped = "epochs"
    assert state.result(None).best == {"epoch": 2}


def test_without_validation_the_newest_epoch_is_the_best() -> None:
    state = RunState()
    assert [state.close_epoch({"epoch": k}, "loss", None) for k in (1, 2, 3)] == [True, True, True]
    assert (state.best_epoch, state.best_value) == (3, None)
    state.stopped = "epochs"
    assert state.result(None).best == {"epoch": 3}


def test_sums_of_an_epoch_begin_anew() -> None:
    state = RunState()
    state.loss_total, state.loss_weight, state.gradient_norm, state.batch = 5.0, 2.0, 3.0, 7
    state.close_epoch({}, "loss", 1.0)
    assert (state.loss_total, state.loss_weight, state.gradient_norm, state.batch) == (0.0, 0.0, 0.0, 0)
