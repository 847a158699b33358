"""Triton's kernels are accepted by its compiler, for a GPU that need not be there: the interpreter takes more."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="the triton backend needs triton")

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import tides.kernels.triton
from tests.kernels.test_block_plans import _plans
from tides.experiments.speed import WORKLOADS
from tides.kernels.triton import wide_plans
from tides.kernels.triton.block_config import BlockConfig, BlockShape
from tides.kernels.triton.block_plans import Wanted
from tides.kernels.triton.buffers import Buffer
from tides.kernels.triton.launch import LaunchPlan, _Launch
from tides.kernels.triton.packing import layout_of
from tides.nn import TIDESConfig
from tides.nn.block import Block

HOPPER = GPUTarget("cuda", 90, 32)
POINTERS = {torch.float32: "*fp32", torch.float16: "*fp16", torch.float64: "*fp64", torch.int32: "*i32"}
OPTIONS = ("num_warps", "num_stages", "maxnreg")
# Passes that begin with products and end without a sum over their tiles.
THROUGH_TILES = {"enter", "leave", "readout", "readout_backward", "drive_backward"}


def _wide_plans() -> list[LaunchPlan]:
    model = TIDESConfig(**WORKLOADS["wide"].model, dropout=0.1)
    block = Block(model)
    tail = block.glu.weights()
    assert tail is not None
    config = BlockConfig.of(layout_of(block.ssm.weights(), tail), block.ssm.spec, 0.1)
    shape = BlockShape.of(config.layout, 1, 8, 1000, masked=True, norm="batch", depth=2, whole=True)
    wanted = Wanted(((True,) * 3,) * 2, gaps=True, overwrite=False)
    forward = wide_plans._build_forward(config, shape, "tf32x3", 1e-5, 0.1)
    return [forward, wide_plans._build_backward(config, shape, "tf32x3", wanted)]


PLANS = {
    "one direction": lambda: _plans("paper-100k", 8, 10_000)[2:],
    "both directions": lambda: _plans("eigenworms", 10, 17_984)[2:],
    "wide": _wide_plans,
}


def _source(launch: _Launch) -> ASTSource:
    """A launch as the compiler is given it."""
    signature: dict[str, str] = {}
    constants = {name: value for name, value in launch.flags.items() if name not in OPTIONS}
    attributes: dict[tuple[int, ...], Any] = {}
    for k, (parameter, value) in enumerate(zip(launch.kernel.params, launch.arguments, strict=False)):
        if isinstance(value, Buffer):
            signature[parameter.name] = "*i1" if parameter.name == "valid" else POINTERS[value.dtype]
        elif isinstance(value, int):
            signature[parameter.name] = "i32"
        else:
            signature[parameter.name] = "fp32"
        if parameter.name not in constants and isinstance(value, Buffer) and value.offset % 4 == 0:
            attributes[k,] = [["tt.divisibility", 16]]
    signature |= {name: "constexpr" for name in launch.kernel.arg_names if name not in signature}
    return ASTSource(fn=launch.kernel, signature=signature, constexprs=constants, attrs=attributes)


def _launches(plans: list[LaunchPlan]) -> list[_Launch]:
    """One of each kernel and its flags."""
    found = [step for plan in plans for step in plan._launches if isinstance(step, _Launch)]
    return list({(step.kernel, tuple(sorted(step.flags.items()))): step for step in found}.values())


def _compile(launch: _Launch) -> Any:
    options = {key: value for key, value in launch.flags.items() if key in OPTIONS}
    return triton.compile(_source(launch), target=HOPPER, options=options)


def test_no_loop_assigns_its_own_variable() -> None:
    # Triton 3.5 would carry it from one round to the next, and finds that it changes its type.
    files = list(Path(tides.kernels.triton.__file__).parent.glob("*_kernels.py"))
    assert len(files) > 15
    for file in files:
        for loop in (
            node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.For)
        ):
            names = [node for part in loop.body for node in ast.walk(part) if isinstance(node, ast.Name)]
            assigned = {name.id for name in names if isinstance(name.ctx, ast.Store)}
            assert ast.unparse(loop.target) not in assigned, f"{file.name}, line {loop.lineno}"


def _loop(ptx: str) -> tuple[str, str]:
    """What stands before the longest stretch of a program that is repeated, and that stretch."""
    labels = {found[1]: found.start() for found in re.finditer(r"^(\$\w+):", ptx, re.MULTILINE)}
    jumps = [(labels[found[1]], found.start()) for found in re.finditer(r"\bbra(?:\.uni)?\s+(\$\w+);", ptx)]
    start, stop = max(jumps, key=lambda jump: jump[1] - jump[0])
    return ptx[:start], ptx[start:stop]


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
def test_kernels_compile_for_a_gpu_that_is_not_there(name: str) -> None:
    for launch in _launches(PLANS[name]()):
        assert len(_compile(launch).asm["cubin"]) > 0


@pytest.mark.slow
def test_tiles_do_not_cross_the_shared_memory_between_products() -> None:
    found = set()
    for launch in _launches(PLANS["one direction"]()):
        name = launch.kernel.fn.__name__.removesuffix("_kernel")
        if name in THROUGH_TILES:
            matrices, tiles = _loop(_compile(launch).asm["ptx"])
            assert "st.shared" in matrices, f"{name}: matrices do not stay there"
            assert "wgmma.mma_async" in tiles, f"{name}: no products of a Hopper"
            assert "st.shared" not in tiles, f"{name}: the compiler lays out tiles in another order than products"
            found.add(name)
    assert found == THROUGH_TILES
