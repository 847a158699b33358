"""Optimiser groups of every variant, pinned."""

import pytest
import torch

from tests.nn.models import VARIANTS, small_config
from tides.nn import SequenceClassifier
from tides.training import TrainConfig
from tides.training.groups import parameter_groups

CONFIG = TrainConfig(lr=1e-4, lr_factor=50.0, weight_decay=0.1)

# Parameters per tag of a classifier of two blocks; the static tensors of each variant are those without a head.
SSM = {
    "s5": {"decay.value", "frequency.value", "drive.base", "readout.base"},
    "tides-lambda": {"frequency.value", "drive.base", "readout.base"},
    "tides-bc": {"decay.value", "frequency.value"},
    "tides": {"frequency.value"},
    "tides-full": set(),
    "mamba-s": {"decay.value", "frequency.value"},
}
MIXES = {"drive.up", "drive.down.weight", "readout.up", "readout.down.weight"}
DECAYED = {
    "s5": set(),
    "tides-lambda": {"decay.weight"},
    "tides-bc": MIXES,
    "tides": MIXES | {"decay.weight"},
    "tides-full": MIXES | {"decay.weight", "frequency.weight"},
    "mamba-s": MIXES | {"step_weight"},
}
OUTSIDE = {"backbone.encoder.0.weight", "head.weight"}


@pytest.mark.parametrize("variant", VARIANTS)
def test_groups_of_each_variant(variant: str) -> None:
    model = SequenceClassifier(small_config(variant=variant), classes=3)
    groups = {group.tag: group for group in parameter_groups(model, CONFIG)}
    layers = [f"backbone.blocks.{i}.ssm." for i in range(2)]
    assert set(groups) == {"ssm", "decayed", "plain"} - ({"ssm"} if variant == "tides-full" else set())
    if "ssm" in groups:
        assert set(groups["ssm"].names) == {layer + name for layer in layers for name in SSM[variant]}
        assert (groups["ssm"].lr, groups["ssm"].weight_decay) == (1e-4, 0.0)
    decayed = set(groups["decayed"].names)
    assert {n for n in decayed if ".ssm." in n} == {layer + name for layer in layers for name in DECAYED[variant]}
    assert {n for n in decayed if "blocks" not in n} == OUTSIDE
    assert (groups["decayed"].lr, groups["decayed"].weight_decay) == pytest.approx((5e-3, 0.1))
    assert (groups["plain"].lr, groups["plain"].weight_decay) == pytest.approx((5e-3, 0.0))
    assert all(parameter.ndim >= 2 for parameter in groups["decayed"].parameters)
    every = [name for group in groups.values() for name in group.names]
    assert sorted(every) == sorted(name for name, _ in model.named_parameters())


def test_frozen_parameters_belong_to_no_group() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    model[0].requires_grad_(False)
    groups = parameter_groups(model, CONFIG)
    assert [(group.tag, group.names) for group in groups] == [("decayed", ("1.weight",)), ("plain", ("1.bias",))]
