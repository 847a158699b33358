"""A low-rank mix by itself, block by block: each thread's memory, and the sums that the threads collect."""

from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from tides.kernels.cpu import mix_loops as loops
from tides.kernels.cpu.mix_tile import Columns, MixTile, block_steps, run_blocks
from tides.kernels.cpu.planes import Planes, View


class MixScratch:
    """One thread's memory for a mix by itself: inputs and codes as planes, and the sums over all blocks."""

    def __init__(self, kernel: Tensor, down: Tensor, offset: Tensor, forms: Tensor | None, steps: int) -> None:
        self.planes = Planes(steps, kernel.dtype)
        width, size = down.shape
        self.encoder = torch.cat([down, offset.unsqueeze(0)]).t().contiguous()
        self.u = self.planes.add(width, ones=True)
        self.du, self.code, self.d_code = (self.planes.add(n) for n in (width, size, size))
        columns = 0 if forms is None else width
        self.tile = MixTile(size, kernel.shape[0] // size, kernel.shape[1], columns, self.planes)
        self.tile.load(kernel, forms)
        self.x, self.dx = self.planes.add(self.tile.inner), self.planes.add(self.tile.inner)
        self.out = self.planes.add(self.tile.outer)
        self.scaled = self.planes.add(width)
        self.d_encoder = torch.zeros_like(self.encoder)
        self.d_skip = torch.zeros(width, dtype=torch.float64)

    @property
    def inputs(self) -> View:
        """u without its row of ones."""
        return self.u.rows(0, self.encoder.shape[1] - 1)

    def encode(self, u: Any) -> None:
        """`u` and `code` from rows (n, h)."""
        loops.transposed(u, self.inputs.array)
        torch.mm(self.encoder, self.u.tensor, out=self.code.tensor)

    def encode_backward(self) -> None:
        """Adds the share of `d_code` to `du`, and collects the encoder's gradient."""
        self.du.tensor.addmm_(self.encoder[:, :-1].t(), self.d_code.tensor)
        self.d_encoder.addmm_(self.d_code.tensor, self.u.turned)


def summed(teams: list[list[MixScratch]], name: str) -> Tensor:
    """What every team of threads collected under `name`, one row per problem."""
    return torch.stack([torch.stack([attrgetter(name)(each) for each in team]).sum(0) for team in teams])


def d_encoder(teams: list[list[MixScratch]]) -> tuple[Tensor, Tensor]:
    """Gradients of A and c."""
    found = summed(teams, "d_encoder").mT
    return found[:, :-1].contiguous(), found[:, -1].contiguous()


def run_mix(
    kernel: Tensor, down: Tensor, offset: Tensor, columns: Columns | None, n: int, work: Any
) -> list[list[MixScratch]]:
    """`work(m, scratch, start, stop)` for every block of every problem m."""
    size = offset.shape[1]
    steps = block_steps(max(kernel.shape[1], size * kernel.shape[2]))
    teams = []
    for m in range(len(offset)):
        forms = None if columns is None else columns.forms[m]
        make = partial(MixScratch, kernel[m], down[m].detach(), offset[m].detach(), forms, steps)
        teams.append(run_blocks(make, steps, n, partial(work, m)))
    return teams
