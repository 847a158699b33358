"""The selectivity heads of one layer: eigenvalues and step sizes from the input."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from tides.functional.norm import rms_norm
from tides.functional.reparam import Reparam, reparameterise


class GLUWeights(NamedTuple):
    """One residual gated block x ← x + (W1 x + b1) ⊙ σ(W2 x + b2) at constant width."""

    value: Float[Tensor, "h h"]
    value_bias: Float[Tensor, "h"]
    gate: Float[Tensor, "h h"]
    gate_bias: Float[Tensor, "h"]


class ModeHead(NamedTuple):
    """A per-mode quantity: static (`bias` alone) or W g(u) + bias, then RMSNorm over the modes if `norm` is given."""

    bias: Float[Tensor, "p"]
    weight: Float[Tensor, "p h"] | None = None
    norm: Float[Tensor, "p"] | None = None
    blocks: tuple[GLUWeights, ...] = ()


class StepHead(NamedTuple):
    """Mamba_S: δ_k = softplus(W [u_k, gap_k] + b) replaces the physical step."""

    weight: Float[Tensor, "p h1"]
    bias: Float[Tensor, "p"]


def glu_residual(x: Float[Tensor, "*b h"], block: GLUWeights) -> Float[Tensor, "*b h"]:
    """b(x) = x + (W1 x + b1) ⊙ σ(W2 x + b2)."""
    gate = torch.sigmoid(F.linear(x, block.gate, block.gate_bias))
    return x + F.linear(x, block.value, block.value_bias) * gate


def apply_head(u: Float[Tensor, "*b h"], head: ModeHead, eps: float) -> Float[Tensor, "*b p"]:
    """The head's value for every input row; a static head broadcasts over them."""
    if head.weight is None:
        return head.bias.expand(*u.shape[:-1], -1)
    features = u
    for block in head.blocks:
        features = glu_residual(features, block)
    theta = F.linear(features, head.weight, head.bias)
    return theta if head.norm is None else rms_norm(theta, head.norm, eps)


def decay_rates(
    u: Float[Tensor, "*b h"], head: ModeHead, reparam: Reparam, clip: float | None, eps: float
) -> Float[Tensor, "*b p"]:
    """Re λ_k = ρ(θ_k); with `clip` = ε at most −ε."""
    decay = reparameterise(apply_head(u, head, eps), reparam)
    return decay if clip is None else decay.clamp(max=-clip)


def step_sizes(
    u: Float[Tensor, "*b h"], gaps: Float[Tensor, "*b"], step: Float[Tensor, "p"] | StepHead
) -> Float[Tensor, "*b p"]:
    """δ_k per mode: the gap times the learned scale exp(log_step), or Mamba_S's learned function of both."""
    if isinstance(step, StepHead):
        return F.softplus(F.linear(torch.cat([u, gaps.unsqueeze(-1)], dim=-1), step.weight, step.bias), threshold=40)
    return gaps.unsqueeze(-1) * torch.exp(step)
