"""How far a GPU's matrix products and its other instructions overlap, which bounds the passes of a block.

python benchmarks/gpu_overlap.py    # a Hopper GPU and Triton 3.6

Programs of two kinds share every processor: some multiply float16 matrices without pause, with results in registers,
the others do nothing but multiply and add, or round to float16 and back. Each kind alone takes about as long; what both
take together tells how much of one is free beside the other.
"""

import argparse
from collections.abc import Callable

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)

WARPS, ROWS, INNER = 4, 64, 32
KINDS = {"multiply and add": 0, "round": 1}
ROUNDS = 2000


@gluon.jit
def multiply(out, rounds, N: gl.constexpr):
    """(ROWS, INNER) times (INNER, N), four times a round, the left side in registers."""
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, N, 16])
    left: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=layout, k_width=2)
    shared: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=64, element_bitwidth=16, rank=2)
    rows: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [4, 1], [1, 0])
    a = gl.full([64, 32], 1.0, gl.float16, left) * gl.load(out).to(gl.float16)
    b = gl.allocate_shared_memory(gl.float16, [N, 32], shared, gl.full([N, 32], 0.5, gl.float16, rows))
    fence_async_shared()
    gl.thread_barrier()
    total = gl.zeros([64, N], gl.float32, layout)
    for _ in range(rounds):
        part = total
        for _ in gl.static_range(4):
            part = warpgroup_mma(a, b.permute((1, 0)), part, is_async=True)
        total = warpgroup_mma_wait(0, deps=[part])
    return gl.sum(gl.sum(total, axis=1), axis=0)


@gluon.jit
def compute(out, rounds, KIND: gl.constexpr):
    """Sixteen numbers of every thread, sixteen times a round."""
    x = gl.arange(0, 2048, gl.BlockedLayout([16], [32], [4], [0])).to(gl.float32)
    a = gl.load(out)
    b = gl.load(out + 1)
    for _ in range(rounds):
        for _ in gl.static_range(16):
            if KIND == 0:
                x = x * a + b
            else:
                x = (x * a).to(gl.float16).to(gl.float32)
    return gl.sum(x, axis=0)


@gluon.jit
def both_kernel(out, products, others, N: gl.constexpr, KIND: gl.constexpr, PROCESSORS: gl.constexpr):
    """Programs of both kinds in turn on every processor."""
    program = gl.program_id(0)
    if program // PROCESSORS % 2 == 0:
        if products > 0:
            gl.store(out + 8 + program, multiply(out, products, N))
    elif others > 0:
        gl.store(out + 8 + program, compute(out, others, KIND))


def microseconds(run: Callable[[], object]) -> float:
    """Median of five, after two to warm up."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    found = []
    for _ in range(7):
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        found.append(1e3 * begin.elapsed_time(end))
    return sorted(found[2:])[2]


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    out = 1e-3 * torch.rand(8 + 8 * processors, device="cuda")
    print("columns  others            programs  products  others  together")
    for n in (32, 64, 128):
        for kind, code in KINDS.items():
            for each in (1, 2):

                def run(products: int, others: int, n: int = n, code: int = code, each: int = each) -> float:
                    grid = (2 * each * processors,)
                    flags = {"N": n, "KIND": code, "PROCESSORS": processors, "num_warps": WARPS, "maxnreg": 128}
                    return microseconds(lambda: both_kernel[grid](out, products, others, **flags))

                alone = run(ROUNDS, 0)
                rounds = round(ROUNDS * alone / run(0, ROUNDS))
                other, together = run(0, rounds), run(ROUNDS, rounds)
                rate = ROUNDS * 8 * ROWS * INNER * n * each * processors / alone * 1e-6
                print(
                    f"{n:7}  {kind:16}  {each:8}  {rate:3.0f} TFLOP/s  {other / alone:4.2f}  "
                    f"{together / max(alone, other):4.2f} of the longer one"
                )


if __name__ == "__main__":
    main()
