"""The launches of one block or of a stack of equal ones, planned once for every configuration and shape."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from tides.kernels.statistics import RunningNorm
from tides.kernels.triton.block_config import BlockConfig, BlockShape, Part, kept_size, room_size
from tides.kernels.triton.block_gradients import BlockGradients
from tides.kernels.triton.block_pass import BlockBuffers, BlockPass
from tides.kernels.triton.buffers import Buffer, aligned
from tides.kernels.triton.launch import COMPILED, LaunchPlan
from tides.kernels.triton.precision import matrix_precision


class BlockInputs(NamedTuple):
    """The tensors of a call, contiguous; x is (…, l, h). Gaps behind are those of the backward direction."""

    x: Tensor
    gaps: Tensor
    behind: Tensor | None
    valid: Tensor | None
    seed: Tensor | None
    packed: Tensor
    affine: Tensor | None

    def filled(self) -> tuple[Tensor, ...]:
        """Pointers that a kernel's flags make it ignore still have to point somewhere."""
        x = self.x
        return tuple([x if tensor is None else tensor for tensor in self])


class Kept(NamedTuple):
    """What a backward pass needs besides the inputs."""

    parts: Tensor
    between: Tensor
    """The blocks' inputs but for the first one's."""


class Wanted(NamedTuple):
    """Which gradients come in besides the output's, block by block, and whether that of the gaps goes out."""

    last: tuple[tuple[bool, ...], ...]
    gaps: bool
    overwrite: bool
    """Whether the gradient that comes in is nobody else's."""
    fresh: bool = False
    """Whether what the blocks share is still as the forward pass left it."""


def run_forward(
    config: BlockConfig, shape: BlockShape, inputs: BlockInputs, norms: Sequence[RunningNorm]
) -> tuple[Tensor, list[Tensor], Kept]:
    """The output, then s, λ and pending drive (…, p) of every block's last valid step, and what is kept."""
    x, layout = inputs.x, config.layout
    lead = x.shape[:-2]
    out = torch.empty_like(x)
    last = last_states(3 * shape.depth, (*lead, layout.modes), x.device, apart=shape.norm == "given")
    kept = x.new_empty(*lead[:-1], shape.depth * kept_size(layout, shape) + room_size(layout, shape))
    rooms = min(1, shape.depth - 1) if shape.forgets else shape.depth - 1
    between = x.new_empty(rooms * _room(config, shape)) if rooms else x
    numbers = (norms[0].eps, norms[0].momentum) if norms else (0.0, 0.0)
    plan = _plan_forward(config, shape, matrix_precision(), *numbers)
    running = [part for norm in norms for part in (norm.mean, norm.var)] or (x, x)
    plan.run(*inputs.filled(), kept, between, *running, out, *last)
    return out, last, Kept(kept, between)


def run_backward(
    config: BlockConfig,
    shape: BlockShape,
    inputs: BlockInputs,
    kept: Kept,
    gradient: Tensor,
    d_last: Sequence[Tensor | None],
    *,
    d_gaps_wanted: bool,
    overwrite: bool = False,
    fresh: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor]:
    """Gradients of x, of the norm's scale and shift, of both directions' gaps where wanted, and of the weights.

    Scale and shift are those of a single block; gaps have no gradient through several. `overwrite` lends the memory of
    `gradient`, which is what several blocks need besides that of dx. `fresh`: no backward pass was here before.
    """
    x = inputs.x
    # Only a following hold leaves a drive pending.
    ignored = config.hold != "following"
    d_last = [None if ignored and k % 3 == 2 else change for k, change in enumerate(d_last)]
    given = tuple([change is not None for change in d_last])
    wanted = Wanted(tuple([given[k : k + 3] for k in range(0, len(given), 3)]), d_gaps_wanted, overwrite, fresh)
    dx, d_packed = torch.empty_like(x), torch.empty_like(inputs.packed)
    d_affine = x.new_empty(*x.shape[:-3], 2, x.shape[-1]) if shape.norm == "given" else dx
    d_gaps = torch.empty_like(inputs.gaps) if d_gaps_wanted else None
    d_behind = torch.empty_like(inputs.gaps) if d_gaps_wanted and inputs.behind is not None else None
    changes = [x if change is None else change.resolve_conj().contiguous() for change in d_last]
    outputs = (dx, d_packed, d_affine, dx if d_gaps is None else d_gaps, dx if d_behind is None else d_behind)
    plan = _plan_backward(config, shape, matrix_precision(), wanted)
    plan.run(*inputs.filled(), *kept, gradient, *changes, *outputs)
    return gradient if overwrite and shape.depth % 2 == 0 else dx, d_affine, d_gaps, d_behind, d_packed


def last_states(count: int, shape: tuple[int, ...], device: torch.device, *, apart: bool) -> list[Tensor]:
    """So many complex tensors; those of an operator have to lie `apart`, others in one piece of memory if all of them
    begin at a multiple of 16 bytes there."""
    if apart or math.prod(shape) % 2:
        return [torch.empty(shape, dtype=torch.complex64, device=device) for _ in range(count)]
    with torch._C._AutoDispatchBelowADInplaceOrView():
        parts: tuple[Tensor, ...] = torch.empty((count, *shape), dtype=torch.complex64, device=device).unbind()
    return list(parts)


def _room(config: BlockConfig, shape: BlockShape) -> int:
    """Elements from the input of a block to that of the next."""
    return aligned(shape.rows * config.layout.width)


