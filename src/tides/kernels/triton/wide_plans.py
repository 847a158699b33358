"""The launches of one wide block or of a stack of equal ones, planned once for every configuration and shape."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tides.kernels.statistics import RunningNorm
from tides.kernels.triton import wide_mixes
from tides.kernels.triton.block_config import BlockConfig, BlockShape
from tides.kernels.triton.block_plans import BlockInputs, Wanted, last_states, remembered
from tides.kernels.triton.buffers import Buffer, aligned
from tides.kernels.triton.launch import LaunchPlan
from tides.kernels.triton.precision import matrix_precision
from tides.kernels.triton.wide_heads import heads, heads_backward
from tides.kernels.triton.wide_layout import wide_layout
from tides.kernels.triton.wide_norm import normalise, normalise_backward, statistics_backward
from tides.kernels.triton.wide_pass import Shares, WideBuffers, WidePass, kept_size, kept_sizes
from tides.kernels.triton.wide_scan import Scans
from tides.kernels.triton.wide_tail import tail, tail_backward


def run_forward(
    config: BlockConfig, shape: BlockShape, inputs: BlockInputs, norms: Sequence[RunningNorm]
) -> tuple[Tensor, list[Tensor], Tensor]:
    """The output, then s, λ and pending drive (b, p) of every block's last valid step, and what is kept."""
    x, layout = inputs.x, config.layout
    out = torch.empty_like(x)
    last = last_states(3 * shape.depth, (shape.batch, layout.modes), x.device, apart=False)
    kept = x.new_empty(_kept_size(config, shape)) if shape.keeps else x
    running = [part for norm in norms for part in (norm.mean, norm.var)]
    plan = _plan_forward(config, shape, matrix_precision(), norms[0].eps, norms[0].momentum)
    plan.run(*_filled(inputs), kept, *running, out, *last)
    return out, last, kept


