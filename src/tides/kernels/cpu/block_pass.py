"""One model's block, forwards and backwards: tiles of steps, the scan over whole sequences, tiles of steps again."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tides.kernels.cpu.arrays import flat
from tides.kernels.cpu.block_config import BlockConfig
from tides.kernels.cpu.block_layout import Layout, carve, parts_of, places_of, sizes_of
from tides.kernels.cpu.block_sums import Sums, sum_lengths, weight_gradients
from tides.kernels.cpu.block_weights import Panels, pack, panel_lengths
from tides.kernels.cpu.enter_rows import TILE, enter_backward, enter_forward
from tides.kernels.cpu.intervals import taylor_coefficients
from tides.kernels.cpu.leave_rows import leave_backward, leave_forward
from tides.kernels.cpu.recurrence import run_backward, run_forward
from tides.kernels.cpu.state_rows import last_steps
from tides.kernels.cpu.threads import run_jobs, spans

_NUMBERS: dict[torch.dtype, Any] = {torch.float32: np.float32, torch.float64: np.float64}


def panel_size(layout: Layout, dtype: torch.dtype) -> int:
    """Numbers of a block's weights in panels."""
    return sum(panel_lengths(layout, sizes_of(layout, _NUMBERS[dtype])))


class BlockTape(NamedTuple):
    """What the backward pass needs, as rows of steps; `mixed` is the out-mix before its norm, `panels` the weights."""

    decay: Tensor
    drive: Tensor
    states: Tensor
    mixed: Tensor
    panels: Tensor


class BlockGradients(NamedTuple):
    """Of the input, of scale and shift (as Σ du u and Σ du) and of both gaps.

    `sums` are valid until the next block's.
    """

    x: Tensor
    panels: Panels
    sums: Sums
    gaps: Tensor
    behind: Tensor | None


