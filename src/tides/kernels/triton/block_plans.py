"""The launches of a block's operator, planned once for every configuration and shape."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from tides.kernels.statistics import RunningNorm
from tides.kernels.triton.block_config import BlockConfig, BlockShape, kept_size
from tides.kernels.triton.block_gradients import BlockGradients
from tides.kernels.triton.block_pass import BlockPass
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


class Wanted(NamedTuple):
    """Which gradients come in besides the output's, and whether that of the gaps goes out."""

    s: bool
    lam: bool
    pending: bool
    gaps: bool


def run_forward(
    config: BlockConfig, shape: BlockShape, inputs: BlockInputs, norm: RunningNorm | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The output, then s, λ and pending drive (…, p) of the last valid step, and what the backward pass needs."""
    x, layout = inputs.x, config.layout
    lead = x.shape[:-2]
    out = torch.empty_like(x)
    s, lam, pending = (torch.empty(*lead, layout.modes, dtype=torch.complex64, device=x.device) for _ in range(3))
    kept = x.new_empty(*lead[:-1], kept_size(layout, shape))
    numbers = (0.0, 0.0) if norm is None else (norm.eps, norm.momentum)
    plan = _plan_forward(config, shape, matrix_precision(), *numbers)
    running = (x, x) if norm is None else (norm.mean, norm.var)
    plan.run(*inputs.filled(), kept, *running, out, s, lam, pending)
    return out, s, lam, pending, kept


def run_backward(
    config: BlockConfig,
    shape: BlockShape,
    inputs: BlockInputs,
    kept: Tensor,
    gradient: Tensor,
    d_last: Sequence[Tensor | None],
    *,
    d_gaps_wanted: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor]:
    """Gradients of x, of the norm's scale and shift, of both directions' gaps where wanted, and of the weights."""
    x = inputs.x
    d_s, d_lam, d_pending = d_last
    # Only a following hold leaves a drive pending.
    d_pending = d_pending if config.hold == "following" else None
    wanted = Wanted(d_s is not None, d_lam is not None, d_pending is not None, d_gaps_wanted)
    dx, d_packed = torch.empty_like(x), torch.empty_like(inputs.packed)
    d_affine = x.new_empty(*x.shape[:-3], 2, x.shape[-1])
    d_gaps = torch.empty_like(inputs.gaps) if d_gaps_wanted else None
    d_behind = torch.empty_like(inputs.gaps) if d_gaps_wanted and inputs.behind is not None else None
    changes = (x if change is None else change.resolve_conj().contiguous() for change in (d_s, d_lam, d_pending))
    outputs = (dx, d_packed, d_affine, dx if d_gaps is None else d_gaps, dx if d_behind is None else d_behind)
    plan = _plan_backward(config, shape, matrix_precision(), wanted)
    plan.run(*inputs.filled(), kept, gradient, *changes, *outputs)
    return dx, d_affine, d_gaps, d_behind, d_packed


def _build_forward(
    config: BlockConfig, shape: BlockShape, precision: str, norm_eps: float, momentum: float
) -> LaunchPlan:
    plan = LaunchPlan()
    run = BlockPass(plan, config, shape, precision)
    running = (plan.tensor(config.layout.width), plan.tensor(config.layout.width))
    out = plan.tensor(run.x.size)
    last = tuple(plan.tensor(2 * shape.sequences * config.layout.modes) for _ in range(3))
    if shape.norm != "given":
        run.run_norm(*running, norm_eps, momentum)
    run.run_pack()
    decay, drive = run.run_enter()
    states = run.run_scans(decay, drive)
    run.run_leave(states, out)
    run.run_last(states, decay, drive, last)
    return plan


def _build_backward(config: BlockConfig, shape: BlockShape, precision: str, wanted: Wanted) -> LaunchPlan:
    plan = LaunchPlan()
    layout = config.layout
    run = BlockPass(plan, config, shape, precision)
    gradient = plan.tensor(run.x.size)
    d_last = [plan.tensor(2 * shape.sequences * layout.modes) for _ in range(3)]
    d_s, d_lam, d_pending = (change if given else None for change, given in zip(d_last, wanted[:3], strict=True))
    dx, d_packed = plan.tensor(run.x.size), plan.tensor(run.packed.size)
    d_affine = plan.tensor(shape.models * 2 * layout.width)
    d_gaps = [plan.tensor(run.gaps.size) for _ in range(2)]
    if not wanted.gaps:
        d_gaps = [plan.space(run.gaps.size)] * 2
    gradients = BlockGradients(run, gradient, dx, d_packed)
    decay, drive = run.run_enter(again=True)
    states = run.run_scans(decay, drive, again=True)
    d_states = gradients.leave(states)
    gradients.add_last(d_states[0], d_s, 2 * layout.modes)
    d_decay, d_drive = gradients.scans(states, d_states, decay, drive, d_gaps, d_lam)
    plan.release(*(buffer for buffer in (decay, drive, *states) if not shape.keeps), *d_states)
    gradients.add_last(d_decay, d_lam, layout.modes, step=2)
    gradients.add_last(d_drive, d_pending, 2 * layout.modes)
    gradients.enter(d_decay, d_drive, d_affine)
    if shape.norm == "batch":
        gradients.norm(d_affine)
    return plan


def _remembered(build: Callable[..., LaunchPlan]) -> Callable[..., LaunchPlan]:
    """Plans are made again for every call of interpreted kernels, which have no compiled ones to gain from."""
    return lru_cache(maxsize=128)(build) if COMPILED else build


_plan_forward, _plan_backward = _remembered(_build_forward), _remembered(_build_backward)
