"""The `triton` backend: fused GPU kernels in float32. The only place that imports triton."""

import os
import shutil

import torch
from torch import Tensor

from tides.functional.ssm import SSMOps, SSMSpec, SSMWeights
from tides.kernels.triton import rows
from tides.kernels.triton.block import block_obstacle, fused_block, fused_stack
from tides.kernels.triton.evolve import evolve, scan
from tides.kernels.triton.mixes import mix_in, mix_out
from tides.kernels.triton.selective import selective_scan
from tides.kernels.triton.tail import gated_tail
from tides.kernels.triton.wide import wide_block, wide_obstacle, wide_stack

OPS = SSMOps(mix_in, mix_out, evolve, gated_tail)
# Looked for once, as Triton does, because calls may be traced.
_COMPILER = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")


def obstacle(u: Tensor, weights: SSMWeights | None, spec: SSMSpec | None, packed: bool) -> str | None:
    """Why this backend cannot run the call, or None."""
    if u.device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"the data is on {u.device}, and its kernels run on CUDA devices"
    if u.dtype not in (torch.float32, torch.complex64):
        return f"its kernels compute in float32, and the data is {u.dtype}"
    if u.device.type == "cuda" and _COMPILER is None:
        return "Triton builds what launches its kernels with a C compiler; install gcc or clang, or set CC"
    return None


__all__ = [
    "OPS",
    "block_obstacle",
    "fused_block",
    "fused_stack",
    "obstacle",
    "rows",
    "scan",
    "selective_scan",
    "wide_block",
    "wide_obstacle",
    "wide_stack",
]
