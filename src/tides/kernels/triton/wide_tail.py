"""The tail of a wide block, GLU(GELU(y)) with its dropout: matrix products; y alone is kept."""

from typing import Any

import torch
from torch import Tensor

from tides.kernels.triton.block_config import BlockConfig
from tides.kernels.triton.wide_products import sum_over_rows

_aten = torch.ops.aten


class Tail:
    """Both inner maps are one, in the order of `F.glu`: values, then gates."""

    def __init__(self, config: BlockConfig, weights: Any) -> None:
        self.dropout = config.dropout
        self.inner = torch.cat([weights.value, weights.gate])
        self.inner_bias = torch.cat([weights.value_bias, weights.gate_bias])
        self.out, self.out_bias = weights.out, weights.out_bias

    def forward(self, activated: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """What GELU(y) adds to the residual, and dropout's masks."""
        first = second = None
        if self.dropout > 0:
            activated, first = torch.native_dropout(activated, self.dropout, True)
        linear = torch.addmm(self.inner_bias, activated, self.inner.t())
        added = torch.addmm(self.out_bias, _aten.glu(linear, -1), self.out.t())
        if self.dropout > 0:
            added, second = torch.native_dropout(added, self.dropout, True)
        return added, first, second

    def backward(
        self, gradient: Tensor, y: Tensor, first: Tensor | None, second: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Gradients of y and of the six weights."""
        if second is not None:
            gradient = _aten.native_dropout_backward(gradient, second, 1 / (1 - self.dropout))
        activated = _aten.gelu(y)
        if first is not None:
            activated = _aten.native_dropout_backward(activated, first, 1 / (1 - self.dropout))
        linear = torch.addmm(self.inner_bias, activated, self.inner.t())
        d_out = sum_over_rows(gradient, _aten.glu(linear, -1))
        d_linear = _aten.glu_backward(torch.mm(gradient, self.out), linear, -1)
        d_value, d_gate = sum_over_rows(d_linear, activated).chunk(2)
        d_value_bias, d_gate_bias = d_linear.sum(0).chunk(2)
        dy = torch.mm(d_linear, self.inner)
        if first is not None:
            dy = _aten.native_dropout_backward(dy, first, 1 / (1 - self.dropout))
        dy = _aten.gelu_backward(dy, y)
        return dy, (d_value, d_value_bias, d_gate, d_gate_bias, d_out, gradient.sum(0))
