"""The passes of `kernels.bilinear`, each in one launch: every element is read and written once."""

from typing import Any

import torch
from torch import Tensor

from tides.kernels.bilinear import PASSES, Passes
from tides.kernels.triton.bilinear_kernels import (
    backward_kernel,
    inverse_root_kernel,
    outer_kernel,
    triple_product_kernel,
    weighted_sum_kernel,
)
from tides.kernels.triton.direct import launch

# Elements of a program's tile, and its rows at most: few registers, so that many programs wait for memory at once.
_TILE = 1024
_ROWS = 64


def outer(z: Tensor, x: Tensor, dtype: torch.dtype) -> Tensor:
    """z ⊗ x, flat: (m, n, i·a)."""
    i, a = z.shape[-1], x.shape[-1]
    out = torch.empty(*z.shape[:-1], i * a, dtype=dtype, device=z.device)
    grid, n, tile = _shape(out.numel(), i, a)
    launch(outer_kernel, grid, z.contiguous(), x.contiguous(), out, n, **tile)
    return out


def weighted_sum(z: Tensor, product: Tensor, out: Tensor) -> Tensor:
    """Σ_i z_i t[i] to `out`."""
    if not out.is_contiguous():
        return out.copy_(weighted_sum(z, product, torch.empty(out.shape, dtype=out.dtype, device=out.device)))
    grid, n, tile = _shape(product.numel(), *product.shape[-2:])
    launch(weighted_sum_kernel, grid, z.contiguous(), product, out, n, **tile)
    return out


def inner(work: Tensor, z: Tensor, x: Tensor) -> Tensor:
    """Σ_a t[i, a] x_a; `work`, t, becomes z ⊗ x."""
    z, x = z.contiguous(), x.contiguous()
    dz = torch.empty_like(z)
    grid, n, tile = _shape(work.numel(), *work.shape[-2:])
    launch(backward_kernel, grid, work, z, x, dz, x, n, **tile, WITH_DX=False)
    return dz


def both_sums(work: Tensor, z: Tensor, x: Tensor, dx: Tensor) -> Tensor:
    """The same, and Σ_i z_i t[i, a] to `dx`."""
    if not dx.is_contiguous():
        whole = torch.empty(dx.shape, dtype=dx.dtype, device=dx.device)
        dz = both_sums(work, z, x, whole)
        dx.copy_(whole)
        return dz
    z, x = z.contiguous(), x.contiguous()
    dz = torch.empty_like(z)
    grid, n, tile = _shape(work.numel(), *work.shape[-2:])
    launch(backward_kernel, grid, work, z, x, dz, dx, n, **tile, WITH_DX=True)
    return dz


def inverse_root(square: Tensor, eps: float, x: Tensor, out: Tensor) -> Tensor:
    """1/√(s + eps), and x times it to `out`."""
    if not out.is_contiguous():
        scaled = torch.empty(out.shape, dtype=out.dtype, device=out.device)
        inverse = inverse_root(square, eps, x, scaled)
        out.copy_(scaled)
        return inverse
    inverse = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    size = x.numel()
    grid = (-(-size // _TILE),)
    launch(inverse_root_kernel, grid, square, x.contiguous(), inverse, out, size, EPS=eps, BLOCK=_TILE)
    return inverse


def triple_product(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """a b c, element by element."""
    out = torch.empty(a.shape, dtype=a.dtype, device=a.device)
    operands = (tensor.contiguous() for tensor in (a, b, c))
    grid = (-(-out.numel() // _TILE),)
    launch(triple_product_kernel, grid, *operands, out, out.numel(), BLOCK=_TILE)
    return out


def _shape(elements: int, i: int, a: int) -> tuple[tuple[int], int, dict[str, Any]]:
    """Grid, rows and flags of a pass over `elements` in rows of i·a."""
    n = elements // (i * a)
    grid, tile = pass_tile(n, i, a)
    return grid, n, tile


def pass_tile(n: int, i: int, a: int) -> tuple[tuple[int], dict[str, Any]]:
    """Grid and flags of a pass over n rows of i·a."""
    block = max(4, 1 << (a - 1).bit_length())
    rows = max(1, min(_ROWS, _TILE // block))
    return (-(-n // rows),), {"I": i, "A": a, "AB": block, "BM": rows}


FUSED = "triton"
PASSES[FUSED] = Passes(outer, weighted_sum, inner, both_sums, inverse_root, triple_product)
