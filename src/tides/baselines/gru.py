"""A gated recurrent unit from elementary operations, which stacks and differentiates everywhere."""

import torch
from torch import Tensor, nn

from tides.baselines.affine import Affine


class GRUCell(nn.Module):
    """h' = (1 − z) n + z h with r, z = σ(W [x, h]), n = tanh(W x + r W h); weights as in `torch.nn.GRUCell`."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.from_input, self.from_state = Affine(inputs, 3 * width), Affine(width, 3 * width)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return self.step(self.from_input(x), h)

    def step(self, projected: Tensor, h: Tensor) -> Tensor:
        """The unit after the projection of its input, which a whole sequence can share."""
        reset, keep, new = projected.chunk(3, dim=-1)
        state_reset, state_keep, state_new = self.from_state(h).chunk(3, dim=-1)
        keep = torch.sigmoid(keep + state_keep)
        new = torch.tanh(new + torch.sigmoid(reset + state_reset) * state_new)
        result: Tensor = new + keep * (h - new)
        return result

    def sequence(self, x: Tensor, *, reverse: bool = False) -> Tensor:
        """States (b, l, h) after each row of x (b, l, d), from zero; from the end with `reverse`."""
        projected = self.from_input(x)
        h = projected.new_zeros(projected.shape[0], self.width)
        states = []
        steps = range(x.shape[1])
        for k in reversed(steps) if reverse else steps:
            h = self.step(projected[:, k], h)
            states.append(h)
        return torch.stack(states[::-1] if reverse else states, dim=1)