def _declare(plan: LaunchPlan, config: BlockConfig, shape: BlockShape) -> list[BlockBuffers]:
    """A run's first tensors, as every block of the stack sees them."""
    layout, models, depth = config.layout, shape.models, shape.depth
    rows = models * shape.rows
    x, gaps, behind, valid = (plan.tensor(size) for size in (rows * layout.width, rows, rows, rows))
    seed, packed, affine = (plan.tensor(size) for size in (depth * models, 0, models * 2 * layout.width))
    kept, between = plan.tensor(0), plan.tensor(0)
    weights, room, small = models * layout.size, _room(config, shape), models * kept_size(layout, shape)
    shared = kept.part(depth * small, room_size(layout, shape))
    return [
        BlockBuffers(
            between.part((k - 1) * room, x.size) if k else x, gaps, behind, valid, seed.part(k * models, models),
            packed.part(k * layout.stride, weights), affine, kept.part(k * small, small), shared,
        )
        for k in range(depth)
    ]  # fmt: skip


def _build_forward(
    config: BlockConfig, shape: BlockShape, precision: str, norm_eps: float, momentum: float
) -> LaunchPlan:
    plan = LaunchPlan()
    stack = _declare(plan, config, shape)
    running = [plan.tensor(config.layout.width) for _ in range(2 * shape.depth)]
    out = plan.tensor(stack[0].x.size)
    last = [plan.tensor(2 * shape.sequences * config.layout.modes) for _ in range(3 * shape.depth)]
    x = stack[0].x
    for k, buffers in enumerate(stack):
        run = BlockPass(plan, config, shape, precision, buffers._replace(x=x))
        x = out if k + 1 == shape.depth else stack[k + 1].x
        if shape.forgets:
            # In turn the output and the one room between blocks, so that the last one's is the output.
            x = stack[1].x if (shape.depth - k) % 2 == 0 else out
        if shape.norm != "given":
            run.run_norm(running[2 * k], running[2 * k + 1], norm_eps, momentum)
        run.run_pack()
        decay, drive = run.run_enter(shape.whole)
        states = run.run_scans(shape.whole, decay, drive)
        run.run_leave(states, x)
        run.run_last(states, decay, drive, tuple(last[3 * k : 3 * k + 3]))
        if not run.stays:
            plan.release(decay, drive, *states)
    return plan


def _build_backward(config: BlockConfig, shape: BlockShape, precision: str, wanted: Wanted) -> LaunchPlan:
    plan = LaunchPlan()
    layout = config.layout
    stack = _declare(plan, config, shape)
    gradient = plan.tensor(stack[0].x.size)
    last = [plan.tensor(2 * shape.sequences * layout.modes) for _ in range(3 * shape.depth)]
    dx, d_packed = plan.tensor(stack[0].x.size), plan.tensor(0)
    d_affine = plan.tensor(shape.models * 2 * layout.width)
    d_gaps: list[Buffer] | None = [plan.tensor(stack[0].gaps.size) for _ in range(2)]
    if shape.norm != "given":
        d_affine = plan.space(2 * layout.width)
    if not wanted.gaps:
        d_gaps = None
    # The gradient goes back and forth between two tensors: dx and the one that comes in, or another if that must stay.
    turns = (dx, gradient) if wanted.overwrite or shape.depth == 1 else (dx, plan.space(dx.size))
    for k in reversed(range(shape.depth)):
        ready = shape.keeps or (shape.shares and wanted.fresh and k + 1 == shape.depth)
        run = BlockPass(plan, config, shape, precision, stack[k], ready=ready)
        changes = [last[3 * k + j] if given else None for j, given in enumerate(wanted.last[k])]
        target = turns[(shape.depth - 1 - k if wanted.overwrite else k) % 2]
        weights = d_packed.part(k * layout.stride, stack[k].packed.size)
        gradients = BlockGradients(run, gradient, target, weights)
        for part in shape.parts:
            _part_backward(gradients, part, changes, d_affine, d_gaps)
        if shape.norm == "batch":
            gradients.norm(d_affine)
        gradient = target
    return plan


def _part_backward(
    gradients: BlockGradients, part: Part, changes: list[Buffer | None], d_affine: Buffer, d_gaps: list[Buffer] | None
) -> None:
    """One part's launches; `changes` are the gradients of the block's s, λ and pending drive."""
    run, plan, modes = gradients.run, gradients.plan, gradients.layout.modes
    d_s, d_lam, d_pending = changes
    decay, drive = run.run_enter(part, again=True)
    states = run.run_scans(part, decay, drive, again=True)
    d_states = gradients.leave(part, states)
    gradients.add_last(part, d_states[0], d_s, 2 * modes)
    d_decay, d_drive = gradients.scans(part, states, d_states, decay, drive, d_gaps, d_lam)
    if not run.stays:
        plan.release(decay, drive, *states)
    gradients.add_last(part, d_decay, d_lam, modes, step=2)
    gradients.add_last(part, d_drive, d_pending, 2 * modes)
    gradients.enter(part, d_decay, d_drive, d_affine)
    plan.release(d_decay, d_drive)


def remembered(build: Callable[..., LaunchPlan]) -> Callable[..., LaunchPlan]:
    """Plans are made again for every call of interpreted kernels, which have no compiled ones to gain from."""
    return lru_cache(maxsize=128)(build) if COMPILED else build


_plan_forward, _plan_backward = remembered(_build_forward), remembered(_build_backward)
