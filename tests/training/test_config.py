"""The training configuration is strict and survives JSON."""

import json
from typing import Any

import pytest

from tides.errors import ConfigError
from tides.training import TrainConfig


def test_round_trip_through_json() -> None:
    config = TrainConfig(epochs=7, optimiser="adam", clip_norm=1, patience=3)
    assert config.clip_norm == 1.0
    assert isinstance(config.clip_norm, float)
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_unknown_fields_name_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"warmup: unknown field of TrainConfig; did you mean 'warmup_epochs'\?"):
        TrainConfig.from_dict({"warmup": 3})
    with pytest.raises(ConfigError, match=r"epoch: unknown field of TrainConfig; did you mean 'epochs'\?"):
        TrainConfig(epoch=3)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="batchsize"):
        TrainConfig().replace(batchsize=3)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"epochs": 0}, "epochs"),
        ({"epochs": 2.5}, "epochs"),
        ({"batch_size": True}, "batch_size"),
        ({"lr": 0.0}, "lr"),
        ({"lr": float("nan")}, "lr"),
        ({"lr_factor": -1.0}, "lr_factor"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"optimiser": "sgd"}, "optimiser"),
        ({"schedule": "linear"}, "schedule"),
        ({"warmup_epochs": 5, "epochs": 5}, "warmup_epochs"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"patience": 0}, "patience"),
        ({"calibrate": True}, "calibrate"),
        ({"explosion": 1.0}, "explosion"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"checkpoint_seconds": -1.0}, "checkpoint_seconds"),
    ],
)
def test_bad_values_are_named(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=f"^{named}: found "):
        TrainConfig(**fields)
