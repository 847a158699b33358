"""Optimiser groups from the tags that parameters carry; nothing here looks at a parameter's name."""

from typing import NamedTuple

from torch import nn

from tides.nn.tags import Tag, tagged_parameters
from tides.training.config import TrainConfig


class ParameterGroup(NamedTuple):
    """Parameters that share a learning rate and a weight decay, with their qualified names."""

    tag: Tag
    names: tuple[str, ...]
    parameters: tuple[nn.Parameter, ...]
    lr: float
    weight_decay: float


def parameter_groups(model: nn.Module, config: TrainConfig) -> list[ParameterGroup]:
    """`ssm` at lr without decay; `decayed` at lr · lr_factor with decay; `plain` at lr · lr_factor without.

    Frozen parameters belong to no group, and empty groups are left out.
    """
    raised = config.lr * config.lr_factor
    settings: dict[Tag, tuple[float, float]] = {
        "ssm": (config.lr, 0.0),
        "decayed": (raised, config.weight_decay),
        "plain": (raised, 0.0),
    }
    members = [entry for entry in tagged_parameters(model) if entry.parameter.requires_grad]
    groups = []
    for tag, (lr, decay) in settings.items():
        own = [entry for entry in members if entry.tag == tag]
        if own:
            names, parameters = tuple(entry.name for entry in own), tuple(entry.parameter for entry in own)
            groups.append(ParameterGroup(tag, names, parameters, lr, decay))
    return groups
