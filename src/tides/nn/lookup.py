"""Parameters and submodules by name, quickly."""

from typing import Any

from torch import nn


def held(module: nn.Module, name: str) -> Any:
    """`getattr(module, name)`, but faster for parameters and modules, which torch's own way looks up last.

    A block has some twenty of them, and on a GPU a training step of a small model is as fast as its Python code.
    """
    own = module._parameters
    if name in own:
        return own[name]
    parts = module._modules
    return parts[name] if name in parts else getattr(module, name)
