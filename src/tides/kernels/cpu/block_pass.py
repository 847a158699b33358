"""One model's block, forwards and backwards: blocks of steps, the scan over whole sequences, blocks of steps again."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tides.kernels.cpu.block_enter import Enter, EnterWeights
from tides.kernels.cpu.block_leave import Leave, LeaveWeights
from tides.kernels.cpu.evolve import evolve_backward, evolve_forward
from tides.kernels.cpu.mix_tile import Columns, block_steps, run_blocks
from tides.kernels.cpu.planes import Shelf
from tides.kernels.cpu.rates import REPARAMS
from tides.kernels.mixing import d_drive_kernel, d_readout_kernel, drive_kernel, readout_kernel, unweighted

_shelf = Shelf()


class BlockInputs(NamedTuple):
    """Tensors of one model with its axis of length one in front; names as in `block.block_op`."""

    x: Tensor
    affine: Tensor
    gaps: Tensor
    behind: Tensor | None
    valid: Tensor | None
    kept: Tensor | None
    enter: Tensor
    drive_factors: Tensor
    drive_norm: Tensor | None
    rate_norm: Tensor | None
    frequency: Tensor
    scale: Tensor
    leave: Tensor
    readout_factors: Tensor
    readout_norm: Tensor | None
    skip: Tensor
    inner: Tensor
    outer: Tensor


class BlockTape(NamedTuple):
    """What the backward pass needs: rows, and the out-mix before its norm as (h, n) for every block."""

    decay: Tensor
    drive: Tensor
    states: Tensor
    mixed: Tensor


class BlockPass:
    """Matrices, flags and sizes of one call."""

    def __init__(self, inputs: BlockInputs, methods: str, numbers: list[float]) -> None:
        inputs = BlockInputs(*(None if x is None else x.detach().contiguous() for x in inputs))  # type: ignore[arg-type]
        self.inputs = inputs
        _, self.batch, self.length, self.width = inputs.x.shape
        self.rows, self.modes = self.batch * self.length, inputs.frequency.shape[-1]
        self.directions = 1 if inputs.behind is None else 2
        reparam, self.discretisation, self.hold, self.reverse = methods.split()
        eps, limit, self.factor, dropout = numbers
        mixes = ((inputs.drive_factors, inputs.drive_norm), (inputs.readout_factors, inputs.readout_norm))
        kernels = drive_kernel(*mixes[0]), readout_kernel(*mixes[1])
        self.columns = [None if norm is None else Columns(factors) for factors, norm in mixes]
        forms = [None if each is None else each.forms[0] for each in self.columns]
        scale, shift = inputs.affine[0].numpy()
        size = inputs.drive_factors.shape[-1]
        rate_norm = torch.ones_like(inputs.frequency) if inputs.rate_norm is None else inputs.rate_norm
        self.enter_weights = EnterWeights(
            scale, shift, inputs.enter[0], kernels[0][0], size, forms[0], rate_norm[0].numpy(),
            inputs.rate_norm is not None, REPARAMS[reparam], limit, eps,
        )  # fmt: skip
        self.leave_weights = LeaveWeights(
            scale, shift, inputs.leave[0], kernels[1][0] * self.factor, forms[1], inputs.skip[0].numpy(),
            inputs.inner[0], inputs.outer[0], eps, dropout,
        )  # fmt: skip
        # Codes times inputs or outputs, whichever are more.
        widest = max(factors.shape[-1] * max(2 * factors.shape[1], self.width) for factors, _ in mixes)
        self.steps = block_steps(widest)
        factors = inputs.drive_factors.shape, inputs.readout_factors.shape
        self.sizes = (
            *factors,
            tuple(inputs.inner.shape),
            forms[0] is None,
            forms[1] is None,
            inputs.x.dtype,
            self.steps,
        )
        self.x = inputs.x.view(self.rows, self.width).numpy()
        self.valid = None if inputs.valid is None else inputs.valid.view(self.rows).numpy()
        self.kept = None if inputs.kept is None else inputs.kept[0].numpy()

    def _valid(self, start: int, stop: int) -> Any:
        return np.empty(0, dtype=bool) if self.valid is None else self.valid[start:stop]

    def _kept(self, start: int, stop: int) -> Any:
        return None if self.kept is None else self.kept[:, start * self.width : stop * self.width]

    def _plane(self, x: Tensor, start: int, stop: int) -> Tensor:
        """The part of a flat tensor that belongs to a block of rows, as (h, n)."""
        return x.view(-1)[start * self.width : stop * self.width].view(self.width, -1)

    def _clocks(self, gaps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Frequencies, gaps and time scales as `evolve` takes them."""
        shape = (self.batch, 1, self.modes)
        return (
            self.inputs.frequency.expand(shape),
            gaps.view(self.batch, self.length, 1),
            self.inputs.scale.expand(shape),
        )

    def _scans(self) -> list[tuple[Tensor, tuple[str, str, bool]]]:
        """Gaps and (discretisation, hold, reverse) of every direction."""
        found = [(self.inputs.gaps, (self.discretisation, self.hold, False))]
        if self.inputs.behind is not None:
            hold = "preceding" if self.reverse == "release" else self.hold
            found.append((self.inputs.behind, (self.discretisation, hold, True)))
        return found

    def _complex(self, x: Tensor) -> Tensor:
        return torch.view_as_complex(x.view(self.batch, self.length, self.modes, 2))

    def forward(self, out: Tensor, decay: Tensor, drive: Tensor) -> tuple[Tensor, Tensor]:
        """Fill output, decay rates and drives (rows, …); returns the states (directions, rows, 2p) and `mixed`."""
        decays, drives, outs = decay.numpy(), drive.numpy(), out.numpy()

        def enter(scratch: Enter, start: int, stop: int) -> None:
            rows = slice(start, stop)
            scratch.forward(self.x[rows], self._valid(start, stop), decays[rows], drives[rows])

        self._put_back(self._run(Enter, self.enter_weights, enter))
        states = []
        for gaps, options in self._scans():
            s = evolve_forward(
                decay.view(self.batch, self.length, -1), *self._clocks(gaps), self._complex(drive), None, None, *options
            )
            states.append(torch.view_as_real(s).view(self.rows, -1))
        arrays, mixed = [s.numpy() for s in states], torch.empty_like(out)

        def leave(scratch: Leave, start: int, stop: int) -> None:
            rows = slice(start, stop)
            plane = self._plane(mixed, start, stop).numpy()
            own = [s[rows] for s in arrays]
            scratch.forward(self.x[rows], self._valid(start, stop), own, self._kept(start, stop), plane, outs[rows])

        self._put_back(self._run(Leave, self.leave_weights, leave))
        return torch.stack(states) if len(states) > 1 else states[0].unsqueeze(0), mixed

    def backward(self, gradient: Tensor, tape: BlockTape, add_last: Any) -> list[Tensor]:
        """Gradients in the order of `BlockInputs` without valid and kept, those of absent inputs empty.

        `add_last(ds, d_decay, d_drive)` adds the gradients of the last step's state.
        """
        inputs, shape = self.inputs, (self.batch, self.length, self.modes)
        gradients, arrays = gradient.numpy(), [s.numpy() for s in tape.states]
        dx = torch.empty_like(gradient)
        ds = torch.empty_like(tape.states)
        d_states, dxs = [s.numpy() for s in ds], dx.numpy()

        def leave(scratch: Leave, start: int, stop: int) -> None:
            rows = slice(start, stop)
            scratch.backward(
                self.x[rows], self._valid(start, stop), [s[rows] for s in arrays], self._kept(start, stop),
                self._plane(tape.mixed, start, stop).numpy(), gradients[rows], [s[rows] for s in d_states],
                # What flows into u waits in the memory of dx.
                self._plane(dx, start, stop),
            )  # fmt: skip

        leaves = self._run(Leave, self.leave_weights, leave)
        add_last(ds[0], None, None)
        pieces = []
        for k, (gaps, options) in enumerate(self._scans()):
            pieces.append(
                evolve_backward(
                    self._complex(ds[k]), self._complex(tape.states[k]), tape.decay.view(shape), *self._clocks(gaps),
                    self._complex(tape.drive), None, None, *options,
                )
            )  # fmt: skip
        d_decay, d_frequency, d_gaps, d_scale, d_complex, _ = pieces[0]
        d_behind = gradient.new_empty(1, 0)
        if len(pieces) > 1:
            d_decay, d_complex = d_decay.add_(pieces[1][0]), d_complex.add_(pieces[1][4])
            d_frequency, d_scale = d_frequency + pieces[1][1], d_scale + pieces[1][3]
            d_behind = pieces[1][2].view(inputs.gaps.shape)
        d_drive = torch.view_as_real(d_complex).view(self.rows, -1)
        add_last(None, d_decay.view(self.rows, -1), d_drive)
        d_decays = d_decay.view(self.rows, -1).numpy()

        def enter(scratch: Enter, start: int, stop: int) -> None:
            rows = slice(start, stop)
            scratch.backward(
                self.x[rows], self._valid(start, stop), d_decays[rows], d_drive[rows],
                self._plane(dx, start, stop).numpy(), gradients[rows], dxs[rows],
            )  # fmt: skip

        enters = self._run(Enter, self.enter_weights, enter)
        sums = _total(each.sums for each in enters)
        heads = len(inputs.enter[0])
        d_kernels = [_total(each.tile.d_kernel for each in team)[None] for team in (enters, leaves)]
        d_in = self._d_factors(0, d_drive_kernel(d_kernels[0], inputs.drive_factors), enters)
        d_out = self._d_factors(1, d_readout_kernel(d_kernels[1] * self.factor, inputs.readout_factors), leaves)
        d_rate_norm = _total(each.d_rate_norm for each in enters).to(dx.dtype)
        found = [
            dx.view(inputs.x.shape),
            self._d_affine(sums[heads:])[None],
            d_gaps.view(inputs.gaps.shape),
            d_behind,
            sums[None, :heads].clone(),
            *d_in,
            d_rate_norm[None] if inputs.rate_norm is not None else dx.new_empty(1, 0),
            d_frequency.sum(0),
            d_scale.sum(0),
            _total(each.d_heads for each in leaves)[None],
            *d_out,
            _total(each.d_skip for each in leaves).to(dx.dtype)[None],
            _total(each.d_inner for each in leaves)[None],
            _total(each.d_outer for each in leaves)[None],
        ]
        self._put_back([*enters, *leaves])
        return found

    def _run(self, kind: Any, weights: Any, work: Any) -> list[Any]:
        """`work(scratch, start, stop)` for every block; the scratches, one per thread, hold the sums."""

        def take() -> Any:
            scratch = _shelf.take((kind, self.sizes), partial(kind, weights, self.steps))
            scratch.load(weights)
            return scratch

        return run_blocks(take, self.steps, self.rows, work)

    def _put_back(self, team: list[Any]) -> None:
        for scratch in team:
            _shelf.put((type(scratch), self.sizes), scratch)

    def _d_factors(self, which: int, d_weighted: Tensor, teams: list[Any]) -> tuple[Tensor, Tensor]:
        inputs, columns = self.inputs, self.columns[which]
        factors, norm = (
            (inputs.drive_factors, inputs.drive_norm) if which == 0 else (inputs.readout_factors, inputs.readout_norm)
        )
        d_norms = None if columns is None else columns.d_factors(_total(each.tile.d_forms for each in teams)[None])
        return unweighted(d_weighted, factors, norm, d_norms)

    def _d_affine(self, products: Tensor) -> Tensor:
        """Gradients of scale and shift from Σ du uᵀ and Σ du, in the last column: u = x · scale + shift."""
        scale, shift = self.inputs.affine[0]
        total = products[:, -1]
        return torch.stack([(products[:, :-1].diagonal() - shift * total) / scale, total])


def _total(parts: Any) -> Tensor:
    first, *others = parts
    for other in others:
        first = first + other
    result: Tensor = first
    return result
