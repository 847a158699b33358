"""The bare recurrence s_k = a_k s_{k−1} + b_k, compiled."""

from typing import Any

import torch
from torch import Tensor

from tides.kernels.batching import merge_leading_axis
from tides.kernels.cpu.arrays import rows
from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.threads import run_jobs, spans


@compiled
def _real(a, b, s, step, first):  # type: ignore[no-untyped-def]
    """Flat rows of width |step| numbers per time step, from the row at `first` in the direction of `step`."""
    width = abs(step)
    for row in range(b.shape[0]):
        for p in range(width):
            s[row, first + p] = b[row, first + p]
        at = first
        for _ in range(b.shape[1] // width - 1):
            before = at
            at += step
            for p in range(width):
                x, y = a[row, at + p], s[row, before + p]
                # A new sequence begins where a is zero, whatever the one before it grew to.
                s[row, at + p] = b[row, at + p] + (x * y if x != 0 else x)


@compiled
def _complex(a, b, s, step, first):  # type: ignore[no-untyped-def]
    """The same for pairs (re, im)."""
    width = abs(step)
    for row in range(b.shape[0]):
        for p in range(width):
            s[row, first + p] = b[row, first + p]
        at = first
        for _ in range(b.shape[1] // width - 1):
            before = at
            at += step
            for p in range(0, width, 2):
                re, im = a[row, at + p], a[row, at + p + 1]
                x, y = s[row, before + p], s[row, before + p + 1]
                begin = re == 0 and im == 0
                s[row, at + p] = b[row, at + p] + (re if begin else re * x - im * y)
                s[row, at + p + 1] = b[row, at + p + 1] + (re if begin else re * y + im * x)


@torch.library.custom_op("tides::scan_cpu", mutates_args=(), device_types="cpu")
def scan(a: Tensor, b: Tensor, reverse: bool) -> Tensor:
    """States (b, l, p) of the recurrence that starts from zero; a has the shape of b."""
    s = torch.empty_like(b, memory_format=torch.contiguous_format)
    width = b.shape[-1] * (2 if b.is_complex() else 1)
    first = (b.shape[1] - 1) * width if reverse else 0
    loop = _complex if b.is_complex() else _real
    arrays = [rows(x) for x in (a.to(b.dtype).contiguous(), b.contiguous(), s)]

    def work(span: tuple[int, int]) -> None:
        loop(*(array[slice(*span)] for array in arrays), -width if reverse else width, first)

    run_jobs(work, spans(b.shape[0], torch.get_num_threads()))
    return s


@scan.register_fake
def _(a: Tensor, b: Tensor, reverse: bool) -> Tensor:
    return torch.empty_like(b, memory_format=torch.contiguous_format)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, _, ctx.reverse = inputs
    ctx.save_for_backward(a, output)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    """μ_k = g_k + conj(a_{k+1}) μ_{k+1}: the same scan the other way; da_k = μ_k conj(s_{k−1})."""
    a, s = ctx.saved_tensors
    zero = torch.zeros_like(s[:, :1])
    later = torch.cat([zero.to(a), a[:, :-1]], 1) if ctx.reverse else torch.cat([a[:, 1:], zero.to(a)], 1)
    mu = scan(later.conj().resolve_conj(), gradient, not ctx.reverse)
    before = torch.cat([s[:, 1:], zero], 1) if ctx.reverse else torch.cat([zero, s[:, :-1]], 1)
    da = mu * before.conj()
    return da if a.is_complex() else da.real, mu, None


scan.register_autograd(_backward, setup_context=_setup)
torch.library.register_vmap(scan, merge_leading_axis(scan))
