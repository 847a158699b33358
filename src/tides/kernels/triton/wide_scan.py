"""The scans of a wide block, one for each direction of time, and the state they leave behind."""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from tides.kernels.triton.adjoint_kernels import adjoint_kernel
from tides.kernels.triton.block_config import BlockConfig, padded
from tides.kernels.triton.block_pass import COUNTED
from tides.kernels.triton.direct import launch
from tides.kernels.triton.evolve import METHODS, Immediate, ScanPlan
from tides.kernels.triton.evolve_kernels import forward_kernel
from tides.kernels.triton.last_kernels import add_last_kernel, take_last_kernel


class Scans:
    """States from decay rates (n, p) and the planes of the drives (n, 2p), rows being batch times steps."""

    def __init__(
        self,
        config: BlockConfig,
        shape: tuple[int, int],
        mask: Tensor | None,
        gaps: tuple[Tensor, Tensor | None],
        weights: Any,
    ) -> None:
        self.config, self.mask = config, mask
        self.batch, self.steps = shape
        self.modes = config.layout.modes
        self.stage = Immediate(weights.step.device)
        # An error of a time scale turns every step of a mode the same way: rounded once, from float64.
        self.scale = torch.exp(weights.step.double()).float()
        self.scales = self.scale.expand(self.batch, -1).contiguous()
        self.frequencies = weights.frequency.expand(self.batch, -1).contiguous()
        self.gaps = [part.contiguous() for part in gaps if part is not None]
        self.plans = _plans(config, shape, len(self.gaps))

    def forward(self, decay: Tensor, drive: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The planes of all states (n, 2p), one direction beside the other; s, λ and pending drive of the last step."""
        states = []
        for plan, gaps in zip(self.plans, self.gaps, strict=True):
            states.append(torch.empty_like(drive))
            inputs = (decay, self.frequencies, gaps, self.scales, *[drive] * 4)
            plan.run(self.stage, forward_kernel, inputs, (states[-1],))
        last = [drive.new_empty(self.batch, self.modes, dtype=torch.complex64) for _ in range(3)]
        mask = drive if self.mask is None else self.mask
        reals = [torch.view_as_real(part) for part in last]
        launch(
            take_last_kernel, (self.batch,), states[0], decay, drive, self.frequencies, mask, *reals, self.steps,
            P=self.modes, PB=padded(self.modes), BL=COUNTED, HAS_VALID=self.mask is not None,
            FOLLOWING=self.config.hold == "following",
        )  # fmt: skip
        return states[0] if len(states) == 1 else torch.cat(states, dim=1), last

    def backward(
        self,
        gradient: Tensor,
        d_last: tuple[Tensor | None, ...],
        states: Tensor,
        decay: Tensor,
        drive: Tensor,
        *,
        with_gaps: bool,
    ) -> tuple[Tensor, Tensor, list[Tensor | None], tuple[Tensor, Tensor]]:
        """Gradients of decay, drive, both directions' gaps, and of frequencies and log steps."""
        d_s, d_lam, d_pending = d_last
        plans = self.plans
        parts = [part.contiguous() for part in gradient.chunk(len(plans), 1)]
        self._add_last(parts[0], d_s, 2 * self.modes)
        d_decay, d_drive = torch.empty_like(decay), torch.empty_like(drive)
        d_gaps: list[Tensor | None] = [None, None]
        of_clocks = []
        for k, (plan, s) in enumerate(zip(plans, states.chunk(len(plans), 1), strict=True)):
            clocks = [decay.new_empty(plan.rows, plan.chunks, plan.modes) for _ in range(2)]
            d_gap = decay.new_empty(plan.rows, plan.steps, plan.mode_blocks)
            inputs = (decay, self.frequencies, self.gaps[k], self.scales, *[drive] * 4)
            outputs = (parts[k], s.contiguous(), d_decay, clocks[0], d_gap, clocks[1], d_drive, d_drive)
            plan.run(self.stage, adjoint_kernel, inputs, outputs, ADD=k > 0)
            d_gaps[k] = d_gap.sum(2) if with_gaps else None
            of_clocks.append([clock.view(-1, self.modes).sum(0) for clock in clocks])
        self._add_last(d_decay, d_lam, self.modes, step=2)
        self._add_last(d_drive, d_pending if self.config.hold == "following" else None, 2 * self.modes)
        d_frequency, d_scale = (sum(shares[1:], start=shares[0]) for shares in zip(*of_clocks, strict=True))
        if d_lam is not None:
            d_frequency = d_frequency + torch.view_as_real(d_lam.resolve_conj())[..., 1].sum(0)
        return d_decay, d_drive, d_gaps, (d_frequency, d_scale.mul_(self.scale))

    def _add_last(self, target: Tensor, change: Tensor | None, width: int, step: int = 1) -> None:
        """Add to the last valid step of every sequence; `width` numbers of a step, every `step`-th one of `change`."""
        if change is None:
            return
        mask = target if self.mask is None else self.mask
        launch(
            add_last_kernel, (self.batch,), target, torch.view_as_real(change.resolve_conj()).contiguous(), mask,
            self.steps, 0, step, WIDTH=width, WB=padded(width), BL=COUNTED, HAS_VALID=self.mask is not None,
        )  # fmt: skip


@lru_cache(maxsize=128)
def _plans(config: BlockConfig, shape: tuple[int, int], directions: int) -> list[ScanPlan]:
    plans = []
    for reverse in (False, True)[:directions]:
        hold = "preceding" if reverse and config.reverse == "release" else config.hold
        method, steps = METHODS[config.discretisation], shape[1]
        plans.append(ScanPlan((*shape, config.layout.modes), method, hold, reverse, static_frequency=steps != 1))
    return plans
