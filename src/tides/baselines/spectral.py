"""Linear maps whose norm stays below one."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Power iteration finds the norm from below; the margin keeps the map a contraction all the same.
_LARGEST = 0.97
_ITERATIONS = 5
_FIRST_ITERATIONS = 30


class SpectralLinear(nn.Linear):
    """W x + b with W scaled to spectral norm 0.97. The leading singular vectors are followed by five power
    iterations per call in training, as published, and stored."""

    left: Tensor
    right: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.register_buffer("left", F.normalize(torch.randn(outputs), dim=0))
        self.register_buffer("right", F.normalize(torch.randn(inputs), dim=0))
        self._follow(_FIRST_ITERATIONS)

    def scaled_weight(self) -> Tensor:
        """W · 0.97 / ‖W‖₂."""
        if self.training:
            self._follow(_ITERATIONS)
        # Clones, because the next call overwrites the buffers while this call's graph still needs them.
        norm = self.left.clone() @ (self.weight @ self.right.clone())
        return self.weight * (_LARGEST / norm)

    @torch.no_grad()
    def _follow(self, iterations: int) -> None:
        weight, left, right = self.weight.detach(), self.left, self.right
        for _ in range(iterations):
            right = F.normalize(weight.mT @ left, dim=0)
            left = F.normalize(weight @ right, dim=0)
        self.left.copy_(left)
        self.right.copy_(right)
