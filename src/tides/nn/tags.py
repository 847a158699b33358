"""Optimiser tags: what a training loop must know about a parameter, said where the parameter is made.

`ssm`      static Λ, B and C: the base learning rate, no weight decay
`decayed`  the raised learning rate (lr · lr_factor) with weight decay
`plain`    the raised learning rate without weight decay (biases, log_step, norm weights, skip)

Tags live on the module that owns the parameter, so they survive copying, moving and loading.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from torch import nn

Tag = Literal["ssm", "decayed", "plain"]


class TaggedParameter(NamedTuple):
    name: str
    parameter: nn.Parameter
    tag: Tag


def set_tags(module: nn.Module, **tags: Tag) -> None:
    """Tag parameters that `module` itself owns; an untagged parameter is `decayed` if it is a matrix, else `plain`."""
    module.__dict__.setdefault("_optimiser_tags", {}).update(tags)


def tagged_parameters(model: nn.Module) -> Iterator[TaggedParameter]:
    """Every parameter of `model` once, with its qualified name and tag."""
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        tags: dict[str, Tag] = module.__dict__.get("_optimiser_tags", {})
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            untagged: Tag = "decayed" if parameter.ndim > 1 else "plain"
            yield TaggedParameter(f"{prefix}.{name}" if prefix else name, parameter, tags.get(name, untagged))
