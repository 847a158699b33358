"""One model's block, forwards and backwards: blocks of steps, the scan over whole sequences, blocks of steps again."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tides.kernels.cpu.block_weights import aligned, lanes_of, linear_panels, mix_gradients, mix_panels, padded
from tides.kernels.cpu.enter_rows import TILE, EnterSizes, EnterSums, EnterWeights, enter_backward, enter_forward
from tides.kernels.cpu.evolve import evolve_backward, evolve_forward
from tides.kernels.cpu.leave_rows import LeaveSizes, LeaveSums, LeaveWeights, leave_backward, leave_forward
from tides.kernels.cpu.rates import REPARAMS
from tides.kernels.cpu.threads import run_jobs, spans


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
    """What the backward pass needs, as rows; `mixed` is the out-mix before its norm."""

    decay: Tensor
    drive: Tensor
    states: Tensor
    mixed: Tensor


class BlockPass:
    """Weights in panels, flags and sizes of one call."""

    def __init__(self, inputs: BlockInputs, methods: str, numbers: list[float]) -> None:
        inputs = BlockInputs(*(None if x is None else x.detach().contiguous() for x in inputs))  # type: ignore[arg-type]
        self.inputs = inputs
        _, self.batch, self.length, self.width = inputs.x.shape
        self.rows, self.modes = self.batch * self.length, inputs.frequency.shape[-1]
        self.directions = 1 if inputs.behind is None else 2
        reparam, self.discretisation, self.hold, self.reverse = methods.split()
        self.eps, limit, self.factor, dropout = numbers
        self.x = inputs.x.view(-1).numpy()
        self.dtype = self.x.dtype
        self.lanes = lanes = lanes_of(self.dtype)
        self.valid = np.empty(0, dtype=bool) if inputs.valid is None else inputs.valid.view(-1).numpy()
        self.kept = np.empty((0, 0), dtype=bool) if inputs.kept is None else inputs.kept[0].numpy()
        size, inner = inputs.drive_factors.shape[-1], inputs.outer.shape[-1] - 1
        self.enter = EnterSizes(
            self.width, padded(self.width, lanes), size, padded(size, lanes), self.modes, padded(self.modes, lanes),
            2 * self.modes, padded(2 * self.modes, lanes), lanes,
        )  # fmt: skip
        size = inputs.readout_factors.shape[-1]
        self.leave = LeaveSizes(
            self.width, padded(self.width, lanes), size, padded(size, lanes), 2 * self.modes, self.directions,
            padded(2 * self.modes * self.directions, lanes), inner, padded(inner, lanes), lanes,
        )  # fmt: skip
        scale, shift = (self._filled(each.numpy()) for each in inputs.affine[0])
        self.enter_weights = EnterWeights(
            scale, shift, self._heads(), self._mix(inputs.drive_factors, inputs.drive_norm, readout=False),
            self._filled(np.ones(self.modes, self.dtype) if inputs.rate_norm is None else inputs.rate_norm[0].numpy()),
            inputs.rate_norm is not None, REPARAMS[reparam], limit, self.eps,
        )  # fmt: skip
        maps = inputs.inner[0].numpy()
        value, gate = (self._linear(half, self.leave.inner_whole) for half in (maps[:inner], maps[inner:]))
        self.leave_weights = LeaveWeights(
            scale, shift, self._linear(inputs.leave[0].numpy(), self.leave.code_whole),
            self._mix(inputs.readout_factors, inputs.readout_norm, readout=True),
            self._filled(inputs.skip[0].numpy()), value, gate,
            self._linear(inputs.outer[0].numpy(), self.leave.whole),
            self._filled(np.ones(self.width, self.dtype)), self.eps, dropout,
        )  # fmt: skip

    def _filled(self, values: Any) -> Any:
        """A row filled up to whole vectors."""
        row = aligned(padded(values.size, self.lanes), self.dtype)
        row[: values.size] = values
        return row

    def _linear(self, map_: Any, columns: int) -> Any:
        """(out, in + 1), the bias last."""
        return linear_panels(map_[:, :-1], map_[:, -1], columns, len(map_), self.lanes)

    def _heads(self) -> Any:
        """Codes and θ, each filled up to whole vectors."""
        sizes, heads = self.enter, self.inputs.enter[0].numpy()
        whole = np.zeros((sizes.code_whole + sizes.modes_whole, self.width + 1), self.dtype)
        whole[: sizes.size] = heads[: sizes.size]
        whole[sizes.code_whole : sizes.code_whole + sizes.modes] = heads[sizes.size :]
        return self._linear(whole, len(whole))

    def _mix(self, factors: Tensor, norm: Tensor | None, *, readout: bool) -> Any:
        weight = np.ones(factors.shape[1], self.dtype) if norm is None else norm[0].numpy()
        return mix_panels(
            factors[0].numpy(), weight, norm is not None, readout, self.factor if readout else 1.0, self.lanes
        )

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

    def _spread(self, work: Callable[[int, int], Any]) -> list[Any]:
        """What `work(begin, end)` returns for the steps of every thread; where tiles begin depends on nothing."""
        tiles = -(-self.rows // TILE)
        parts = [(a * TILE, min(b * TILE, self.rows)) for a, b in spans(tiles, torch.get_num_threads())]
        found: list[Any] = [None] * len(parts)

        def run(part: int) -> None:
            found[part] = work(*parts[part])

        run_jobs(run, range(len(parts)))
        return found

    def forward(self, out: Tensor, decay: Tensor, drive: Tensor) -> tuple[Tensor, Tensor]:
        """Fill output, decay rates and drives (rows, …); returns the states (directions, rows, 2p) and `mixed`."""
        decays, drives, outs = decay.view(-1).numpy(), drive.view(-1).numpy(), out.view(-1).numpy()

        def enter(begin: int, end: int) -> None:
            enter_forward(self.x, self.valid, self.enter_weights, self.enter, begin, end, decays, drives)

        self._spread(enter)
        found = []
        for gaps, options in self._scans():
            s = evolve_forward(
                decay.view(self.batch, self.length, -1), *self._clocks(gaps), self._complex(drive), None, None, *options
            )
            found.append(torch.view_as_real(s).view(self.rows, -1))
        states = torch.stack(found) if len(found) > 1 else found[0].unsqueeze(0)
        mixed, flat = torch.empty_like(out), states.view(-1).numpy()
        mixes = mixed.view(-1).numpy()

        def leave(begin: int, end: int) -> None:
            leave_forward(
                self.x, flat, self.rows, self.valid, self.kept, self.leave_weights, self.leave, begin, end, mixes, outs
            )

        self._spread(leave)
        return states, mixed

    def backward(self, gradient: Tensor, tape: BlockTape, add_last: Any) -> list[Tensor]:
        """Gradients in the order of `BlockInputs` without valid and kept, those of absent inputs empty.

        `add_last(ds, d_decay, d_drive)` adds the gradients of the last step's state.
        """
        inputs, shape = self.inputs, (self.batch, self.length, self.modes)
        dx, ds = torch.empty_like(gradient), torch.empty_like(tape.states)
        g, states, d_states, dxs, mixed = (x.view(-1).numpy() for x in (gradient, tape.states, ds, dx, tape.mixed))

        def leave(begin: int, end: int) -> LeaveSums:
            sums = self._leave_sums()
            # What flows into u waits in the memory of dx.
            leave_backward(
                self.x, states, self.rows, self.valid, self.kept, self.leave_weights, self.leave, begin, end, mixed, g,
                sums, d_states, dxs,
            )  # fmt: skip
            return sums

        left = LeaveSums(*_total(self._spread(leave)))
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
        d_decays, d_drives = d_decay.view(-1).numpy(), d_drive.view(-1).numpy()

        def enter(begin: int, end: int) -> EnterSums:
            sums = self._enter_sums()
            enter_backward(
                self.x, self.valid, self.enter_weights, self.enter, begin, end, d_decays, d_drives, dxs, g, sums, dxs
            )
            return sums

        entered = EnterSums(*_total(self._spread(enter)))
        found = [
            dx.view(inputs.x.shape).numpy(),
            self._d_affine(entered)[None],
            d_gaps.view(inputs.gaps.shape).numpy(),
            d_behind.numpy(),
            self._d_heads(entered)[None],
            *self._d_mix(inputs.drive_factors, inputs.drive_norm, entered, readout=False),
            np.empty((1, 0), self.dtype) if inputs.rate_norm is None else entered.rate_norm[None, : self.modes].copy(),
            d_frequency.sum(0).numpy(),
            d_scale.sum(0).numpy(),
            _d_linear(left.heads, left.bias, self.width, self.leave.size)[None],
            *self._d_mix(inputs.readout_factors, inputs.readout_norm, left, readout=True),
            left.skip[None, : self.width].copy(),
            np.concatenate([
                _d_linear(left.value, left.value_bias, self.width, self.leave.inner),
                _d_linear(left.gate, left.gate_bias, self.width, self.leave.inner),
            ])[None],
            _d_linear(left.outer, left.outer_bias, self.leave.inner, self.width)[None],
        ]  # fmt: skip
        return [torch.from_numpy(each) for each in found]

    def _mix_sums(self, size: int, inner: int, outer_whole: int, normed: bool) -> tuple[Any, Any]:
        """For K and, with room for whole tiles of rows, for G."""
        monomials = padded(size * (size + 1) // 2, 8) if normed else 0
        return aligned(size * inner * outer_whole, self.dtype), aligned(monomials * self.leave.whole, self.dtype)

    def _room(self, *sizes: int) -> list[Any]:
        return [aligned(size, self.dtype) for size in sizes]

    def _enter_sums(self) -> EnterSums:
        sizes = self.enter
        step = sizes.code_whole + sizes.modes_whole
        heads, bias, rate_norm, scale, shift = self._room(
            sizes.width * step, step, sizes.modes_whole, sizes.whole, sizes.whole
        )
        mix = self._mix_sums(sizes.size, sizes.width, sizes.planes_whole, self.inputs.drive_norm is not None)
        return EnterSums(heads, bias, *mix, rate_norm, scale, shift)

    def _leave_sums(self) -> LeaveSums:
        sizes = self.leave
        inner = sizes.width * sizes.inner_whole, sizes.inner_whole
        heads, bias, skip, value, value_bias, gate, gate_bias, outer, outer_bias = self._room(
            sizes.width * sizes.code_whole, sizes.code_whole, sizes.whole, *inner, *inner,
            sizes.inner * sizes.whole, sizes.whole,
        )  # fmt: skip
        depth = sizes.planes * sizes.directions
        mix = self._mix_sums(sizes.size, depth, sizes.whole, self.inputs.readout_norm is not None)
        return LeaveSums(heads, bias, *mix, skip, value, value_bias, gate, gate_bias, outer, outer_bias)

    def _d_mix(self, factors: Tensor, norm: Tensor | None, sums: Any, *, readout: bool) -> tuple[Any, Any]:
        _, p, h, _, size = factors.shape
        inner = 2 * p if readout else h
        d_factors = np.empty(factors.shape, self.dtype)
        d_norm = np.zeros((1, 0 if norm is None else p), self.dtype)
        weight = np.ones(p, self.dtype) if norm is None else norm[0].numpy()
        mix_gradients(
            factors[0].numpy(), weight, norm is not None, readout, self.factor if readout else 1.0,
            sums.kernel.reshape(size, inner, -1), sums.forms.reshape(-1, self.leave.whole), d_factors[0], d_norm[0],
        )  # fmt: skip
        return d_factors, d_norm

    def _d_heads(self, sums: EnterSums) -> Any:
        sizes = self.enter
        both = _d_linear(sums.heads, sums.bias, self.width, sizes.code_whole + sizes.modes)
        return np.concatenate([both[: sizes.size], both[sizes.code_whole :]])

    def _d_affine(self, sums: EnterSums) -> Any:
        """Gradients of scale and shift from Σ du u and Σ du: u = x · scale + shift."""
        scale, shift = self.inputs.affine[0].numpy()
        total = sums.shift[: self.width]
        return np.stack([(sums.scale[: self.width] - shift * total) / scale, total])


def _d_linear(weight: Any, bias: Any, width: int, rows: int) -> Any:
    """(out, in + 1) from sums (in, whole out) and (whole out)."""
    return np.concatenate([weight.reshape(width, -1), bias[None]])[:, :rows].T.copy()


def _total(parts: list[Any]) -> list[Any]:
    """What all threads have summed up."""
    first, *others = parts
    return [sum((other[k] for other in others), each) for k, each in enumerate(first)]
