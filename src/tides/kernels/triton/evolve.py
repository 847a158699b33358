"""`evolve` and `scan` on the GPU: launches of the three-phase kernels, registered as torch operators."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from tides.kernels.batching import merge_leading_axis
from tides.kernels.derivatives import differentiable_once
from tides.kernels.operators import evolve_operator
from tides.kernels.triton.adjoint_kernels import adjoint_kernel
from tides.kernels.triton.direct import launch
from tides.kernels.triton.evolve_kernels import BILINEAR, DIRAC, GIVEN, ZOH, carry_kernel, forward_kernel

METHODS = {"zoh": ZOH, "bilinear": BILINEAR, "dirac": DIRAC}
# (chunk, mode) pairs of a program, which is one warp with a thread for each: it never synchronises and moves nothing
# from thread to thread.
_LANES = 32
# Steps of a chunk, measured on an H200: the least; as many as still leave so many pairs in all; and more of them where
# there would be more pairs than threads that run at once, 32 warps on each processor.
_STEPS = (8, 16, 128)
_BUSY = (1 << 16, 132 * 32 * _LANES)
# Steps that are loaded together, while those before are computed; fewer where gradients take the registers.
_TOGETHER = 4
_TOGETHER_BACK = 2
# Chunks and modes of a carry tile.
_CARRY_CHUNKS = 256
_CARRY_MODES = 1


class Stage(Protocol):
    """Where launches go: `Immediate`, or a `LaunchPlan` that runs them later; buffers are its pointers."""

    def space(self, *shape: int) -> Any: ...
    def release(self, *buffers: Any) -> None: ...
    def launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any, **flags: Any) -> None: ...


class Immediate:
    """Launches at once; buffers are tensors."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def space(self, *shape: int) -> Tensor:
        return torch.empty(shape, device=self.device)

    def release(self, *buffers: Tensor) -> None:
        """Tensors end with their last name."""

    def launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any, **flags: Any) -> None:
        launch(kernel, grid, *arguments, **flags)


