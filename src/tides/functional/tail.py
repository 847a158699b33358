"""What follows the SSM inside a block: GELU, a gated linear unit and the residual connection (paper, appendix A)."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F


class TailWeights(NamedTuple):
    """GLU(g) = W3((W1 g + b1) ⊙ σ(W2 g + b2)) + b3 with inner width f."""

    value: Float[Tensor, "f h"]
    value_bias: Float[Tensor, "f"]
    gate: Float[Tensor, "f h"]
    gate_bias: Float[Tensor, "f"]
    out: Float[Tensor, "h f"]
    out_bias: Float[Tensor, "h"]


def gated_tail(x: Float[Tensor, "*b h"], y: Float[Tensor, "*b h"], weights: TailWeights) -> Float[Tensor, "*b h"]:
    """x + GLU(GELU(y)), GELU in its exact (erf) form."""
    activated = F.gelu(y)
    gate = torch.sigmoid(F.linear(activated, weights.gate, weights.gate_bias))
    gated = F.linear(activated, weights.value, weights.value_bias) * gate
    return x + F.linear(gated, weights.out, weights.out_bias)
