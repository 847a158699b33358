"""The `torch` backend: factored mixes, a two-level scan and hand-written gradients; any device, every feature."""

from torch import Tensor

from tides.functional.ssm import SSMOps, SSMSpec, SSMWeights
from tides.kernels.chunked.evolve import evolve
from tides.kernels.chunked.scan import scan
from tides.kernels.mixes import mix_in, mix_out
from tides.kernels.tail import gated_tail

OPS = SSMOps(mix_in, mix_out, evolve, gated_tail)


def obstacle(u: Tensor, weights: SSMWeights | None, spec: SSMSpec | None, packed: bool) -> str | None:
    """This backend runs everything."""
    return None


__all__ = ["OPS", "obstacle", "scan"]
