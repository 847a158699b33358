"""The selectivity heads as modules; each hands its tensors to `functional` as a NamedTuple."""

from typing import Literal

import torch
from torch import Tensor, nn

from tides.functional.heads import ModeHead
from tides.functional.mixes import DiagonalMix, LowRankMix, Mix, StaticMix
from tides.nn.glu import ResidualGLU, linear_tensors
from tides.nn.lookup import held
from tides.nn.tags import Tag, set_tags

_RANDOM_INIT_STD = 0.01


def final_weight(*shape: int, init: Literal["zeros", "random"]) -> nn.Parameter:
    """The last weight of a head: zero, so that training starts from HiPPO, or a small perturbation of it."""
    return nn.Parameter(torch.zeros(shape) if init == "zeros" else _RANDOM_INIT_STD * torch.randn(shape))


class ModeProjector(nn.Module):
    """θ_k = W g(u_k) + θ_0 with an optional RMSNorm over the modes: the Λ head."""

    def __init__(
        self,
        start: Tensor,
        width: int,
        *,
        depth: int,
        init: Literal["zeros", "random"],
        norm_start: Literal["preserve", "ones"] | None,
        eps: float,
        decay_vectors: bool,
    ) -> None:
        super().__init__()
        self.deep = depth > 0
        self.blocks = nn.ModuleList(ResidualGLU(width) for _ in range(depth))
        self.weight = final_weight(start.numel(), width, init=init)
        self.bias = nn.Parameter(start.clone())
        self.norm = _norm_weight(start, start.square().mean(), norm_start, eps)
        set_tags(self, bias="plain", norm="decayed" if decay_vectors else "plain")

    def head(self) -> ModeHead:
        blocks = tuple(block.weights() for block in self.blocks) if self.deep else ()  # type: ignore[operator]
        return ModeHead(held(self, "bias"), held(self, "weight"), held(self, "norm"), blocks)


class MixProjector(nn.Module):
    """B_k or C_k from u_k: low rank, full rank or a diagonal modulation of `base` (p, h, 2)."""

    def __init__(
        self,
        base: Tensor,
        *,
        rank: int | Literal["full", "diag"],
        init: Literal["zeros", "random"],
        norm_start: Literal["preserve", "ones"] | None,
        rms: float,
        eps: float,
        decay_vectors: bool,
    ) -> None:
        super().__init__()
        p, h, _ = base.shape
        self.rank = rank
        if norm_start == "preserve" and rank != "diag":
            # Every column starts at the same rms, which the norm's weight restores: HiPPO survives the norm.
            base = base * (rms / base.square().sum(-1).mean(0).sqrt()).unsqueeze(-1)
        self.base = nn.Parameter(base.clone())
        self.down = nn.Linear(h, rank) if isinstance(rank, int) else None
        if rank == "diag":
            self.up = final_weight(p, 2, h, init=init)
            self.bias = nn.Parameter(torch.tensor([1.0, 0.0]).repeat(p, 1))
            mean_square = torch.tensor(1.0)
        else:
            self.up = final_weight(p, h, 2, rank if isinstance(rank, int) else h, init=init)
            self.register_parameter("bias", None)
            mean_square = torch.tensor(rms**2)
        self.norm = _norm_weight(base[:, 0, 0], mean_square, norm_start, eps)
        set_tags(self, base="plain", bias="plain", norm="decayed" if decay_vectors else "plain")

    def mix(self) -> Mix:
        if self.rank == "diag":
            return DiagonalMix(self.base, self.up, self.bias, self.norm)
        down = held(self, "down")
        weight, bias = (None, None) if down is None else linear_tensors(down)
        return LowRankMix(held(self, "base"), held(self, "up"), weight, bias, held(self, "norm"))


class StaticModes(nn.Module):
    """A per-mode parameter that no input changes (Im λ in TIDES, all of Λ in S5 and Mamba_S).

    With `expand` it lives on one half of the conjugate pairs and `sign` says how the other half mirrors it.
    """

    def __init__(self, start: Tensor, *, expand: bool = False, sign: float = 1.0, tag: Tag = "ssm") -> None:
        super().__init__()
        self.value = nn.Parameter(start.clone())
        self.expand, self.sign = expand, sign
        set_tags(self, value=tag)

    def expanded(self) -> Tensor:
        value: Tensor = held(self, "value")
        return torch.cat([value, self.sign * value]) if self.expand else value

    def head(self) -> ModeHead:
        return ModeHead(self.expanded())


class StaticProjection(nn.Module):
    """B_0 or C_0 (p, h, 2) that no input changes; `directions` blocks of modes are mirrored one by one."""

    def __init__(self, base: Tensor, *, expand: bool = False, directions: int = 1) -> None:
        super().__init__()
        self.base = nn.Parameter(base.clone())
        self.expand, self.directions = expand, directions
        set_tags(self, base="ssm")

    def mix(self) -> Mix:
        return StaticMix(mirror(self.base, self.directions) if self.expand else self.base)


def mirror(half: Tensor, directions: int = 1) -> Tensor:
    """concat[half; conj(half)] of complex pairs (p, h, 2) for every direction of time."""
    parts = half.chunk(directions)
    mirrored = (torch.stack([part[..., 0], -part[..., 1]], dim=-1) for part in parts)
    return torch.cat([piece for pair in zip(parts, mirrored, strict=True) for piece in pair])


def _norm_weight(
    like: Tensor, mean_square: Tensor, start: Literal["preserve", "ones"] | None, eps: float
) -> nn.Parameter | None:
    if start is None:
        return None
    ones = torch.ones_like(like)
    return nn.Parameter(ones * (mean_square + eps).sqrt() if start == "preserve" else ones)
