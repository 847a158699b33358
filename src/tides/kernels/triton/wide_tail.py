"""The tail of a wide block, GLU(GELU(y)) with its dropout: matrix products; y alone is kept."""

import torch

from tides.kernels.triton.buffers import Buffer, View
from tides.kernels.triton.wide_pass import Shares, WidePass, part_of, row_tile
from tides.kernels.triton.wide_products import sum_over_rows
from tides.kernels.triton.wide_tail_kernels import activate_kernel, gate_backward_kernel, gate_kernel, residual_kernel


def tail(run: WidePass, activated: Buffer, out: Buffer) -> None:
    """x and what drop(GELU(y)) adds to it; `activated` is overwritten."""
    plan, n, h, f = run.plan, run.rows, run.layout.width, run.layout.inner
    linear, gated = run.room(2 * f), run.room(f)
    plan.call(torch.mm, View.dense(activated, n, h), run.dense("inner", 2 * f, h).mT, out=View.dense(linear, n, 2 * f))
    grid, tile = row_tile(n, f)
    plan.launch(gate_kernel, grid, linear, run.weight("inner bias"), gated, n, **tile)
    plan.call(torch.mm, View.dense(gated, n, f), run.dense("out", h, f).mT, out=View.dense(activated, n, h))
    grid, tile = row_tile(n, h)
    inputs = (run.x, activated, run.weight("out bias"), run.seed)
    plan.launch(residual_kernel, grid, *inputs, out, n, **tile, DROP=run.config.dropout)
    plan.release(linear, gated)


def tail_backward(run: WidePass, shares: Shares, gradient: Buffer, d_packed: Buffer) -> Buffer:
    """The gradient of drop(GELU(y)) from that of the output."""
    plan, layout, n, h, f = run.plan, run.layout, run.rows, run.layout.width, run.layout.inner
    drops = run.config.dropout > 0
    activated, linear, d_gated, gated = run.room(h), run.room(2 * f), run.room(f), run.room(f)
    dropped = run.room(h) if drops else gradient
    grid, tile = shares.tile(h)
    tensors = (run.parts["y"], gradient, run.seed, activated, dropped, shares.of("out bias"))
    plan.launch(activate_kernel, grid, *tensors, n, shares.width, **tile, DROP=run.config.dropout)
    inner, out = run.dense("inner", 2 * f, h), run.dense("out", h, f)
    units, change = View.dense(activated, n, h), View.dense(dropped, n, h)
    plan.call(torch.mm, units, inner.mT, out=View.dense(linear, n, 2 * f))
    plan.call(torch.mm, change, out, out=View.dense(d_gated, n, f))
    grid, tile = shares.tile(f)
    inputs = (linear, run.weight("inner bias"), d_gated)
    plan.launch(gate_backward_kernel, grid, *inputs, gated, shares.of("inner bias"), n, shares.width, **tile)
    d_linear = View.dense(linear, n, 2 * f)
    sum_over_rows(plan, change, View.dense(gated, n, f), part_of(d_packed, layout, "out"))
    sum_over_rows(plan, d_linear, units, part_of(d_packed, layout, "inner"))
    plan.release(d_gated, gated, activated, *([dropped] if drops else []))
    d_activated = run.room(h)
    plan.call(torch.mm, d_linear, inner, out=View.dense(d_activated, n, h))
    plan.release(linear)
    return d_activated
