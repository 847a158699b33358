"""Kernel launches that are planned once for a configuration and repeated with new tensors.

A plan knows every grid, flag and temporary beforehand; the temporaries lie in one workspace and share its memory where
their lives do not overlap. A repeat is then one allocation and, for each launch, a list of addresses, because Triton's
own way binds and inspects every argument anew, which takes longer than most of these kernels run. Where all tensors lie
where they lay before, as in training they do from the third step on, the launches are replayed as one CUDA graph.
Calls of torch may stand between the launches, matrix products above all, and become a part of the graph.

The shortcut asks Triton for the compiled kernel of a launch once and calls it as Triton does. What Triton compiles a
kernel for is all in the key of `_known`: kernel, flags, and of every argument whether it is a pointer to a multiple of
16 bytes, or a number that is 1, divisible by 16, or beyond 32 bits. Kernels that are interpreted, hooks of a profiler,
and tensors that begin elsewhere than at a multiple of 16 bytes take Triton's own way.
"""

import math
from bisect import insort
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial, reduce
from operator import itemgetter, or_
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton.runtime import driver

from tides.kernels.triton.buffers import BYTES, Buffer, View, aligned
from tides.kernels.triton.graphs import side_stream

# Versions in which `CompiledKernel.run(x, y, z, stream, function, metadata, None, None, None, *arguments)` is a launch
# that takes addresses for pointers.
DIRECT = (3, 6) <= tuple(int(part) for part in triton.__version__.split(".")[:2]) <= (3, 9)
# Places of tensors that a plan remembers; training meets the same few again and again.
_PLACES = 64
COMPILED = not triton.knobs.runtime.interpret

_known: dict[Any, Any] = {}


class _Launch(NamedTuple):
    kernel: Any
    grid: tuple[int, int, int]
    arguments: tuple[Any, ...]
    flags: dict[str, Any]
    key: Any

    def run(self, flat: list[Tensor]) -> Any:
        """Triton's own way."""
        return self.kernel[self.grid](*self._values(flat), **self.flags)

    def compile(self, flat: list[Tensor]) -> None:
        """All of that but the launch."""
        self.kernel.warmup(*self._values(flat), grid=self.grid, **self.flags)

    def _values(self, flat: list[Tensor]) -> list[Any]:
        return [value.of(flat) if isinstance(value, Buffer) else value for value in self.arguments]


class _Call(NamedTuple):
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]

    def run(self, flat: list[Tensor]) -> None:
        found = [value.of(flat) if isinstance(value, View) else value for value in self.arguments]
        named = {name: value.of(flat) if isinstance(value, View) else value for name, value in self.keywords.items()}
        self.function(*found, **named)


