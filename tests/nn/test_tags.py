"""Optimiser tags, pinned parameter by parameter for every variant."""

import copy

import pytest
import torch

from tests.nn.models import VARIANTS, small_config
from tides.nn import Backbone, SequenceClassifier, TIDESConfig, tagged_parameters

STATIC = {
    "s5": {"decay.value", "frequency.value", "drive.base", "readout.base"},
    "tides-lambda": {"frequency.value", "drive.base", "readout.base"},
    "tides-bc": {"decay.value", "frequency.value"},
    "tides": {"frequency.value"},
    "tides-full": set(),
    "mamba-s": {"decay.value", "frequency.value"},
}
MATRICES = {
    "s5": set(),
    "tides-lambda": {"decay.weight"},
    "tides-bc": {"drive.up", "drive.down.weight", "readout.up", "readout.down.weight"},
    "tides": {"decay.weight", "drive.up", "drive.down.weight", "readout.up", "readout.down.weight"},
    "tides-full": {
        "decay.weight",
        "frequency.weight",
        "drive.up",
        "drive.down.weight",
        "readout.up",
        "readout.down.weight",
    },
    "mamba-s": {"step_weight", "drive.up", "drive.down.weight", "readout.up", "readout.down.weight"},
}
PLAIN = {
    "s5": {"log_step.value"},
    "tides-lambda": {"log_step.value", "decay.bias"},
    "tides-bc": {"log_step.value", "drive.base", "drive.down.bias", "readout.base", "readout.down.bias"},
    "tides": {"log_step.value", "decay.bias", "drive.base", "drive.down.bias", "readout.base", "readout.down.bias"},
    "tides-full": {
        "log_step.value",
        "decay.bias",
        "frequency.bias",
        "drive.base",
        "drive.down.bias",
        "readout.base",
        "readout.down.bias",
    },
    "mamba-s": {"step_bias", "drive.base", "drive.down.bias", "readout.base", "readout.down.bias"},
}
NORMS = {
    "s5": set(),
    "tides-lambda": {"decay.norm"},
    "tides-bc": {"drive.norm", "readout.norm"},
    "tides": {"decay.norm", "drive.norm", "readout.norm"},
    "tides-full": {"decay.norm", "frequency.norm", "drive.norm", "readout.norm"},
    "mamba-s": {"drive.norm", "readout.norm"},
}


def by_tag(config: TIDESConfig) -> dict[str, set[str]]:
    """Names within the first layer, by tag."""
    found: dict[str, set[str]] = {"ssm": set(), "decayed": set(), "plain": set()}
    for name, _, tag in tagged_parameters(Backbone(config)):
        if name.startswith("blocks.0.ssm."):
            found[tag].add(name.removeprefix("blocks.0.ssm."))
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_ours(variant: str) -> None:
    assert by_tag(small_config(variant=variant)) == {
        "ssm": STATIC[variant],
        "decayed": MATRICES[variant],
        "plain": PLAIN[variant] | NORMS[variant] | {"skip"},
    }


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_release_decays_skip_and_norm_weights(variant: str) -> None:
    assert by_tag(small_config(variant=variant, compat="release")) == {
        "ssm": STATIC[variant],
        "decayed": MATRICES[variant] | NORMS[variant] | {"skip"},
        "plain": PLAIN[variant],
    }


def test_outside_the_layer_matrices_are_decayed_and_biases_are_not() -> None:
    model = SequenceClassifier(small_config(encoder_depth=1, decay_depth=1), classes=3)
    tags = {name: tag for name, _, tag in tagged_parameters(model)}
    assert set(tags) == set(dict(model.named_parameters()))
    for name, tag in tags.items():
        if ".ssm." in name and ".blocks.0.value" not in name:
            continue
        assert tag == ("decayed" if name.endswith("weight") else "plain"), name


def test_every_parameter_once_and_the_tags_survive_copies() -> None:
    model = Backbone(small_config())
    twin = copy.deepcopy(model).double()
    twin.load_state_dict(model.state_dict())
    assert [(name, tag) for name, _, tag in tagged_parameters(twin)] == [
        (name, tag) for name, _, tag in tagged_parameters(model)
    ]
    assert len({id(p) for _, p, _ in tagged_parameters(model)}) == len(list(model.parameters()))
    assert all(isinstance(p, torch.nn.Parameter) for _, p, _ in tagged_parameters(model))


def test_tied_weights_are_named_once_where_they_stand_first() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))
            self.first, self.second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
            self.second.weight = self.first.weight

    assert [(name, tag) for name, _, tag in tagged_parameters(Tied())] == [
        ("scale", "plain"),
        ("first.weight", "decayed"),
        ("first.bias", "plain"),
        ("second.bias", "plain"),
    ]
