"""The `torch` backend: factored mixes, a two-level scan and hand-written gradients; any device, every feature."""

from torch import Tensor

from tides.functional.ssm import SSMOps, SSMSpec, SSMWeights
from tides.kernels.chunked.evolve import evolve
from tides.kernels.chunked.mixes import mix_in, mix_out
from tides.kernels.chunked.scan import scan

OPS = SSMOps(mix_in, mix_out, evolve)


def obstacle(u: Tensor, weights: SSMWeights | None, spec: SSMSpec | None, packed: bool) -> str | None:
    """This backend runs everything."""
    return None


__all__ = ["OPS", "obstacle", "scan"]
