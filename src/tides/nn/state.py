"""What models carry from one observation to the next: plain tuples of tensors, passed in and handed back."""

from typing import NamedTuple

from torch import Tensor

from tides.functional.ssm import SSMState


class BackboneState(NamedTuple):
    """One `SSMState` per block, and the encoder's last output, which is held until the next observation."""

    blocks: tuple[SSMState, ...]
    held: Tensor


class PooledState(NamedTuple):
    """A backbone's state with the running pool of its outputs (sums in float64, so that long streams do not drift).

    Only `advance` sets `newest` and `waited`, which the next observation consumes.
    """

    backbone: BackboneState
    total: Tensor
    weight: Tensor
    newest: Tensor | None = None
    """`mean`: the newest observation's features (b, h) as they stand in `total`."""
    waited: Tensor | None = None
    """`time`: how long (b,) nothing has been observed."""
    summary: Tensor | None = None
    """Sums (b, n) behind the statistics of a model with a summary (`functional.summary.Sums`), in float64."""


__all__ = ["BackboneState", "PooledState", "SSMState"]
