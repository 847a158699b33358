"""States as flat dictionaries of tensors, one row per stream: what is gathered, stored and compared."""

import torch
from torch import Tensor

from tides.nn.state import BackboneState, PooledState, SSMState

ModelState = BackboneState | PooledState
Leaves = dict[str, Tensor]


def to_leaves(state: ModelState) -> Leaves:
    """Every tensor of a state by name."""
    backbone = state.backbone if isinstance(state, PooledState) else state
    leaves = {
        f"blocks.{index}.{name}": part
        for index, block in enumerate(backbone.blocks)
        for name, part in zip(SSMState._fields, block, strict=True)
    }
    leaves["held"] = backbone.held
    if isinstance(state, PooledState):
        leaves |= {"total": state.total, "weight": state.weight}
        if state.summary is not None:
            leaves["summary"] = state.summary
    return leaves


def from_leaves(leaves: Leaves) -> ModelState:
    """The inverse of `to_leaves`."""
    depth = sum(name.endswith(".s") for name in leaves)
    blocks = tuple(SSMState(*(leaves[f"blocks.{k}.{name}"] for name in SSMState._fields)) for k in range(depth))
    backbone = BackboneState(blocks, leaves["held"])
    if "total" not in leaves:
        return backbone
    return PooledState(backbone, leaves["total"], leaves["weight"], summary=leaves.get("summary"))


def as_real(leaves: Leaves) -> Leaves:
    """Complex tensors as pairs of reals, which every version of safetensors stores."""
    return {
        name: (torch.view_as_real(leaf.resolve_conj()) if leaf.is_complex() else leaf).contiguous()
        for name, leaf in leaves.items()
    }


def as_complex(leaves: Leaves, like: Leaves) -> Leaves:
    """The inverse of `as_real` for leaves of the kinds of `like`."""
    return {
        name: torch.view_as_complex(leaf.contiguous()) if like[name].is_complex() else leaf
        for name, leaf in leaves.items()
    }
