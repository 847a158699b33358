"""The heads of a wide block: decay rates and both codes from one linear map."""

from typing import Any

import torch
from torch import Tensor

from tides.kernels.triton.block_config import padded
from tides.kernels.triton.block_pass import REPARAMS
from tides.kernels.triton.buffers import Buffer, View
from tides.kernels.triton.wide_entry_kernels import heads_backward_kernel, heads_kernel
from tides.kernels.triton.wide_pass import Shares, WidePass, part_of, row_tile
from tides.kernels.triton.wide_products import sum_over_rows


def heads(run: WidePass) -> None:
    """Re λ (n, p) and the codes z̃ (n, i) of drive and readout from u (n, h)."""
    n, h, maps = run.rows, run.layout.width, run.layout.modes + 2 * run.layout.rank
    found = run.parts["heads"]
    u, out = View.dense(run.parts["u"], n, h), View.dense(found, n, maps)
    run.plan.call(torch.mm, u, run.dense("heads", maps, h).mT, out=out)
    grid, tile = row_tile(n, run.layout.modes)
    outputs = (run.parts["decay"], run.parts["drive code"], run.parts["readout code"])
    run.plan.launch(heads_kernel, grid, found, *_vectors(run), *outputs, n, *_numbers(run), **_flags(run, tile))


def heads_backward(
    run: WidePass,
    shares: Shares,
    d_decay: Buffer,
    codes: tuple[list[Buffer], list[Buffer]],
    du: Buffer,
    d_packed: Buffer,
) -> None:
    """From the gradients of decay and codes, which come from their mix and its norm; that of u is added to `du`."""
    plan, n, h, maps = run.plan, run.rows, run.layout.width, run.layout.modes + 2 * run.layout.rank
    d_heads = run.room(maps)
    grid, tile = shares.tile(run.layout.modes)
    shared = [part for found in codes for part in (found[0], found[-1])]
    inputs = (run.parts["heads"], *_vectors(run), d_decay, *shared)
    plan.launch(
        heads_backward_kernel, grid, *inputs, d_heads, shares.of("heads bias"), n, shares.width, *_numbers(run),
        **_flags(run, tile), NORM=run.layout.mix_norm,
    )  # fmt: skip
    gradient = View.dense(d_heads, n, maps)
    plan.call(Tensor.addmm_, View.dense(du, n, h), gradient, run.dense("heads", maps, h))
    u = View.dense(run.parts["u"], n, h)
    sum_over_rows(plan, gradient, u, part_of(d_packed, run.layout, "heads"))
    plan.release(d_heads)


def _vectors(run: WidePass) -> tuple[Buffer, Buffer]:
    bias = run.weight("heads bias")
    return bias, run.weight("decay norm") if run.layout.rate_norm else bias


def _numbers(run: WidePass) -> tuple[float, float]:
    return run.config.eps, run.config.limit


def _flags(run: WidePass, tile: dict[str, int]) -> dict[str, Any]:
    layout, config = run.layout, run.config
    flags: dict[str, Any] = {"P": layout.modes, "R": layout.rank, "PB": tile["AB"], "IB": padded(layout.rank + 1)}
    flags |= {"BM": tile["BM"], "RATE_NORM": layout.rate_norm}
    return flags | {"REPARAM": REPARAMS[config.reparam], "CLIPPED": config.clipped}
