"""int8 weights: every matrix as signed bytes and a scale per row; activations and states keep their precision."""

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from tides.nn.projections import MixProjector, ModeProjector, StaticProjection
from tides.nn.ssm import SSM

Model = TypeVar("Model", bound=nn.Module)

_LARGEST = 127


def to_int8(matrix: Tensor, axes: tuple[int, ...] = (-1,)) -> tuple[Tensor, Tensor]:
    """(codes, scale): matrix ≈ codes · scale with one scale for all entries along `axes` (kept, of size one)."""
    exact = matrix.detach().double()
    scale = exact.abs().amax(axes, keepdim=True) / _LARGEST
    # A row of zeros has codes of zero whatever its scale is.
    codes = torch.round(exact / torch.where(scale > 0, scale, torch.ones_like(scale)))
    return codes.to(torch.int8), scale


def quantised(model: Model) -> Model:
    """A copy of `model` with its matrices rounded as in int8 storage: it predicts what the int8 export predicts.

    There is one scale per row of a linear map, and one per column and code of B_k and C_k. Biases, norms, static
    eigenvalues, time scales, the skip connection and Mamba_S's weight of the gap are not rounded.
    """
    rounded = copy.deepcopy(model)
    with torch.no_grad():
        for module in rounded.modules():
            for matrix, axes in _matrices(module):
                codes, scale = to_int8(matrix, axes)
                matrix.copy_((codes * scale).to(matrix.dtype))
    return rounded


def _matrices(module: nn.Module) -> list[tuple[Tensor, tuple[int, ...]]]:
    """The module's own matrices and the axes over which their entries share a scale."""
    if isinstance(module, nn.Linear | ModeProjector):
        return [(module.weight, (-1,))]
    if isinstance(module, StaticProjection):
        return [(module.base, (0, 2))]
    if isinstance(module, MixProjector):
        return [(module.base, (0, 2)), (module.up, (-1,) if module.rank == "diag" else (0, 2))]
    if isinstance(module, SSM) and module.log_step is None:
        return [(module.step_weight[:, :-1], (-1,))]
    return []