def chunk_steps(rows: int, steps: int, modes: int) -> int:
    """Steps of a chunk in a scan of so many sequences."""
    least, some, most = _STEPS
    few, many = _BUSY
    pairs = rows * steps * modes
    wanted = min(most, max(least, min(some, pairs // few), -(-pairs // many)))
    return -(-wanted // _TOGETHER) * _TOGETHER


class ScanPlan:
    """Sizes and flags shared by the forward and the backward launches of one scan."""

    def __init__(
        self,
        shape: Sequence[int],
        method: int,
        hold: str,
        reverse: bool,
        *,
        static_decay: bool = False,
        static_frequency: bool = False,
        mode_gaps: bool = False,
        packed: bool = False,
        has_s0: bool = False,
        decays: bool = False,
        chunk: int | None = None,
    ) -> None:
        """`decays`: no |a| is larger than 1. Chunks are of whole groups of steps."""
        self.rows, self.steps, self.modes = rows, steps, modes = shape
        self.block = min(1 << (modes - 1).bit_length(), _LANES)
        self.chunk = chunk or chunk_steps(rows, steps, modes)
        self.chunks = -(-steps // self.chunk)
        self.mode_blocks = -(-modes // self.block)
        lanes = _LANES // self.block
        self.grid = (rows * -(-self.chunks // lanes), self.mode_blocks)
        self.flags: dict[str, Any] = {
            "STATIC_DECAY": static_decay,
            "STATIC_FREQUENCY": static_frequency,
            "MODE_GAPS": mode_gaps,
            "METHOD": method,
            "FOLLOWING": hold == "following",
            "REVERSE": reverse,
            "PACKED": packed,
            "HAS_S0": has_s0,
            "DECAYS": decays,
            "P": self.modes,
            "C": lanes,
            "BP": self.block,
            "num_warps": 1,
        }

    def run(
        self,
        stage: Stage,
        kernel: Any,
        inputs: tuple[Any, ...],
        outputs: tuple[Any, ...],
        *,
        carry: Any = None,
        again: bool = False,
        **more: bool,
    ) -> None:
        """Summaries and carries where there is more than one chunk, then the results.

        With `carry` the carries stay there, and the same scan made `again` begins with them.
        """
        flags = self.flags | more
        group = _TOGETHER_BACK if kernel is adjoint_kernel else _TOGETHER
        sizes = (self.steps, self.chunks, self.chunk // group)
        if self.chunks == 1:
            arguments = (*inputs, outputs[0], outputs[0], *outputs, *sizes)
            stage.launch(kernel, self.grid, *arguments, **flags, SUMMARISE=False, HAS_CARRY=False, U=group)
            return
        summary = outputs[0] if again else stage.space(self.rows, self.chunks, self.modes, 4)
        carries = stage.space(self.rows, self.chunks, self.modes, 2) if carry is None else carry
        arguments = (*inputs, carries, summary, *outputs)
        if not again:
            groups = (self.steps, self.chunks, self.chunk // _TOGETHER)
            stage.launch(kernel, self.grid, *arguments, *groups, **flags, SUMMARISE=True, HAS_CARRY=False, U=_TOGETHER)
            # Few sequences, few programs: a handful of modes each.
            narrow = min(self.block, _CARRY_MODES)
            grid = (self.rows, -(-self.modes // narrow))
            stage.launch(carry_kernel, grid, summary, carries, self.modes, self.chunks, BC=_CARRY_CHUNKS, BP=narrow)
        stage.launch(kernel, self.grid, *arguments, *sizes, **flags, SUMMARISE=False, HAS_CARRY=True, U=group)
        stage.release(*([] if again else [summary]), *([carries] if carry is None else []))


def _plan(
    decay: Tensor,
    frequency: Tensor,
    gaps: Tensor,
    drive: Tensor,
    s0: Tensor | None,
    cu_seqlens: Tensor | None,
    discretisation: str,
    hold: str,
    reverse: bool,
) -> ScanPlan:
    return ScanPlan(
        drive.shape,
        METHODS[discretisation],
        hold,
        reverse,
        static_decay=decay.shape[1] == 1 and drive.shape[1] != 1,
        static_frequency=frequency.shape[1] == 1 and drive.shape[1] != 1,
        mode_gaps=gaps.shape[2] != 1,
        packed=cu_seqlens is not None,
        has_s0=s0 is not None,
    )


def _boundaries(
    cu_seqlens: Tensor | None, steps: int, reverse: bool, device: torch.device
) -> tuple[Tensor | None, Tensor | None]:
    """Flags of the steps that begin a sequence, and the sequence that owns each step."""
    if cu_seqlens is None:
        return None, None
    bounds = cu_seqlens.to(device).long()
    begin = torch.zeros(steps, dtype=torch.int32, device=device)
    begin[bounds[1:] - 1 if reverse else bounds[:-1]] = 1
    owner = torch.searchsorted(bounds[1:].contiguous(), torch.arange(steps, device=device), right=True)
    return begin, owner.int()


def _planes(x: Tensor) -> Tensor:
    return torch.view_as_real(x.resolve_conj()).contiguous()


def _inputs(
    decay: Tensor,
    frequency: Tensor,
    gaps: Tensor,
    scale: Tensor,
    drive: Tensor,
    s0: Tensor | None,
    cu_seqlens: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, ...]:
    planes = _planes(drive)
    begin, owner = _boundaries(cu_seqlens, drive.shape[1], reverse, drive.device)
    # Pointers that a kernel's flags make it ignore still have to point somewhere.
    begin, owner = (planes if bounds is None else bounds for bounds in (begin, owner))
    start = planes if s0 is None else _planes(s0)
    reals = (decay.contiguous(), frequency.contiguous(), gaps.contiguous(), scale.contiguous())
    return (*reals, planes, begin, start, owner)


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
    plan = _plan(decay, frequency, gaps, drive, s0, cu_seqlens, discretisation, hold, reverse)
    out = torch.empty(*drive.shape, 2, device=drive.device)
    inputs = _inputs(decay, frequency, gaps, scale, drive, s0, cu_seqlens, reverse)
    plan.run(Immediate(drive.device), forward_kernel, inputs, (out,))
    return torch.view_as_complex(out)


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
    plan = _plan(decay, frequency, gaps, drive, s0, cu_seqlens, discretisation, hold, reverse)
    device, flags = drive.device, plan.flags
    per_chunk = (plan.rows, plan.chunks, plan.modes)
    d_decay = torch.empty(per_chunk if flags["STATIC_DECAY"] else decay.shape, device=device)
    d_frequency = torch.empty(per_chunk if flags["STATIC_FREQUENCY"] else frequency.shape, device=device)
    gap_width = plan.modes if flags["MODE_GAPS"] else plan.mode_blocks
    d_gaps = torch.empty(plan.rows, plan.steps, gap_width, device=device)
    d_scale = torch.empty(per_chunk, device=device)
    d_drive = torch.empty(*drive.shape, 2, device=device)
    d_s0 = torch.zeros(*(drive.shape[0], 0) if s0 is None else s0.shape, 2, device=device)
    inputs = _inputs(decay, frequency, gaps, scale, drive, s0, cu_seqlens, reverse)
    outputs = (_planes(gradient), _planes(s), d_decay, d_frequency, d_gaps, d_scale, d_drive, d_s0)
    plan.run(Immediate(device), adjoint_kernel, inputs, outputs, ADD=False, GAPS=True)
    return (
        d_decay.sum(1, keepdim=True) if flags["STATIC_DECAY"] else d_decay,
        d_frequency.sum(1, keepdim=True) if flags["STATIC_FREQUENCY"] else d_frequency,
        d_gaps if d_gaps.shape == gaps.shape else d_gaps.sum(2, keepdim=True),
        d_scale.sum(1, keepdim=True),
        torch.view_as_complex(d_drive),
        torch.view_as_complex(d_s0) if s0 is not None else torch.zeros_like(drive[:, 0, :0]),
    )


evolve = evolve_operator("triton", evolve_forward, evolve_backward)


@torch.library.custom_op("tides::scan_triton", mutates_args=())
def scan(a: Tensor, b: Tensor, reverse: bool) -> Tensor:
    """s_k = a_k s_{k−1} + b_k from zero, real or complex, (b, l, p)."""
    wide_a, wide_b = a.to(torch.complex64), b.to(torch.complex64)
    plan = ScanPlan(b.shape, GIVEN, "preceding", reverse)
    out = torch.empty(*b.shape, 2, device=b.device)
    planes = _planes(wide_b)
    plan.run(Immediate(b.device), forward_kernel, (_planes(wide_a), *[planes] * 7), (out,))
    s = torch.view_as_complex(out)
    return s if b.is_complex() else s.real.contiguous()


@torch.library.custom_op("tides::scan_triton_backward", mutates_args=())
def scan_backward(gradient: Tensor, s: Tensor, a: Tensor, reverse: bool) -> tuple[Tensor, Tensor]:
    """Gradients of a and b."""
    wide_a, wide_s, wide_g = (x.to(torch.complex64) for x in (a, s, gradient))
    plan = ScanPlan(s.shape, GIVEN, "preceding", reverse)
    planes = _planes(wide_s)
    da, db = torch.empty_like(planes), torch.empty_like(planes)
    outputs = (_planes(wide_g), planes, da, da, da, da, db, db)
    plan.run(Immediate(s.device), adjoint_kernel, (_planes(wide_a), *[planes] * 7), outputs, ADD=False, GAPS=False)
    complex_da, complex_db = torch.view_as_complex(da), torch.view_as_complex(db)
    return (
        complex_da if a.is_complex() else complex_da.real.contiguous(),
        complex_db if s.is_complex() else complex_db.real.contiguous(),
    )


@scan.register_fake
def _(a, b, reverse):  # type: ignore[no-untyped-def]
    return torch.empty_like(b, memory_format=torch.contiguous_format)


@scan_backward.register_fake
def _(gradient, s, a, reverse):  # type: ignore[no-untyped-def]
    return torch.empty_like(a), torch.empty_like(s)


def _setup_scan(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, _, ctx.reverse = inputs
    ctx.save_for_backward(a, output)


@differentiable_once
def _scan_gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    a, s = ctx.saved_tensors
    return (*scan_backward(gradient, s, a, ctx.reverse), None)


scan.register_autograd(_scan_gradients, setup_context=_setup_scan)
for _op in (scan, scan_backward):
    torch.library.register_vmap(_op, merge_leading_axis(_op))
