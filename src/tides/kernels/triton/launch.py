"""Kernel launches that are planned once for a configuration and repeated with new tensors.

A plan knows every grid, flag and temporary beforehand; the temporaries lie in one workspace and share its memory where
their lives do not overlap. A repeat is then one allocation and, for each launch, a list of addresses, because Triton's
own way binds and inspects every argument anew, which takes longer than most of these kernels run. Where all tensors lie
where they lay before, as in training they do from the third step on, the launches are replayed as one CUDA graph.

The shortcut asks Triton for the compiled kernel of a launch once and calls it as Triton does. What Triton compiles a
kernel for is all in the key of `_known`: kernel, flags, and of every argument whether it is a pointer to a multiple of
16 bytes, or a number that is 1, divisible by 16, or beyond 32 bits. Kernels that are interpreted, hooks of a profiler,
and tensors that begin elsewhere than at a multiple of 16 bytes take Triton's own way.
"""

import math
from bisect import insort
from functools import reduce
from operator import itemgetter, or_
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton.runtime import driver

# Elements between the beginnings of temporaries: 256 bytes, as torch's allocator has it.
ALIGNED = 64
_BYTES = 4
# Versions in which `CompiledKernel.run(x, y, z, stream, function, metadata, None, None, None, *arguments)` is a launch
# that takes addresses for pointers.
DIRECT = (3, 6) <= tuple(int(part) for part in triton.__version__.split(".")[:2]) <= (3, 9)
# Places of tensors that a plan remembers; training meets the same few again and again.
_PLACES = 64
COMPILED = not triton.knobs.runtime.interpret

_known: dict[Any, Any] = {}