class LaunchPlan:
    """Launches in order. `tensor` names what a run is given, `space` takes from the workspace, `release` gives back."""

    def __init__(self) -> None:
        self._launches: list[_Launch | _Call] = []
        self._sizes: list[int] = [0]
        self._gaps: list[tuple[int, int]] = []
        self._ready: dict[int, list[tuple[Any, ...]]] = {}
        self._addresses: list[tuple[int, int]] = []
        self._graphs: dict[tuple[int, ...], int | torch.cuda.CUDAGraph] = {}
        self._constants: list[Any] = []
        self._calls = False

    def tensor(self, size: int) -> Buffer:
        """The next tensor of a run, with `size` elements."""
        self._sizes.append(size)
        return Buffer(len(self._sizes) - 1, 0, size)

    def space(self, *shape: int, dtype: torch.dtype = torch.float32) -> Buffer:
        """A temporary in the first stretch of the workspace that is free and long enough."""
        size = -(-math.prod(shape) * dtype.itemsize // BYTES)
        needed = aligned(size)
        for k, (start, length) in enumerate(self._gaps):
            if length >= needed:
                self._gaps[k : k + 1] = [(start + needed, length - needed)] if length > needed else []
                return Buffer(0, start, size, dtype)
        start = self._sizes[0]
        if self._gaps and sum(self._gaps[-1]) == start:
            start, _ = self._gaps.pop()
        self._sizes[0] = start + needed
        return Buffer(0, start, size, dtype)

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

    def call(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> None:
        """Like `function(*arguments, **keywords)` with a tensor for every view; results go to such tensors."""
        self._launches.append(_Call(function, arguments, keywords))
        self._calls = True

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
            if ready is None and all(
                (device, step.key) in _known for step in self._launches if isinstance(step, _Launch)
            ):
                ready = self._ready[device] = self._prepare(device)
            if ready is not None:
                stream = driver.active.get_current_stream(device)
                launch = partial(self._launch, (workspace, *tensors), bases, ready)
                if place.type != "cuda" or not self._replay((device, stream, *bases), launch):
                    launch(stream)
                return
        self._run_plainly([workspace, *tensors], keep=direct)

    def _launch(self, tensors: tuple[Tensor, ...], bases: list[int], ready: list[tuple[Any, ...]], stream: int) -> None:
        """Kernels by address on `stream`, and calls of torch, for which it is the current stream."""
        flat = [_reals(tensor) for tensor in tensors] if self._calls else []
        values = self._constants + [bases[slot] + offset for slot, offset in self._addresses]
        for call, x, y, z, function, metadata, pick in ready:
            if pick is None:
                call(flat)
            else:
                call(x, y, z, stream, function, metadata, None, None, None, *pick(values))

    def _replay(self, place: tuple[int, ...], launch: Callable[[int], None]) -> bool:
        """The launches as a graph, one launch for all, where the tensors lie where they lay in two runs before.

        `place` are device, stream and addresses.
        """
        if torch.cuda.is_current_stream_capturing():
            # Single launches become a part of the graph that is being made.
            return False
        found = self._graphs.get(place, 0)
        if isinstance(found, int):
            if len(self._graphs) >= _PLACES:
                self._graphs.clear()
            self._graphs[place] = found + 1
            if found < 2:
                return False
            if self._calls:
                # cuBLAS's handle of this thread must not be made while a graph is.
                torch.cuda.current_blas_handle()
            found = self._graphs[place] = side_stream(*place[:2]).capture(launch)
        found.replay()
        return True

    def _run_plainly(self, tensors: list[Tensor], *, keep: bool) -> None:
        """Triton's own way; with `keep` the compiled kernels are remembered."""
        flat = [_reals(tensor) for tensor in tensors]
        if keep:
            # Triton's mode would stay on if an interrupt met it.
            copy_context().run(self._compile, flat)
        for step in self._launches:
            compiled = step.run(flat)
            if keep and isinstance(step, _Launch):
                _known[driver.active.get_current_device(), step.key] = compiled

    def _compile(self, flat: list[Tensor]) -> None:
        """What is not known yet, side by side: a kernel by itself takes seconds, and a block has two dozen of them."""
        device = driver.active.get_current_device()
        launches = {step.key: step for step in self._launches if isinstance(step, _Launch)}
        with ThreadPoolExecutor() as pool, triton.AsyncCompileMode(pool):
            for key, launch in launches.items():
                if (device, key) not in _known:
                    launch.compile(flat)

    def _prepare(self, device: int) -> list[tuple[Any, ...]]:
        """Of every launch the compiled kernel, the grid, and which of a run's values are its arguments."""
        constants: dict[Any, int] = {}
        addresses: dict[tuple[int, int], int] = {}
        wanted: list[list[tuple[bool, int]]] = []
        for launch in self._launches:
            if isinstance(launch, _Call):
                wanted.append([])
                continue
            names = launch.kernel.arg_names[len(launch.arguments) :]
            row: list[tuple[bool, int]] = []
            for value in (*launch.arguments, *(launch.flags[name] for name in names)):
                if isinstance(value, Buffer):
                    row.append((True, addresses.setdefault((value.slot, BYTES * value.offset), len(addresses))))
                else:
                    # Equal numbers of different types are different arguments.
                    row.append((False, constants.setdefault((type(value), value), len(constants))))
            wanted.append(row)
        self._constants, self._addresses = [value for _, value in constants], list(addresses)
        ready: list[tuple[Any, ...]] = []
        for launch, row in zip(self._launches, wanted, strict=True):
            if isinstance(launch, _Call):
                ready.append((launch.run, 1, 1, 1, None, None, None))
                continue
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
        return "pointer", argument.dtype, argument.offset * BYTES % 16 == 0
    if isinstance(argument, int):
        return argument == 1, argument % 16 == 0, -(2**31) <= argument < 2**31
    return type(argument)


def _reals(tensor: Tensor) -> Tensor:
    if tensor.dtype == torch.bool:
        tensor = tensor.view(torch.uint8)
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).view(-1)
