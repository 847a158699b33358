"""W x + b as a product and a sum."""

from torch import Tensor, nn


class Affine(nn.Linear):
    """`nn.Linear` for models that are stacked: its own kernel, mapped over models, multiplies products and biases by
    one before it adds them, and loops over events make that every fifth operation."""

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.mT + self.bias
