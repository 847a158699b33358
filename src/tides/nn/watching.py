"""Whether hooks watch modules: such modules are called one by one, not as parts of something larger."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn
from torch.nn.modules import module as torch_modules

Hooks = Mapping[int, Any]

# Hooks on all modules of the process; torch fills these dictionaries and never replaces them.
_ON_EVERYTHING: tuple[Hooks, ...] = (
    torch_modules._global_forward_hooks,
    torch_modules._global_forward_pre_hooks,
    torch_modules._global_backward_hooks,
    torch_modules._global_backward_pre_hooks,
)


def hooks_of(modules: Iterable[nn.Module | None]) -> list[Hooks]:
    """The dictionaries in which torch keeps hooks on inputs, outputs and gradients of these modules."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [getattr(module, kind) for module in modules if module is not None for kind in kinds]


def everything_is_hooked() -> bool:
    return any(_ON_EVERYTHING)
