"""The scans of a wide block, one for each direction of time, and the state they leave behind."""

import torch
from torch import Tensor

from tides.kernels.triton.adjoint_kernels import adjoint_kernel
from tides.kernels.triton.block_config import padded
from tides.kernels.triton.block_pass import COUNTED
from tides.kernels.triton.buffers import Buffer, View
from tides.kernels.triton.evolve import METHODS, ScanPlan
from tides.kernels.triton.evolve_kernels import forward_kernel
from tides.kernels.triton.last_kernels import add_last_kernel, take_last_kernel
from tides.kernels.triton.sum_kernels import clock_sums_kernel
from tides.kernels.triton.wide_layout import wide_layout
from tides.kernels.triton.wide_pass import WidePass
from tides.kernels.triton.wide_weight_kernels import clocks_kernel

# Rows and modes of a tile of the clocks' sums.
_CLOCK_TILE = (2048, 1)


class Scans:
    """States from decay rates (n, p) and the planes of the drives (n, 2p), rows being batch times steps."""

    def __init__(self, run: WidePass) -> None:
        self.run, self.plan, self.modes, self.shape = run, run.plan, run.layout.modes, run.shape
        self.directions = run.layout.directions

    def _scans(self) -> list[tuple[ScanPlan, tuple[Buffer, ...]]]:
        """The scan of every direction with its inputs."""
        run, config = self.run, self.run.config
        decay, drive = run.parts["decay"], run.parts["drive"]
        found = []
        for reverse in (False, True)[: self.directions]:
            hold = "preceding" if reverse and config.reverse == "release" else config.hold
            sizes, method = (self.shape.batch, self.shape.steps, self.modes), METHODS[config.discretisation]
            scan = ScanPlan(
                sizes, method, hold, reverse, static_frequency=self.shape.steps != 1, decays=run.config.decays
            )
            gaps = run.behind if reverse else run.gaps
            # No beginnings inside, no states before: those pointers are ignored.
            found.append((scan, (decay, run.parts["frequency"], gaps, run.parts["scale"], *[drive] * 4)))
        return found

    def _planes(self, joined: Buffer, direction: int) -> View:
        """Those of one direction in the planes of both, (n, 4p)."""
        return View.dense(joined, self.run.rows, 2 * self.modes * self.directions).columns(
            2 * self.modes * direction, 2 * self.modes
        )

    def _move(self, joined: Buffer, single: list[Buffer], *, join: bool) -> None:
        for direction, buffer in enumerate(single):
            one, other = View.dense(buffer, self.run.rows, 2 * self.modes), self._planes(joined, direction)
            self.plan.call(Tensor.copy_, *((other, one) if join else (one, other)))

    def forward(self, last: list[Buffer]) -> None:
        """The planes of all states (n, 2p), one direction beside the other; s, λ and pending drive of the last step."""
        run, plan, states = self.run, self.plan, self.run.parts["states"]
        frequency, scale = run.parts["frequency"], run.parts["scale"]
        batch, tile = (self.shape.batch,), padded(self.modes)
        plan.launch(clocks_kernel, batch, run.weight("frequency"), frequency, scale, self.modes, PB=tile)
        single = [run.room(2 * self.modes) for _ in range(2)] if self.directions == 2 else [states]
        for (scan, inputs), out in zip(self._scans(), single, strict=True):
            scan.run(plan, forward_kernel, inputs, (out,))
        plan.launch(
            take_last_kernel, batch, single[0], run.parts["decay"], run.parts["drive"], frequency, run.valid, *last,
            self.shape.steps, P=self.modes, PB=tile, BL=COUNTED, **run.has_valid,
            FOLLOWING=run.config.hold == "following",
        )  # fmt: skip
        if self.directions == 2:
            self._move(states, single, join=True)
            plan.release(*single)

    def backward(
        self, ds: Buffer, changes: list[Buffer | None], d_gaps: list[Buffer | None], d_packed: Buffer
    ) -> tuple[Buffer, Buffer]:
        """Gradients of decay and drive; those of the gaps where they are wanted, and of the clocks.

        `changes` are the gradients of the last step's s, λ and pending drive; `ds` is released.
        """
        run, plan, modes = self.run, self.plan, self.modes
        d_s, d_lam, d_pending = changes
        states, d_states = [run.parts["states"]], [ds]
        if self.directions == 2:
            states, d_states = ([run.room(2 * modes) for _ in range(2)] for _ in range(2))
            self._move(run.parts["states"], states, join=False)
            self._move(ds, d_states, join=False)
        self._add_last(d_states[0], d_s, 2 * modes)
        d_decay, d_drive, clocks, rows = run.room(modes), run.room(2 * modes), list[Buffer](), 0
        for k, (scan, inputs) in enumerate(self._scans()):
            rows = self.shape.batch * scan.chunks
            clocks += [plan.space(rows, modes) for _ in range(2)]
            wanted, alone = d_gaps[k], scan.mode_blocks == 1
            d_gap = wanted or d_decay
            if wanted is not None and not alone:
                d_gap = plan.space(run.rows, scan.mode_blocks)
            outputs = (d_states[k], states[k], d_decay, clocks[-2], d_gap, clocks[-1], d_drive, d_drive)
            scan.run(plan, adjoint_kernel, inputs, outputs, ADD=k > 0, GAPS=wanted is not None)
            if wanted is not None and not alone:
                shares = View.dense(d_gap, run.rows, scan.mode_blocks)
                plan.call(torch.sum, shares, 1, out=View.dense(wanted, run.rows))
                plan.release(d_gap)
        tall, wide = _CLOCK_TILE
        plan.launch(
            clock_sums_kernel, (-(-modes // wide), 1), *clocks[:2], *clocks[-2:], d_decay if d_lam is None else d_lam,
            run.packed, d_packed, rows, self.shape.batch, 0, wide_layout(run.layout).starts["frequency"], modes,
            BR=tall, BP=wide, BOTH=self.directions == 2, HAS_LAM=d_lam is not None,
        )  # fmt: skip
        plan.release(*clocks, ds, *([*states, *d_states] if self.directions == 2 else []))
        self._add_last(d_decay, d_lam, modes, step=2)
        self._add_last(d_drive, d_pending, 2 * modes)
        return d_decay, d_drive

    def _add_last(self, target: Buffer, change: Buffer | None, width: int, step: int = 1) -> None:
        """Add to the last valid step of every sequence; `width` numbers of a step, every `step`-th one of `change`."""
        if change is not None:
            self.plan.launch(
                add_last_kernel, (self.shape.batch,), target, change, self.run.valid, self.shape.steps, 0, step,
                WIDTH=width, WB=padded(width), BL=COUNTED, **self.run.has_valid,
            )  # fmt: skip
