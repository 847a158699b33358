"""Detects traces and transforms around a call, which operators with their own gradients do not support."""

import torch
from torch import Tensor, nn
from torch._C._functorch import TransformType
from torch.autograd import forward_ad


def plain_only() -> str | None:
    """Why a call must go through the plain definition, or None."""
    if torch.compiler.is_compiling():
        return None
    if torch._C._is_tracing():
        return "torch.jit.trace goes through the plain definition alone"
    if forward_ad._current_level >= 0:
        return "forward mode goes through the plain definition alone"
    if torch._C._functorch.peek_interpreter_stack() is None:
        return None
    kinds = {interpreter.key() for interpreter in torch._C._functorch.get_interpreter_stack()}
    if kinds & {TransformType.Grad, TransformType.Jvp}:
        return "derivatives by torch.func go through the plain definition alone"
    return None


def runs_at_once(x: Tensor) -> bool:
    """Whether a call computes now, on plain tensors: not traced, not transformed and not in any dispatch mode."""
    if torch.compiler.is_compiling() or torch._C._is_tracing() or type(x) not in (Tensor, nn.Parameter):
        return False
    return torch._C._functorch.peek_interpreter_stack() is None and torch._C._len_torch_dispatch_stack() == 0
