"""The heads of a wide block: decay rates and both codes from one linear map."""

from typing import Any

import torch
from torch import Tensor

from tides.kernels.triton.block_config import BlockConfig, padded
from tides.kernels.triton.block_pass import REPARAMS
from tides.kernels.triton.direct import launch
from tides.kernels.triton.wide_kernels import heads_backward_kernel, heads_kernel
from tides.kernels.triton.wide_products import sum_over_rows

# Elements of a program's tile.
_TILE = 2048


class Heads:
    """Re λ (n, p) and the codes z̃ (n, i) of drive and readout from u (n, h)."""

    def __init__(self, config: BlockConfig, weights: Any) -> None:
        layout = config.layout
        self.modes, self.rank = layout.modes, layout.rank
        self.matrix = torch.cat([weights.decay, weights.drive_down, weights.readout_down])
        self.bias = torch.cat([weights.decay_bias, weights.drive_down_bias, weights.readout_down_bias])
        self.norm: Tensor | None = weights.decay_norm
        self.mix_norm = layout.mix_norm
        self.numbers = (config.eps, config.clip)
        block = padded(layout.modes)
        self.flags = {"P": layout.modes, "R": layout.rank, "PB": block, "IB": padded(layout.rank + 1)}
        self.flags |= {"BM": max(1, _TILE // block), "RATE_NORM": self.norm is not None}
        self.flags |= {"REPARAM": REPARAMS[config.reparam], "CLIPPED": config.clip > 0}

    def forward(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The linear maps (n, p + 2r), Re λ, and the codes."""
        n = u.shape[0]
        maps = torch.addmm(self.bias, u, self.matrix.t())
        decay = u.new_empty(n, self.modes)
        codes = [u.new_empty(n, self.rank + 1) for _ in range(2)]
        norm = self.bias if self.norm is None else self.norm
        launch(heads_kernel, self._grid(n), maps, norm, decay, *codes, n, *self.numbers, **self.flags)
        return maps, decay, codes[0], codes[1]

    def backward(
        self, u: Tensor, maps: Tensor, d_decay: Tensor, codes: tuple[Tensor, ...], du: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Gradients of weight, bias and norm of the decay, and of both codes' maps; that of u is added to `du`."""
        n, p, r = u.shape[0], self.modes, self.rank
        d_maps, grid = torch.empty_like(maps), self._grid(n)
        partial = u.new_empty(grid[0], p)
        norm = self.bias if self.norm is None else self.norm
        launch(
            heads_backward_kernel, grid, maps, norm, d_decay, *codes, d_maps, partial, n, *self.numbers, **self.flags,
            NORM=self.mix_norm,
        )  # fmt: skip
        du.addmm_(d_maps, self.matrix)
        d_matrix = sum_over_rows(d_maps, u)
        d_bias = d_maps.sum(0)
        d_decay_weight, d_drive, d_readout = d_matrix.split([p, r, r])
        d_decay_bias, d_drive_bias, d_readout_bias = d_bias.split([p, r, r])
        d_norm = None if self.norm is None else partial.sum(0)
        return d_decay_weight, d_decay_bias, d_norm, d_drive, d_drive_bias, d_readout, d_readout_bias

    def _grid(self, n: int) -> tuple[int]:
        return (-(-n // self.flags["BM"]),)
