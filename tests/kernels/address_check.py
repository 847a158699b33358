"""Every address that an interpreted kernel touches lies inside a buffer that its launch may touch.

A GPU notices only accesses far beyond its memory; the interpreter knows every single address. Buffers of a plan get
margins between them that belong to nobody, and a launch may touch those that live when it is planned.
"""

import math
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import InterpreterBuilder

from tides.kernels.triton import block_config, block_pass, wide_pass, wide_plans
from tides.kernels.triton.buffers import ALIGNED, BYTES, Buffer, View, aligned
from tides.kernels.triton.evolve import Immediate
from tides.kernels.triton.launch import LaunchPlan, _reals

Span = tuple[int, int]


class _Memory:
    """The stretches that are allowed now, and how many accesses were checked against them."""

    def __init__(self) -> None:
        self.starts = self.ends = np.zeros(0, np.uint64)
        self.kernel = ""
        self.checked = 0

    @contextmanager
    def allowed(self, kernel: Any, spans: list[Span]) -> Iterator[None]:
        """Inside, `kernel` may touch these alone; kernels that are launched otherwise are not checked."""
        ordered = np.array(sorted(set(spans)), np.uint64).reshape(-1, 2)
        self.starts, self.ends = ordered[:, 0], np.maximum.accumulate(ordered[:, 1])
        self.kernel = getattr(kernel, "__name__", str(kernel))
        try:
            yield
        finally:
            self.kernel = ""

    def check(self, pointers: np.ndarray, mask: np.ndarray, size: int) -> None:
        if not self.kernel:
            return
        pointers, mask = np.broadcast_arrays(pointers, mask)
        touched = pointers[mask.astype(bool)].astype(np.uint64)
        at = np.searchsorted(self.starts, touched, side="right") - 1
        inside = (at >= 0) & (touched + np.uint64(size) <= self.ends[np.maximum(at, 0)])
        self.checked += touched.size
        assert inside.all(), f"{self.kernel}: {np.count_nonzero(~inside)} of {touched.size} addresses are nobody's"


@contextmanager
def checked_addresses() -> Iterator[_Memory]:
    """Inside, kernels may touch nothing but the buffers of their launch."""
    memory = _Memory()
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store
    space, release, launch, call = LaunchPlan.space, LaunchPlan.release, LaunchPlan.launch, LaunchPlan.call
    carve, wide_parts = block_pass.BlockPass._carve, wide_plans._Stack._parts

    def checked_load(self: Any, ptrs: Any, mask: Any, other: Any, *rest: Any) -> Any:
        memory.check(ptrs.data, mask.data, ptrs.get_element_ty().primitive_bitwidth // 8)
        return load(self, ptrs, mask, other, *rest)

    def checked_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        memory.check(ptrs.data, mask.data, ptrs.get_element_ty().primitive_bitwidth // 8)
        return store(self, ptrs, value, mask, *rest)

    def wide_space(self: LaunchPlan, *shape: int, dtype: torch.dtype = torch.float32) -> Buffer:
        size = -(-math.prod(shape) * dtype.itemsize // BYTES)
        buffer = space(self, size + ALIGNED)._replace(size=size, dtype=dtype)
        _living(self).add(buffer)
        return buffer

    def wide_release(self: LaunchPlan, *buffers: Buffer) -> None:
        _living(self).difference_update(buffers)
        release(self, *(buffer._replace(size=buffer.size + ALIGNED) for buffer in buffers))

    def remembering_launch(self: LaunchPlan, *arguments: Any, **flags: Any) -> None:
        launch(self, *arguments, **flags)
        self.__dict__.setdefault("alive", []).append(frozenset(_living(self)))

    def remembering_call(self: LaunchPlan, *arguments: Any, **keywords: Any) -> None:
        call(self, *arguments, **keywords)
        self.__dict__.setdefault("alive", []).append(frozenset())
        for view in (*arguments, *keywords.values()):
            if isinstance(view, View) and view.buffer.slot == 0:
                inside, end = view.buffer, view.start + sum(map(operator.mul, view.strides, np.array(view.sizes) - 1))
                assert (end + 1) * inside.dtype.itemsize <= inside.size * BYTES, "a view beyond its buffer"
                holders = [one for one in _living(self) if one.offset <= inside.offset < one.offset + one.size]
                assert holders, f"{arguments[0]} takes a temporary that was released"

    def remembering_parts(self: wide_plans._Stack, k: int) -> dict[str, Buffer]:
        parts = wide_parts(self, k)
        if self.shape.keeps:
            between = [self.input(number) for number in range(1, self.shape.depth)]
            self.plan.__dict__.setdefault("kept", []).extend([*parts.values(), *between])
        return parts

    def remembering_carve(self: block_pass.BlockPass, *buffers: Buffer) -> None:
        carve(self, *buffers)
        self.plan.__dict__.setdefault("kept", []).extend(self.parts.values())

    def run(self: LaunchPlan, tensors: list[torch.Tensor], *, keep: bool) -> None:
        flat = [_reals(tensor) for tensor in tensors]
        kept = self.__dict__.get("kept", [])
        divided = {0, *(part.slot for part in kept)}
        whole = [_span(tensor) for slot, tensor in enumerate(flat) if slot not in divided]
        for planned, alive in zip(self._launches, self.__dict__["alive"], strict=True):
            parts = [_span(part.of(flat)) for part in (*kept, *alive)]
            with memory.allowed(getattr(planned, "kernel", None), whole + parts):
                planned.run(flat)

    def immediate(self: Immediate, kernel: Any, grid: tuple[int, ...], *arguments: Any, **flags: Any) -> None:
        with memory.allowed(kernel, [_span(value) for value in arguments if isinstance(value, torch.Tensor)]):
            kernel[grid](*arguments, **flags)

    def apart(size: int) -> int:
        return aligned(size) + ALIGNED

    with (
        mock.patch.object(InterpreterBuilder, "create_masked_load", checked_load),
        mock.patch.object(InterpreterBuilder, "create_masked_store", checked_store),
        mock.patch.multiple(
            LaunchPlan,
            space=wide_space,
            release=wide_release,
            launch=remembering_launch,
            call=remembering_call,
            _run_plainly=run,
        ),
        mock.patch.object(block_pass.BlockPass, "_carve", remembering_carve),
        mock.patch.object(block_config, "aligned", apart),
        mock.patch.object(block_pass, "aligned", apart),
        mock.patch.object(wide_plans._Stack, "_parts", remembering_parts),
        mock.patch.object(wide_pass, "aligned", apart),
        mock.patch.object(wide_plans, "aligned", apart),
        mock.patch.object(Immediate, "launch", immediate),
    ):
        block_config.kept_size.cache_clear()
        yield memory
    block_config.kept_size.cache_clear()


def _living(plan: LaunchPlan) -> set[Buffer]:
    living: set[Buffer] = plan.__dict__.setdefault("living", set())
    return living


def _span(tensor: torch.Tensor) -> Span:
    return tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()


@triton.jit
def _one_too_far(x, N):
    tl.store(x + tl.arange(0, 8), 1.0, tl.arange(0, 8) <= N)


def check_the_check() -> None:
    """An access behind a tensor is found."""
    with checked_addresses():
        Immediate(torch.device("cpu")).launch(_one_too_far, (1,), torch.zeros(8)[:5], 4)
        with pytest.raises(InterpreterError, match="nobody's"):
            Immediate(torch.device("cpu")).launch(_one_too_far, (1,), torch.zeros(8)[:4], 4)
