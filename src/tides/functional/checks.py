"""Validation at the doors of a layer and of its parts: every message names the argument, what was found and wanted."""

from typing import Any

import torch
from torch import Tensor

from tides.errors import ShapeError

_COMPUTED = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def check_precision(dtype: torch.dtype, name: str) -> None:
    """Refuse half precision: complex states would lose their slow modes."""
    if dtype not in _COMPUTED:
        raise ShapeError(f"{name}: found {dtype}, wanted float32 or float64, real or complex")


def check_layer_input(u: Any, gaps: Any, h: int, valid: Any = None) -> None:
    """Check shapes: a compiled backend would read beyond the end of gaps that are too short, and write where there is
    no step.
    """
    fits = isinstance(u, Tensor) and isinstance(gaps, Tensor)
    if not fits or u.ndim < 3 or u.shape[-1] != h or gaps.shape != u.shape[:-1]:
        found = " and ".join(describe_shape(x) for x in (u, gaps))
        raise ShapeError(f"u, gaps: found {found}, wanted (b, l, {h}) and (b, l)")
    if 0 in u.shape:
        raise ShapeError(f"u: found shape {tuple(u.shape)}, wanted at least one series and one observation")
    if valid is not None and not is_mask(valid, u.shape[:-1]):
        raise ShapeError(f"valid: found {describe_tensor(valid)}, wanted a bool tensor (b, l) = {tuple(u.shape[:-1])}")


def is_mask(x: Any, shape: torch.Size) -> bool:
    return isinstance(x, Tensor) and x.dtype == torch.bool and x.shape == shape


def describe_tensor(x: Any) -> str:
    """The kind and shape of a tensor, for errors."""
    return f"{x.dtype} of shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__


def describe_shape(x: Any) -> str:
    """The shape of a tensor, for errors."""
    return str(tuple(x.shape)) if isinstance(x, Tensor) else type(x).__name__
