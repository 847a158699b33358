"""Anybody's own model in Fading Flash: `tides run fading-flash --model mypackage:build`.

`build()` returns a `torch.nn.Module` that is called once per position,

    y, state = model(u, gap, state)        u (b, 4), gap (b,), state None at the first position → y (b, 1)

and is trained and tested under exactly the protocol of the other models.
"""

import hashlib
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tides.errors import ConfigError, ShapeError


class FlashCustom(nn.Module):
    """One model per generator, run one after the other: nothing is assumed about what happens inside."""

    def __init__(self, name: str, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.name = name
        make = _find(name)
        models = []
        for generator in generators:
            # Starting values come from torch's global generator; each seed sets it and leaves it as it was.
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(generator.initial_seed())
                models.append(make())
        for model in models:
            if not isinstance(model, nn.Module) or not any(True for _ in model.parameters()):
                found = type(model).__name__
                raise ConfigError(f"model {name!r}: found {found}, wanted a torch.nn.Module with parameters to train")
        self.models = nn.ModuleList(models)

    def forward(self, x: Float[Tensor, "m b l 4"], gaps: Float[Tensor, "m b l"]) -> Float[Tensor, "m b l 1"]:
        """The predicted glow."""
        return torch.stack([self._roll(*rows) for rows in zip(self.models, x, gaps, strict=True)])

    def _roll(self, model: nn.Module, x: Tensor, gaps: Tensor) -> Tensor:
        state, outputs = None, []
        for u, gap in zip(x.unbind(1), gaps.unbind(1), strict=True):
            y, state = model(u, gap, state)
            outputs.append(y)
        if outputs[0].shape != (x.shape[0], 1):
            raise ShapeError(f"{self.name}: found an output of shape {tuple(outputs[0].shape)}, wanted (b, 1)")
        return torch.stack(outputs, 1)

    def parameter_count(self, *, published: bool = False) -> int:
        """Parameters of one model."""
        return sum(parameter.numel() for parameter in self.models[0].parameters())


def source_hash(name: str) -> str:
    """A digest of the file that is named and of the one that defines the model, so that an edited one is trained again.

    They are two where a package offers what one of its files has, and for what `functools.partial` made.
    """
    modules = [name.partition(":")[0], _find(name).__module__]
    files = dict.fromkeys(file for module in modules if (file := sys.modules[module].__file__))
    return hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()[:16] if files else ""


def _find(name: str) -> Any:
    """The function behind `package:function`; the current folder is searched too."""
    module, _, function = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"model {name!r}: {error}; wanted package:function") from error