def run_backward(
    config: BlockConfig,
    shape: BlockShape,
    inputs: BlockInputs,
    kept: Tensor,
    gradient: Tensor,
    d_last: Sequence[Tensor | None],
    *,
    d_gaps_wanted: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
    """Gradients of x, of both directions' gaps where wanted, and of the weights."""
    x = inputs.x
    # Only a following hold leaves a drive pending.
    ignored = config.hold != "following"
    d_last = [None if ignored and k % 3 == 2 else change for k, change in enumerate(d_last)]
    given = [change is not None for change in d_last]
    wanted = Wanted(tuple(tuple(given[k : k + 3]) for k in range(0, len(given), 3)), d_gaps_wanted, overwrite=False)
    dx, d_packed = torch.empty_like(x), torch.empty_like(inputs.packed)
    d_gaps = torch.empty_like(inputs.gaps) if d_gaps_wanted else None
    d_behind = torch.empty_like(inputs.gaps) if d_gaps_wanted and inputs.behind is not None else None
    changes = [x if change is None else change.resolve_conj().contiguous() for change in d_last]
    outputs = (dx, d_packed, dx if d_gaps is None else d_gaps, dx if d_behind is None else d_behind)
    plan = _plan_backward(config, shape, matrix_precision(), wanted)
    plan.run(*_filled(inputs), kept, gradient, *changes, *outputs)
    return dx, d_gaps, d_behind, d_packed


def _filled(inputs: BlockInputs) -> tuple[Tensor, ...]:
    return inputs.filled()[:-1]


def _room(config: BlockConfig, shape: BlockShape) -> int:
    """Elements from the input of a block to that of the next."""
    return aligned(shape.rows * config.layout.width)


def _kept_size(config: BlockConfig, shape: BlockShape) -> int:
    return shape.depth * kept_size(config.layout, shape) + (shape.depth - 1) * _room(config, shape)


class _Stack:
    """A run's first tensors, as every block sees them; what is kept for the backward pass is among them, or else a
    temporary."""

    def __init__(self, plan: LaunchPlan, config: BlockConfig, shape: BlockShape) -> None:
        self.plan, self.config, self.shape = plan, config, shape
        n, h = shape.rows, config.layout.width
        self.x, self.gaps, self.behind, self.valid = (plan.tensor(size) for size in (n * h, n, n, n))
        self.seed, self.packed, self.kept = plan.tensor(shape.depth), plan.tensor(0), plan.tensor(0)

    def input(self, k: int) -> Buffer:
        """Of block k, in a stack that keeps it."""
        if k == 0:
            return self.x
        small = self.shape.depth * kept_size(self.config.layout, self.shape)
        return self.kept.part(small + (k - 1) * _room(self.config, self.shape), self.x.size)

    def block(self, k: int, x: Buffer) -> WidePass:
        places = wide_layout(self.config.layout)
        packed = self.packed.part(k * places.stride, places.size)
        buffers = WideBuffers(x, self.gaps, self.behind, self.valid, self.seed.part(k, 1), packed)
        return WidePass(self.plan, self.config, self.shape, buffers, self._parts(k))

    def _parts(self, k: int) -> dict[str, Buffer]:
        sizes = kept_sizes(self.config.layout, self.shape)
        if not self.shape.keeps:
            return {name: self.plan.space(size) for name, size in sizes.items()}
        parts, offset = dict[str, Buffer](), k * kept_size(self.config.layout, self.shape)
        for name, size in sizes.items():
            parts[name] = self.kept.part(offset, size)
            offset += aligned(size)
        return parts


def _build_forward(
    config: BlockConfig, shape: BlockShape, precision: str, norm_eps: float, momentum: float
) -> LaunchPlan:
    """`precision` is what torch's products follow by themselves."""
    plan = LaunchPlan()
    stack = _Stack(plan, config, shape)
    running = [plan.tensor(config.layout.width) for _ in range(2 * shape.depth)]
    out = plan.tensor(stack.x.size)
    last = [plan.tensor(2 * shape.batch * config.layout.modes) for _ in range(3 * shape.depth)]
    x = stack.x
    for k in range(shape.depth):
        run = stack.block(k, x)
        target = out
        if k + 1 < shape.depth:
            target = stack.input(k + 1) if shape.keeps else plan.space(stack.x.size)
        normalise(run, (running[2 * k], running[2 * k + 1]), norm_eps, momentum)
        heads(run)
        wide_mixes.drive(run)
        Scans(run).forward(last[3 * k : 3 * k + 3])
        activated = wide_mixes.readout(run)
        tail(run, activated, target)
        plan.release(activated)
        if not shape.keeps:
            plan.release(*run.parts.values(), *([x] if k else []))
        x = target
    return plan


def _build_backward(config: BlockConfig, shape: BlockShape, precision: str, wanted: Wanted) -> LaunchPlan:
    plan = LaunchPlan()
    layout = config.layout
    stack = _Stack(plan, config, shape)
    size, places = stack.x.size, wide_layout(layout)
    gradient = plan.tensor(size)
    last = [plan.tensor(2 * shape.batch * layout.modes) for _ in range(3 * shape.depth)]
    dx, d_packed = plan.tensor(size), plan.tensor(0)
    d_gaps: list[Buffer | None] = [plan.tensor(shape.rows) for _ in range(2)]
    if not wanted.gaps:
        d_gaps = [None, None]
    # The gradient goes back and forth between two of them.
    turns = (dx, plan.space(size)) if shape.depth > 1 else (dx, dx)
    for k in reversed(range(shape.depth)):
        run = stack.block(k, stack.input(k))
        changes = [last[3 * k + j] if given else None for j, given in enumerate(wanted.last[k])]
        target, weights = turns[k % 2], d_packed.part(k * places.stride, places.size)
        _one_backward(run, gradient, target, weights, changes, d_gaps)
        gradient = target
    return plan


def _one_backward(
    run: WidePass,
    gradient: Buffer,
    dx: Buffer,
    d_packed: Buffer,
    changes: list[Buffer | None],
    d_gaps: list[Buffer | None],
) -> None:
    """One block's launches; `changes` are the gradients of its s, λ and pending drive."""
    plan, width = run.plan, run.layout.width
    shares, du, d_affine = Shares(run), run.room(width), plan.space(2 * width)
    d_activated = tail_backward(run, shares, gradient, d_packed)
    ds, readout_codes = wide_mixes.readout_backward(run, shares, d_activated, du, d_packed)
    plan.release(d_activated)
    d_decay, d_drive = Scans(run).backward(ds, changes, d_gaps, d_packed)
    drive_codes = wide_mixes.drive_backward(run, d_drive, du, d_packed)
    plan.release(d_drive)
    heads_backward(run, shares, d_decay, (drive_codes, readout_codes), du, d_packed)
    plan.release(d_decay, *drive_codes, *readout_codes)
    normalise_backward(run, shares, gradient, du, dx)
    shares.finish(d_packed, d_affine)
    if run.shape.norm == "batch":
        statistics_backward(run, d_affine, dx)
    plan.release(du, d_affine)


_plan_forward, _plan_backward = remembered(_build_forward), remembered(_build_backward)
