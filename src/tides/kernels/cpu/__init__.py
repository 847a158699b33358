"""The `cpu` backend: compiled passes (numba, extra `speed`), whose matrix products stay in registers.

The first call of a block compiles for about a minute; the result is cached on disk, beside the sources or in the user's
cache.
"""

from pathlib import Path

import torch
from torch import Tensor

try:
    import numba  # noqa: F401
except ImportError as error:
    raise ImportError("numba; install it with `pip install tides-ssm[speed]`") from error

from tides.functional.ssm import SSMOps, SSMSpec, SSMWeights
from tides.kernels.cpu.block import block_obstacle, fused_block, fused_stack
from tides.kernels.cpu.compiled_code import announce_compilation, drop_stale
from tides.kernels.cpu.evolve import evolve
from tides.kernels.cpu.mixes import mix_in, read_out
from tides.kernels.cpu.rates import decay_rates
from tides.kernels.cpu.scan import scan
from tides.kernels.tail import gated_tail

drop_stale(Path(__file__).parent)
announce_compilation()

OPS = SSMOps(mix_in, evolve=evolve, gated_tail=gated_tail, decay_rates=decay_rates, read_out=read_out)
_DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def obstacle(u: Tensor, weights: SSMWeights | None, spec: SSMSpec | None, packed: bool) -> str | None:
    """Why a call cannot run here; every feature can."""
    if u.device.type != "cpu":
        return f"the data is on {u.device}, not on the CPU"
    if u.dtype not in _DTYPES:
        return f"the data is {u.dtype}, and only float32 and float64 are compiled"
    return None


__all__ = ["OPS", "block_obstacle", "fused_block", "fused_stack", "obstacle", "scan"]