def aligned(size: int) -> int:
    """`size` and what it takes to the next place where a temporary may begin."""
    return -(-size // ALIGNED) * ALIGNED


class Buffer(NamedTuple):
    """A stretch of float32 in one of the tensors that a plan runs with; 0 is the workspace."""

    slot: int
    offset: int
    size: int

    def part(self, start: int, size: int) -> "Buffer":
        return Buffer(self.slot, self.offset + start, size)


class _Launch(NamedTuple):
    kernel: Any
    grid: tuple[int, int, int]
    arguments: tuple[Any, ...]
    flags: dict[str, Any]
    key: Any


class LaunchPlan:
    """Launches in order. `tensor` names what a run is given, `space` takes from the workspace, `release` gives back."""

    def __init__(self) -> None:
        self._launches: list[_Launch] = []
        self._sizes: list[int] = [0]
        self._gaps: list[tuple[int, int]] = []
        self._ready: dict[int, list[tuple[Any, ...]]] = {}
        self._addresses: list[tuple[int, int]] = []
        self._graphs: dict[tuple[int, ...], int | torch.cuda.CUDAGraph] = {}
        self._constants: list[Any] = []

    def tensor(self, size: int) -> Buffer:
        """The next tensor of a run, with `size` elements."""
        self._sizes.append(size)
        return Buffer(len(self._sizes) - 1, 0, size)

    def space(self, *shape: int) -> Buffer:
        """A temporary in the first stretch of the workspace that is free and long enough."""
        size = math.prod(shape)
        needed = aligned(size)
        for k, (start, length) in enumerate(self._gaps):
            if length >= needed:
                self._gaps[k : k + 1] = [(start + needed, length - needed)] if length > needed else []
                return Buffer(0, start, size)
        start = self._sizes[0]
        if self._gaps and sum(self._gaps[-1]) == start:
            start, _ = self._gaps.pop()
        self._sizes[0] = start + needed
        return Buffer(0, start, size)

    def release(self, *buffers: Buffer) -> None:
        """Later temporaries may lie where these lie."""
        for buffer in buffers:
            insort(self._gaps, (buffer.offset, aligned(buffer.size)))
        merged: list[tuple[int, int]] = []
        for start, length in self._gaps:
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((start, length))
        self._gaps = merged

    def launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Buffer | float, **flags: Any) -> None:
        """Like `kernel[grid](*arguments, **flags)`."""
        key = (kernel, tuple(specialised(argument) for argument in arguments), tuple(sorted(flags.items())))
        whole = (grid[0], grid[1] if len(grid) > 1 else 1, grid[2] if len(grid) > 2 else 1)
        self._launches.append(_Launch(kernel, whole, arguments, flags, key))

    def run(self, *tensors: Tensor) -> None:
        """Everything, on the current stream of the tensors' device; complex tensors count as pairs of reals."""
        place = tensors[0].device
        if place.type == "cuda" and place.index != torch.cuda.current_device():
            with torch.cuda.device(place):
                self.run(*tensors)
            return
        workspace = torch.empty(self._sizes[0], dtype=torch.float32, device=place)
        bases = [workspace.data_ptr(), *[tensor.data_ptr() for tensor in tensors]]
        direct = _can_be_direct(bases)
        if direct:
            device = driver.active.get_current_device()
            ready = self._ready.get(device)
            if ready is None and all((device, launch.key) in _known for launch in self._launches):
                ready = self._ready[device] = self._prepare(device)
            if ready is not None:
                if place.type != "cuda" or not self._replay(bases, ready):
                    self._launch(bases, ready, driver.active.get_current_stream(device))
                return
        self._run_plainly([workspace, *tensors], keep=direct)

    def _launch(self, bases: list[int], ready: list[tuple[Any, ...]], stream: int) -> None:
        values = self._constants + [bases[slot] + offset for slot, offset in self._addresses]
        for call, x, y, z, function, metadata, pick in ready:
            call(x, y, z, stream, function, metadata, None, None, None, *pick(values))

    def _replay(self, bases: list[int], ready: list[tuple[Any, ...]]) -> bool:
        """The launches as a graph, one launch for all, where the tensors lie where they lay in two runs before."""
        if torch.cuda.is_current_stream_capturing():
            # Single launches become a part of the graph that is being made.
            return False
        place = tuple(bases)
        found = self._graphs.get(place, 0)
        if isinstance(found, int):
            if len(self._graphs) >= _PLACES:
                self._graphs.clear()
            self._graphs[place] = found + 1
            if found < 2:
                return False
            found = self._graphs[place] = self._capture(bases, ready)
        found.replay()
        return True

    def _capture(self, bases: list[int], ready: list[tuple[Any, ...]]) -> torch.cuda.CUDAGraph:
        """Nothing is allocated inside, so the graph holds addresses and owns no memory."""
        graph = torch.cuda.CUDAGraph()
        side = torch.cuda.Stream(priority=-1)
        with torch.cuda.stream(side):
            graph.capture_begin(capture_error_mode="thread_local")
            self._launch(bases, ready, side.cuda_stream)
            graph.capture_end()
        return graph

    def _run_plainly(self, tensors: list[Tensor], *, keep: bool) -> None:
        """Triton's own way; with `keep` the compiled kernels are remembered."""
        flat = [_reals(tensor) for tensor in tensors]
        for launch in self._launches:
            arguments = [
                flat[argument.slot][argument.offset : argument.offset + argument.size]
                if isinstance(argument, Buffer)
                else argument
                for argument in launch.arguments
            ]
            compiled = launch.kernel[launch.grid](*arguments, **launch.flags)
            if keep:
                _known[driver.active.get_current_device(), launch.key] = compiled

    def _prepare(self, device: int) -> list[tuple[Any, ...]]:
        """Of every launch the compiled kernel, the grid, and which of a run's values are its arguments."""
        constants: dict[Any, int] = {}
        addresses: dict[tuple[int, int], int] = {}
        wanted = []
        for launch in self._launches:
            names = launch.kernel.arg_names[len(launch.arguments) :]
            row: list[tuple[bool, int]] = []
            for value in (*launch.arguments, *(launch.flags[name] for name in names)):
                if isinstance(value, Buffer):
                    row.append((True, addresses.setdefault((value.slot, _BYTES * value.offset), len(addresses))))
                else:
                    # Equal numbers of different types are different arguments.
                    row.append((False, constants.setdefault((type(value), value), len(constants))))
            wanted.append(row)
        self._constants, self._addresses = [value for _, value in constants], list(addresses)
        ready = []
        for launch, row in zip(self._launches, wanted, strict=True):
            compiled = _known[device, launch.key]
            pick = itemgetter(*(index + len(constants) if address else index for address, index in row))
            ready.append((compiled.run, *launch.grid, compiled.function, compiled.packed_metadata, pick))
        return ready


def _can_be_direct(bases: list[int]) -> bool:
    if not (COMPILED and DIRECT) or triton.knobs.runtime.launch_enter_hook.calls:
        return False
    return reduce(or_, bases) & 15 == 0


def specialised(argument: Buffer | float) -> Any:
    """What Triton compiles a kernel for."""
    if isinstance(argument, Buffer):
        return "pointer", argument.offset * _BYTES % 16 == 0
    if isinstance(argument, int):
        return argument == 1, argument % 16 == 0, -(2**31) <= argument < 2**31
    return type(argument)


def _reals(tensor: Tensor) -> Tensor:
    if tensor.dtype == torch.bool:
        tensor = tensor.view(torch.uint8)
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).view(-1)
