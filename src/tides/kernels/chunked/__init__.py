"""The `torch` backend: factored mixes, a two-level scan and hand-written gradients; any device, every feature.

Short sequences on a GPU are scanned as a quadratic form.
"""

from torch import Tensor

from tides.functional.ssm import SSMOps, SSMSpec, SSMWeights
from tides.kernels.chunked.evolve import evolve
from tides.kernels.chunked.quadratic import is_short
from tides.kernels.chunked.scan import scan
from tides.kernels.mixes import mix_in, mix_out
from tides.kernels.tail import gated_tail

OPS = SSMOps(mix_in, mix_out, evolve, gated_tail)


def obstacle(u: Tensor, weights: SSMWeights | None, spec: SSMSpec | None, packed: bool) -> str | None:
    """This backend runs everything."""
    return None


def describe(u: Tensor, weights: SSMWeights | None, spec: SSMSpec | None) -> str:
    """How the scan of a call runs."""
    if weights is not None and spec is not None:
        shape = (u.shape[:-2].numel(), u.shape[-2], weights.frequency.bias.shape[-1])
        if is_short(shape, u.device, spec.discretisation):
            return "a quadratic form instead of a scan, because the sequences are short"
    return "a two-level scan"


__all__ = ["OPS", "describe", "obstacle", "scan"]