class BlockPass:
    """What the blocks of a stack share: sizes, flags, the clock and which steps are valid."""

    def __init__(
        self, config: BlockConfig, x: Tensor, gaps: Tensor, behind: Tensor | None, valid: Tensor | None
    ) -> None:
        self.config, self.gaps, self.behind, self.mask = config, gaps, behind, valid
        self.layout, self.settings, self.dtype = config.layout, config.settings, x.dtype
        self.batch, self.length, self.width = x.shape
        self.rows = self.batch * self.length
        self.valid = np.empty(0, dtype=bool) if valid is None else flat(valid)
        real = _NUMBERS[x.dtype]
        self.places, self.sizes = places_of(self.layout), sizes_of(self.layout, real)
        self._panel_lengths, self._sum_lengths = (
            lengths(self.layout, self.sizes) for lengths in (panel_lengths, sum_lengths)
        )
        self._sequences = np.array([(row, 0, self.length, row) for row in range(self.batch)], dtype=np.int64)
        self._nothing = np.empty((0, 0), dtype=real)
        self._taylor = taylor_coefficients(real)
        self._space: dict[str, Tensor] = {}
        self._sums: list[tuple[Tensor, Sums]] = []

    def pack(self, weights: Tensor) -> tuple[Tensor, Panels]:
        """The weights in panels; scale and shift are left to be filled in."""
        buffer, panels = carve(Panels, self._panel_lengths, self.dtype, zero=True)
        pack(weights.numpy(), self.layout, self.places, self.sizes, self.settings.factor, panels)
        return buffer, panels

    def panels(self, buffer: Tensor) -> Panels:
        """What `pack` has made, again."""
        found: Panels = parts_of(Panels, self._panel_lengths, buffer)
        return found

    def _borrow(self, name: str, like: Tensor) -> Tensor:
        """Memory that the backward passes of all blocks share: fresh pieces for each would leave holes."""
        if name not in self._space:
            self._space[name] = torch.empty_like(like)
        return self._space[name]

    def release(self) -> None:
        """Forget the memory of the backward passes."""
        self._space.clear()
        self._sums.clear()

    def _kept(self, kept: Tensor | None) -> Any:
        return np.empty((0, 0), dtype=bool) if kept is None else kept.numpy()

    def _spread(self, work: Callable[[int, int], None]) -> None:
        """`work(begin, end)` for the steps of every thread."""
        run_jobs(lambda part: work(*part), self._parts())

    def _parts(self) -> list[tuple[int, int]]:
        """The steps of every thread; where tiles begin depends on nothing."""
        tiles = -(-self.rows // TILE)
        return [(a * TILE, min(b * TILE, self.rows)) for a, b in spans(tiles, torch.get_num_threads())]

    def _fresh_sums(self, parts: list[tuple[int, int]]) -> list[tuple[Tensor, Sums]]:
        """Zeros for every thread, in memory that all blocks share."""
        while len(self._sums) < len(parts):
            self._sums.append(carve(Sums, self._sum_lengths, self.dtype, zero=False))
        found = self._sums[: len(parts)]
        for buffer, _ in found:
            buffer.zero_()
        return found

    def _scan(self, work: Callable[[slice], None]) -> None:
        run_jobs(lambda span: work(slice(*span)), spans(self.batch, torch.get_num_threads()))

    def _series(self, x: Tensor) -> Any:
        """One flat row per series."""
        return x.numpy().reshape(self.batch, -1)

    def _directions(self) -> list[tuple[Any, bool, bool]]:
        """Gaps, hold and direction of every scan."""
        found = [(self._series(self.gaps), self.settings.following, False)]
        if self.behind is not None:
            found.append((self._series(self.behind), self.settings.behind_following, True))
        return found

    def forward(
        self, panels: Panels, buffer: Tensor, x: Tensor, kept: Tensor | None, out: Tensor, last: Any
    ) -> BlockTape:
        """Fill `out`, and `last` with states after the last step, with panels that are parts of a buffer."""
        sizes, settings, rows = self.sizes, self.settings, self.rows
        decay, drive = x.new_empty(rows, sizes.modes), x.new_empty(rows, sizes.planes)
        states, mixed = x.new_empty(sizes.directions, rows, sizes.planes), x.new_empty(rows, self.width)
        inputs, outputs, every, rates, drives, mixes = (flat(each) for each in (x, out, states, decay, drive, mixed))
        masks = self._kept(kept)
        self._spread(
            lambda begin, end: enter_forward(
                inputs, self.valid, panels, sizes, settings, begin, end, rates, drives
            )
        )  # fmt: skip
        rates, drives = rates.reshape(self.batch, -1), drives.reshape(self.batch, -1)
        found = every.reshape(sizes.directions, self.batch, -1)
        frequency, clock = panels.frequency[None, : sizes.modes], panels.clock[None, : sizes.modes]
        for k, (gaps, following, reverse) in enumerate(self._directions()):
            target = found[k]
            self._scan(
                lambda part: run_forward(
                    rates, frequency, gaps, clock, drives, self._nothing, self._sequences[part], False,  # noqa: B023
                    settings.method, following, reverse, target,  # noqa: B023
                )
            )  # fmt: skip
        self._spread(
            lambda begin, end: leave_forward(
                inputs, every, rows, self.valid, masks, panels, sizes, settings, begin, end, mixes, outputs
            )
        )
        last_steps(rates, drives, found[0], frequency[0], self.valid, settings.following, last)
        return BlockTape(decay, drive, states, mixed, buffer)

    @property
    def last_shape(self) -> tuple[int, ...]:
        """Of s, λ and the drive that is still pending after the last valid step: pairs of numbers, (b, p) of each."""
        return 3, self.batch, self.sizes.modes, 2

    def _add_last(self, buffer: Tensor, addition: Tensor | None) -> None:
        """Add (b, k) to the last valid step of every series."""
        if addition is None:
            return
        steps, addition = buffer.view(self.batch, self.length, -1), addition.reshape(self.batch, -1)
        if self.mask is None:
            steps[:, -1] += addition
            return
        count = self.mask.sum(-1)
        rows = torch.arange(self.batch)[count > 0]
        steps[rows, count[rows] - 1] += addition[rows]

    def backward(
        self,
        weights: Tensor,
        tape: BlockTape,
        x: Tensor,
        kept: Tensor | None,
        gradient: Tensor,
        d_last: tuple[Tensor | None, Tensor | None, Tensor | None],
        d_weights: Tensor,
    ) -> BlockGradients:
        """From the gradients of the output and of the last states; that of the weights goes into `d_weights`."""
        sizes, settings, rows = self.sizes, self.settings, self.rows
        panels = self.panels(tape.panels)
        d_s, d_lam, d_pending = d_last
        # The gradient that comes in may be what the block behind has returned.
        name = "first" if self._space.get("second") is gradient else "second"
        dx, ds = self._borrow(name, x), self._borrow("states", tape.states)
        inputs, g, states, d_states, dxs, mixed = (
            flat(each) for each in (x, gradient, tape.states, ds, dx, tape.mixed)
        )
        masks = self._kept(kept)

        parts = self._parts()
        sums = self._fresh_sums(parts)

        def leave(part: int) -> None:
            # What flows into u waits in the memory of dx.
            leave_backward(
                inputs, states, rows, self.valid, masks, panels, sizes, settings, *parts[part], mixed, g,
                sums[part][1], d_states, dxs,
            )  # fmt: skip

        run_jobs(leave, range(len(parts)))
        self._add_last(ds[0], None if d_s is None else torch.view_as_real(d_s))
        d_decay, d_drive, d_frequency, d_clock, d_gaps, d_behind = self._scan_backward(tape, ds, panels)
        if d_lam is not None:
            self._add_last(d_decay, d_lam.real)
            turning = d_lam.imag if self.mask is None else d_lam.imag.masked_fill(~self.mask.any(-1, keepdim=True), 0)
            d_frequency += turning.double().sum(0).numpy()
        if d_pending is not None and settings.following:
            self._add_last(d_drive, torch.view_as_real(d_pending))
        rates, drives = flat(d_decay), flat(d_drive)

        def enter(part: int) -> None:
            enter_backward(
                inputs, self.valid, panels, sizes, settings, *parts[part], rates, drives, dxs, g, sums[part][1], dxs
            )

        run_jobs(enter, range(len(parts)))
        (buffer, total), *others = sums
        for other, _ in others:
            buffer += other
        weight_gradients(
            weights.numpy(), self.layout, self.places, sizes, settings.factor, total, d_frequency, d_clock,
            panels.clock, d_weights.numpy(),
        )  # fmt: skip
        return BlockGradients(dx, panels, total, d_gaps, d_behind)

    def _scan_backward(self, tape: BlockTape, ds: Tensor, panels: Panels) -> tuple[Any, ...]:
        """Gradients of decay, drive, frequencies and time scales (p), and of both gaps."""
        sizes, settings = self.sizes, self.settings
        rates, drives = self._series(tape.decay), self._series(tape.drive)
        frequency, clock = panels.frequency[None, : sizes.modes], panels.clock[None, : sizes.modes]
        empty = np.empty((self.batch, 0), dtype=rates.dtype)
        found: list[tuple[Tensor, Tensor, Tensor, Any]] = []
        for k, (gaps, following, reverse) in enumerate(self._directions()):
            d_decay, d_drive = self._borrow(f"decay {k}", tape.decay), self._borrow(f"drive {k}", tape.drive)
            d_gaps = torch.empty_like(self.gaps)
            # One sum per series, added up afterwards: the same result on any number of threads.
            sums = np.empty((2, self.batch, sizes.modes))
            source, s, *outputs = (
                self._series(each) for each in (ds[k], tape.states[k], d_decay, d_gaps, d_drive)
            )  # fmt: skip

            def work(part: slice, gaps: Any = gaps, following: bool = following, reverse: bool = reverse,
                     source: Any = source, s: Any = s, outputs: Any = outputs, sums: Any = sums) -> None:  # fmt: skip
                run_backward(
                    source, s, rates, frequency, gaps, clock, drives, self._nothing, self._sequences[part], False,
                    settings.method, following, reverse, self._taylor, outputs[0], empty, outputs[1], sums[0, part],
                    sums[1, part], outputs[2], self._nothing,
                )  # fmt: skip

            self._scan(work)
            found.append((d_decay, d_drive, d_gaps, sums.sum(1)))
        d_decay, d_drive, d_gaps, totals = found[0]
        d_behind = None
        if len(found) > 1:
            d_decay += found[1][0]
            d_drive += found[1][1]
            d_behind, totals = found[1][2], totals + found[1][3]
        return d_decay, d_drive, *totals, d_gaps, d_behind
