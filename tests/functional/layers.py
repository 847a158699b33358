"""Random layers of every kind for the tests, with parameters of ordinary size and a stable decay."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from tides.functional import (
    DiagonalMix,
    GLUWeights,
    LowRankMix,
    Mix,
    ModeHead,
    SSMSpec,
    SSMState,
    SSMWeights,
    StaticMix,
    StepHead,
)

VARIANTS = ("s5", "tides-lambda", "tides-bc", "tides", "tides-full", "mamba-s")
RANKS = (3, "full", "diag")


class Case(NamedTuple):
    """One configuration of the layer."""

    variant: str = "tides"
    rank: int | str = 3
    norm: bool = True
    depth: int = 0
    reparam: str = "exp"
    discretisation: str = "zoh"
    hold: str = "following"
    bidirectional: bool = False
    reverse: str = "exact"
    clip: float | None = None
    conjugate: bool = False

    @property
    def spec(self) -> SSMSpec:
        return SSMSpec(
            reparam=self.reparam,  # type: ignore[arg-type]
            discretisation=self.discretisation,  # type: ignore[arg-type]
            hold=self.hold,  # type: ignore[arg-type]
            bidirectional=self.bidirectional,
            reverse=self.reverse,  # type: ignore[arg-type]
            clip=self.clip,
            conjugate=self.conjugate,
        )


def describe(case: Case) -> str:
    """A test id: what differs from the default layer."""
    parts = [
        f"{name}={value}"
        for name, value in case._asdict().items()
        if name != "variant" and value != Case._field_defaults[name]
    ]
    return " ".join([case.variant, *parts])


def random_layer(case: Case, *, p: int = 4, h: int = 3, dtype: torch.dtype = torch.float64) -> SSMWeights:
    """Weights for `case`; every tensor is a leaf that asks for its gradient."""

    def normal(*shape: int, scale: float = 0.4, shift: float = 0.0) -> Tensor:
        return (shift + scale * torch.randn(*shape, dtype=torch.float64)).to(dtype).requires_grad_()

    def glu() -> GLUWeights:
        return GLUWeights(normal(h, h), normal(h), normal(h, h), normal(h))

    def head(selective: bool, shift: float, scale: float) -> ModeHead:
        if not selective:
            return ModeHead(normal(p, shift=shift, scale=scale))
        norm = normal(p, shift=abs(shift) + 0.5, scale=0.1) if case.norm else None
        blocks = tuple(glu() for _ in range(case.depth))
        return ModeHead(normal(p, shift=shift, scale=scale), normal(p, h, scale=0.1), norm, blocks)

    def mix(modes: int) -> Mix:
        base = normal(modes, h, 2, scale=0.7)
        if case.variant not in ("tides-bc", "tides", "tides-full", "mamba-s"):
            return StaticMix(base)
        norm = normal(modes, shift=1.0, scale=0.2) if case.norm else None
        if case.rank == "diag":
            return DiagonalMix(base, normal(modes, 2, h), normal(modes, 2, shift=0.5), norm)
        if case.rank == "full":
            return LowRankMix(base, normal(modes, h, 2, h), None, None, norm)
        return LowRankMix(base, normal(modes, h, 2, int(case.rank)), normal(case.rank, h), normal(case.rank), norm)

    decay = head(case.variant in ("tides-lambda", "tides", "tides-full"), -0.6, 0.1)
    frequency = head(case.variant == "tides-full", 1.0, 1.0)
    step: Tensor | StepHead = normal(p, shift=-0.7, scale=0.6)
    if case.variant == "mamba-s":
        step = StepHead(normal(p, h + 1), normal(p, shift=-0.5))
    readout = mix(2 * p if case.bidirectional else p)
    return SSMWeights(decay, frequency, mix(p), readout, step, normal(h))


def random_input(b: int = 2, l: int = 5, h: int = 3, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """u (b, l, h) asking for its gradient and gaps (b, l), among them a zero and a long one."""
    u = torch.randn(b, l, h, dtype=torch.float64).to(dtype).requires_grad_()
    gaps = 2 * torch.rand(b, l, dtype=torch.float64)
    gaps[0, l // 2] = 0.0
    gaps[-1, -1] = 7.0
    return u, gaps.to(dtype).requires_grad_()


def random_state(b: int, p: int = 4) -> SSMState:
    s, drive = (torch.randn(b, p, dtype=torch.complex128).requires_grad_() for _ in range(2))
    lam = torch.complex(-torch.rand(b, p).double() - 0.1, torch.randn(b, p).double()).requires_grad_()
    return SSMState(s, lam, drive)


def leaves(tree: Any) -> list[Tensor]:
    """Every tensor in nested tuples."""
    if isinstance(tree, Tensor):
        return [tree]
    return [leaf for part in tree for leaf in leaves(part)] if isinstance(tree, tuple) else []
