"""The batch norm of a wide block: the kernels of the fused one, between them one pass over the rows."""

import torch
from torch import Tensor

from tides.kernels.statistics import RunningNorm
from tides.kernels.triton.block_config import BlockConfig, padded
from tides.kernels.triton.block_pass import NORM_PROGRAMS, NORM_ROWS, shares
from tides.kernels.triton.direct import launch
from tides.kernels.triton.norm_kernels import affine_kernel, moments_kernel, norm_backward_kernel

# Elements of a program's tile.
_TILE = 2048


class Norm:
    """u = x ⊙ scale + shift of the rows x (n, h), zero where `mask` (n) is zero."""

    def __init__(self, config: BlockConfig, x: Tensor, mask: Tensor | None) -> None:
        self.x, self.mask = x, mask
        width = config.layout.width
        self.flags = {"H": width, "HB": padded(width)}
        self.rows = max(1, _TILE // self.flags["HB"])

    def forward(self, running: RunningNorm) -> tuple[Tensor, Tensor, Tensor]:
        """u, scale and shift (2, h), and what the backward pass needs of the batch; running statistics follow."""
        x = self.x
        n, width = x.shape
        affine, moments = x.new_empty(2, width), x.new_empty(2, width)
        programs, partial = 0, x
        if running.training:
            tiles, programs = shares(n, NORM_ROWS, NORM_PROGRAMS)
            partial = x.new_empty(programs, 3, width)
            launch(
                moments_kernel, (programs,), x, self._mask, partial, n, tiles, **self.flags, BM=NORM_ROWS, **self._has
            )
        launch(
            affine_kernel, (1,), partial, running.mean, running.var, affine, moments, programs, running.eps,
            running.momentum, **self.flags, BM=64, BATCH=running.training,
        )  # fmt: skip
        u = torch.addcmul(affine[1], x, affine[0])
        if self.mask is not None:
            u.masked_fill_(self.mask[:, None] == 0, 0)
        return u, affine, moments

    def backward(self, gradient: Tensor, du: Tensor, affine: Tensor, moments: Tensor, *, training: bool) -> Tensor:
        """dx: the residual's gradient and that of u through the norm."""
        x = self.x
        if self.mask is not None:
            du.masked_fill_(self.mask[:, None] == 0, 0)
        dx = torch.addcmul(gradient, du, affine[0])
        if training:
            d_affine = torch.empty_like(affine)
            torch.sum(du, 0, out=d_affine[1])
            torch.sum(du.mul_(x), 0, out=d_affine[0])
            n = x.shape[0]
            grid = (-(-n // self.rows),)
            tensors = (x, self._mask, affine, moments, d_affine, dx)
            launch(norm_backward_kernel, grid, *tensors, n, **self.flags, BM=self.rows, **self._has)
        return dx

    @property
    def _mask(self) -> Tensor:
        return self.x if self.mask is None else self.mask

    @property
    def _has(self) -> dict[str, bool]:
        return {"HAS_VALID": self.mask is not None}
