"""What models carry from one observation to the next: plain tuples of tensors, passed in and handed back."""

from typing import NamedTuple

from torch import Tensor

from tides.functional.ssm import SSMState


class BackboneState(NamedTuple):
    """One `SSMState` per block, and the encoder's last output, which is held until the next observation."""

    blocks: tuple[SSMState, ...]
    held: Tensor


class PooledState(NamedTuple):
    """A backbone's state with the running pool of its outputs (sums in float64, so that long streams do not drift)."""

    backbone: BackboneState
    total: Tensor
    weight: Tensor


__all__ = ["BackboneState", "PooledState", "SSMState"]
