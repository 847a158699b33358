"""Discretise and scan in one compiled pass; the backward pass computes λ̄ and gain again and goes the other way."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tides.kernels.cpu.arrays import broadcast_rows, nothing, rows
from tides.kernels.cpu.intervals import METHODS, taylor_coefficients
from tides.kernels.cpu.recurrence import run_backward, run_forward
from tides.kernels.cpu.threads import run_jobs, spans
from tides.kernels.operators import evolve_operator


def _sequences(drive: Tensor, cu_seqlens: Tensor | None) -> Any:
    """(row, start, stop, row of s0) of every independent sequence."""
    b, l, _ = drive.shape
    if cu_seqlens is None:
        return np.array([(row, 0, l, row) for row in range(b)], dtype=np.int64)
    bounds = cu_seqlens.tolist()
    return np.array([(0, *bounds[i : i + 2], i) for i in range(len(bounds) - 1)], dtype=np.int64)


def _inputs(decay: Tensor, frequency: Tensor, gaps: Tensor, scale: Tensor, drive: Tensor) -> list[Any]:
    """Flat rows; decay and frequency may be one row for all steps, and everything but the drive one for all series."""
    return [
        broadcast_rows(decay, 2),
        broadcast_rows(frequency, 2),
        broadcast_rows(gaps, 1),
        broadcast_rows(scale, 1),
        rows(drive),
    ]


def evolve_forward(
    decay: Tensor,
    frequency: Tensor,
    gaps: Tensor,
    scale: Tensor,
    drive: Tensor,
    s0: Tensor | None,
    cu_seqlens: Tensor | None,
    discretisation: str,
    hold: str,
    reverse: bool,
) -> Tensor:
    """The states at every step, for arguments as in `operators.evolve_operator`."""
    out = torch.empty_like(drive, memory_format=torch.contiguous_format)
    states, sequences = rows(out), _sequences(drive, cu_seqlens)
    inputs = _inputs(decay, frequency, gaps, scale, drive)
    initial = nothing(states) if s0 is None else rows(s0)
    settings = (gaps.shape[-1] > 1, METHODS[discretisation], hold == "following", reverse)

    def work(span: tuple[int, int]) -> None:
        run_forward(*inputs, initial, sequences[slice(*span)], *settings, states)

    run_jobs(work, spans(len(sequences), torch.get_num_threads()))
    return out


def evolve_backward(
    gradient: Tensor,
    s: Tensor,
    decay: Tensor,
    frequency: Tensor,
    gaps: Tensor,
    scale: Tensor,
    drive: Tensor,
    s0: Tensor | None,
    cu_seqlens: Tensor | None,
    discretisation: str,
    hold: str,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of decay, frequency, gaps, scale, drive and s0."""
    b, l, p = drive.shape
    sequences = _sequences(drive, cu_seqlens)
    arrays = [rows(gradient), rows(s), *_inputs(decay, frequency, gaps, scale, drive)]
    initial = nothing(arrays[0]) if s0 is None else rows(s0)
    static = frequency.shape[1] == 1
    d_decay, d_drive = decay.new_empty(b, l, p), torch.empty_like(drive, memory_format=torch.contiguous_format)
    d_frequency, d_gaps = decay.new_empty(b, 0 if static else l, p), gaps.new_empty(gaps.shape)
    # One sum per sequence, added up afterwards: the same result on any number of threads.
    sums = torch.empty(2, len(sequences), p, dtype=torch.float64)
    ds0 = drive.new_empty(b, 0) if s0 is None else torch.empty_like(s0, memory_format=torch.contiguous_format)
    outputs = [rows(d_decay), rows(d_frequency), rows(d_gaps), *sums.numpy(), rows(d_drive)]
    d_initial = nothing(arrays[0]) if s0 is None else rows(ds0)
    taylor = taylor_coefficients(arrays[0].dtype)
    settings = (gaps.shape[-1] > 1, METHODS[discretisation], hold == "following", reverse, taylor)

    def work(span: tuple[int, int]) -> None:
        part = slice(*span)
        own = [*outputs[:3], *(total[part] for total in outputs[3:5]), outputs[5]]
        run_backward(*arrays, initial, sequences[part], *settings, *own, d_initial)

    run_jobs(work, spans(len(sequences), torch.get_num_threads()))
    owners = torch.from_numpy(sequences[:, 0])
    by_row = torch.zeros(2, b, p, dtype=torch.float64).index_add_(1, owners, sums).to(decay.dtype).unsqueeze(2)
    return d_decay, by_row[0].clone() if static else d_frequency, d_gaps, by_row[1].clone(), d_drive, ds0


evolve = evolve_operator("cpu", evolve_forward, evolve_backward)
