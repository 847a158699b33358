"""What makes two runs the same: settings of tasks, in values that JSON can hold."""

import json
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from tides.nn import SequenceClassifier, TIDESConfig
from tides.training import Classification, TrainConfig
from tides.training.identity import config_identity, model_settings, task_identity


@dataclass(frozen=True)
class Costly(Classification):
    """A task with a table of costs, and with something that is no setting."""

    costs: Any = None
    names: dict[str, Any] = field(default_factory=dict)
    scratch: Any = None


def test_arrays_of_a_task_are_settings_and_survive_json() -> None:
    one, same, other = (
        task_identity(Costly(costs=costs, names={"a": np.arange(2.0)}, scratch=object()))
        for costs in (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0]))
    )
    assert one == same
    assert one != other
    assert json.loads(json.dumps(one)) == one
    assert set(one[1]) == {"class_weights", "costs", "input_drop", "names"}


def test_settings_inside_settings_and_numbers_that_are_none() -> None:
    inner = Costly(costs=float("nan"), names={"limits": [0.5, float("inf")]})
    one = task_identity(Costly(costs=inner, scratch=threading.Lock()))
    assert one == task_identity(Costly(costs=inner, scratch=threading.Lock()))
    assert one[1]["costs"]["costs"] == "nan"
    assert one[1]["costs"]["names"] == {"limits": [0.5, "inf"]}
    assert json.loads(json.dumps(one, allow_nan=False)) == one


def test_how_a_run_is_carried_out_is_no_part_of_it() -> None:
    assert config_identity(TrainConfig(checkpoint_seconds=1.0)) == config_identity(TrainConfig())
    assert config_identity(TrainConfig(lr=0.1)) != config_identity(TrainConfig())


def test_only_a_dataclass_is_a_configuration() -> None:
    settings = TIDESConfig(input_size=1, hidden_size=4, state_size=4)
    assert model_settings(SequenceClassifier(settings, 2)) == settings
    assert model_settings(torch.nn.Linear(1, 1)) is None
