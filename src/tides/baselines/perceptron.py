"""Small fully connected networks."""

import itertools

from torch import nn

from tides.baselines.affine import Affine


def perceptron(*sizes: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers of these sizes with an activation between them."""
    layers: list[nn.Module] = []
    for width, following in itertools.pairwise(sizes):
        layers += [Affine(width, following), activation()]
    return nn.Sequential(*layers[:-1])
