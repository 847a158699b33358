"""The triton kernels in interpreter mode, on the CPU and in small tiles: run as a program with TRITON_INTERPRET=1.

`layers` (the parts of a block), `blocks` (a few whole ones), `parts` (of a batch), `wide-blocks`, `passes`, `halves` or
`addresses` says what to check; with `all-` in front there is more of `blocks`, `parts`, `wide-blocks`, `halves` and
`addresses`.
"""

import importlib
import sys
from typing import Any

import torch

from tests.functional.layers import Case, describe
from tests.kernels.address_check import check_the_check, checked_addresses
from tests.kernels.block_contract import (
    CASES,
    check_block,
    check_dropout,
    check_parts,
    check_stack,
    check_stacked,
    check_wide_block,
)
from tests.kernels.contract import Problem, check
from tests.kernels.halves_contract import check_halves
from tests.kernels.passes_contract import check_mixes, check_passes
from tides.functional.tail import TailWeights
from tides.functional.tail import gated_tail as plain_tail
from tides.kernels import use_backend
from tides.kernels.triton.tail import gated_tail

PROBLEMS = [
    Problem(Case("tides", rank=3), l=37, p=2, h=3, state=True),
    Problem(Case("tides", rank=3, norm=False, hold="preceding", discretisation="bilinear"), l=19, p=3, h=2, state=True),
    Problem(Case("tides-bc", rank="full", bidirectional=True), l=18, p=2, h=3, layout="valid"),
    Problem(Case("tides-lambda", hold="preceding", bidirectional=True), l=18, p=2, h=3),
    Problem(Case("s5"), l=33, p=2, h=2, layout="packed", state=True),
    Problem(Case("tides-full", rank=2, discretisation="dirac"), l=17, p=2, h=2),
    Problem(Case("mamba-s", rank=2), l=17, p=2, h=2),
]


def check_tail() -> None:
    torch.manual_seed(0)
    weights = TailWeights(*(torch.randn(*shape) for shape in ((7, 5), (7,), (7, 5), (7,), (5, 7), (5,))))
    x, y = torch.randn(2, 40, 5), torch.randn(2, 40, 5)
    outcomes = []
    for tail, dtype in ((plain_tail, torch.float64), (gated_tail, torch.float32)):
        leaves = [tensor.to(dtype).requires_grad_() for tensor in (x, y, *weights)]
        out = tail(leaves[0], leaves[1], TailWeights(*leaves[2:]))
        outcomes.append([out.detach(), *torch.autograd.grad(out.square().sum(), leaves)])
    for wanted, found in zip(*outcomes, strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-5 * wanted.abs().max().item())


def check_rows() -> None:
    """Maps and sums over rows, in one program and in several, with tiles that end in the middle."""
    rows = importlib.import_module("tides.kernels.triton.rows")
    for (b, l, d, h), programs in (((2, 9, 1, 5), 1), ((3, 300, 3, 16), 2), ((1, 1, 2, 33), 4)):
        rows._PROGRAMS = programs
        torch.manual_seed(l)
        tensors = [torch.randn(*shape).requires_grad_() for shape in ((b, l, d), (h, d), (h,))]
        x, weight, bias = tensors
        cotangent = torch.randn(b, h)
        outcomes = []
        for mapped in (torch.nn.functional.linear(x, weight, bias), rows.RowMap.apply(x, weight, bias)):
            total = rows.StepSum.apply(mapped) if outcomes else mapped.sum(1)
            outcomes.append((mapped, total, *torch.autograd.grad(total, tensors, cotangent)))
        for wanted, found in zip(*outcomes, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5 * wanted.abs().max().item())
        spread = cotangent.unsqueeze(1).expand(b, l, h)
        torch.testing.assert_close(rows.spread_steps(spread), spread, rtol=0, atol=0)


def check_selective_scan() -> None:
    """Several sizes and tiles, against states made one after another in float64."""
    module = importlib.import_module("tides.kernels.triton.selective")
    for b, l, e, n, tile in ((2, 9, 5, 3, 512), (2, 11, 6, 5, 16), (1, 1, 3, 4, 8), (3, 7, 4, 16, 16)):
        torch.manual_seed(l)
        module._TILE = tile
        tensors = (
            torch.randn(b, l, e),
            torch.rand(b, l, e),
            torch.randn(b, l, n),
            torch.randn(b, l, n),
            -torch.rand(e, n),
        )
        outcomes = []
        for scan, dtype in ((_plain_selective_scan, torch.float64), (module.selective_scan, torch.float32)):
            leaves = [tensor.to(dtype).requires_grad_() for tensor in tensors]
            out = scan(*leaves)
            outcomes.append([out.detach(), *torch.autograd.grad(out.square().sum(), leaves)])
        for wanted, found in zip(*outcomes, strict=True):
            torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-5 * wanted.abs().max().item())


def _plain_selective_scan(
    u: torch.Tensor, delta: torch.Tensor, drive: torch.Tensor, readout: torch.Tensor, decay: torch.Tensor
) -> torch.Tensor:
    s, answers = torch.zeros(len(u), *decay.shape, dtype=u.dtype), []
    for k in range(u.shape[1]):
        s = torch.exp(delta[:, k, :, None] * decay) * s + (delta * u)[:, k, :, None] * drive[:, k, None]
        answers.append((s @ readout[:, k, :, None]).squeeze(-1))
    return torch.stack(answers, dim=1)


def check_layers() -> None:
    with use_backend("triton"):
        for problem in PROBLEMS:
            check(problem, "cpu")
            print("equal to the reference:", describe(problem.case), flush=True)
    check_tail()
    check_rows()
    check_selective_scan()
    print(f"{len(PROBLEMS)} layers, the tail and rows")


def check_batches(everything: bool) -> None:
    """A batch in parts; with `everything` of several kinds and in several ranges, which end in the middle of a tile."""
    tiles = importlib.import_module("tides.kernels.triton.block_tiles")
    gradients = importlib.import_module("tides.kernels.triton.block_gradients")
    # Every tile fetches its matrices; in `check_blocks` they stay. And tiles lie as for another Triton.
    order = importlib.import_module("tides.kernels.triton.tile_kernels")
    order.FIRST = type(order.FIRST)(not order.FIRST.value)
    tiles.TILES.update({name: tile._replace(rows=16, resident=False) for name, tile in tiles.TILES.items()})
    gradients._ROWS = 16
    if not everything:
        check_parts("cpu", 3, (3, 2, 2), CASES[2], keeps=False, again=False)
        print("parts of 1 batches")
        return
    gradients._RANGE = (16, 16)
    for number, case in enumerate(CASES[:3]):
        check_parts("cpu", 11, (3, 2, 2), case, keeps=number == 0)
        print("a batch equals its parts:", case, flush=True)
    print("parts of 3 batches")


def check_blocks(cases: list[dict[str, Any]]) -> None:
    tiles, gradients, sums, config = (
        importlib.import_module(f"tides.kernels.triton.block_{part}")
        for part in ("tiles", "gradients", "sums", "config")
    )
    gradients._ROWS = 16
    tiles.TILES.update({name: tile._replace(rows=16) for name, tile in tiles.TILES.items()})
    # Several tiles per program, splits per range, ranges per part and, mostly, parts per batch: one sequence each.
    gradients._PROGRAMS = gradients._TAIL_PROGRAMS = sums._PROGRAMS = sums._TILES = 1
    gradients._RANGE = (16, 16)
    kept, part = config._KEPT, config._PART
    config._FEWEST = 1
    for number, case in enumerate(cases):
        # States are kept or made again.
        config._KEPT = kept if number % 3 == 2 else 0
        config._PART = part if number % 4 == 3 else 300
        # Of rank 3 the constant behind a code is multiplied together with it, of rank 2 by itself. The gradients of 3
        # modes' states lend their room to the tail where there are two directions.
        check_block(case, (3, 3 - number % 2, 2 + number % 2), 19, number % 2 == 1, "cpu")
        print("a block equals its parts:", case, flush=True)
    gradients._RANGE = (64, 64)
    for padded, depth in ((True, 3), (False, 1)) if len(cases) > 1 else ((False, 2),):
        # Blocks share what they make, or keep it, in several parts.
        for config._KEPT, config._PART in ((0, part), (kept, 110)):
            check_stack("cpu", 6, (3, 2, 2), padded=padded, depth=depth)
    check_stacked("cpu", 7)
    check_dropout("cpu", 7)
    print(f"{len(cases)} blocks, stacked models and dropout")


def check_wide_blocks(everything: bool) -> None:
    """Whole batches and, with `everything`, parts of 64 rows; sequences end within a tile, sums are made in pieces."""
    mixes = importlib.import_module("tides.kernels.triton.wide_mix")
    importlib.import_module("tides.functional.products")._LEAST_ROWS = 2
    cases = [case for case in CASES if case.get("rank") != "full"] if everything else [CASES[1]]
    for number, case in enumerate(cases):
        parts = number % 2 == 1
        mixes._PART = 1 if parts else 1 << 26
        sizes = (33, 18, 2 + number % 2)
        check_wide_block(case, sizes, 33 if parts else 5, not parts, "cpu", training=number % 3 != 2)
        print("a wide block equals its parts:", case, flush=True)
    mixes._PART = 1 << 26
    check_stack("cpu", 4, (33, 18, 2), padded=everything, depth=2, function="WideFunction")
    if everything:
        check_dropout("cpu", 7, (34, 18, 2))
    print(f"{len(cases)} wide blocks and a stack")


def check_bilinear_forms() -> None:
    """One row, uneven rows and several programs; tiles with and without an unused part."""
    shapes = [(1, 1, 1, 1), (1, 63, 5, 16), (2, 17, 33, 33), (5, 5, 5, 100), (1, 7, 3, 192), (1, 130, 1, 3)]
    for shape in shapes:
        for dtype in (torch.float32, torch.float64):
            check_passes("triton", *shape, dtype, "cpu")
    for norm in (True, False):
        check_mixes("triton", 2, 9, 7, 3, 2, norm, "cpu", 1e-4)
        check_mixes("triton", 2, 9, 3, 4, 4, norm, "cpu", 1e-4)
    print(f"{len(shapes)} shapes of every pass")


def check_addresses(everything: bool) -> None:
    """Blocks, and with `everything` scans, in the tiles of a GPU; ranges, chunks and tiles end in the middle."""
    check_the_check()
    gradients = importlib.import_module("tides.kernels.triton.block_gradients")
    config = importlib.import_module("tides.kernels.triton.block_config")
    gradients._RANGE, config._KEPT, config._FEWEST = (64, 100), 0, 1
    part = config._PART
    blocks: list[tuple[dict[str, Any], tuple[int, int, int], int]] = [({"bidirectional": True}, (3, 2, 3), 37)]
    if everything:
        blocks += [({}, (32, 16, 8), 137), ({"compat": "release", "bidirectional": True}, (16, 16, 16), 41)]
        blocks += [({}, (20, 5, 1), 70), ({"rank": "full"}, (6, 3, 2), 33), ({"projector_norm": False}, (5, 32, 7), 65)]
    for number, (case, sizes, l) in enumerate(blocks):
        # One sequence in a part, or both.
        config._PART = l * sizes[1] * 8 if number % 3 < 2 else part
        with checked_addresses() as memory:
            check_block(case, sizes, l, number % 2 == 0, "cpu")
        assert memory.checked > 10_000
        print("addresses of a block:", case, sizes, memory.checked, flush=True)
    wide = [({}, (33, 18, 2), 5, True)]
    if everything:
        wide += [({"bidirectional": True}, (33, 18, 3), 70, False), ({"projector_norm": False}, (40, 33, 2), 9, True)]
    for case, sizes, l, padded in wide:
        with checked_addresses() as memory:
            check_wide_block(case, sizes, l, padded, "cpu")
        assert memory.checked > 10_000
        print("addresses of a wide block:", case, sizes, memory.checked, flush=True)
    scans = [problem._replace(l=l) for problem in PROBLEMS for l in (1, 7, 65, 130)] if everything else []
    for problem in scans:
        with checked_addresses() as memory, use_backend("triton"):
            check(problem, "cpu")
        print("addresses of a scan:", describe(problem.case), problem.l, memory.checked, flush=True)
    if everything:
        with checked_addresses():
            check_stacked("cpu", 70)
    print(f"addresses of {len(blocks)} blocks, {len(wide)} wide blocks and {len(scans)} scans")


def main(what: str) -> None:
    if what.endswith("addresses"):
        check_addresses(what != "addresses")
        return
    # Tiles of a few steps: chunks, carries and their borders all occur in short sequences.
    evolve = importlib.import_module("tides.kernels.triton.evolve")
    evolve._LANES, evolve._STEPS, evolve._CARRY_CHUNKS = 8, (8, 8, 8), 2
    if what == "layers":
        check_layers()
    elif what == "passes":
        check_bilinear_forms()
    elif what.endswith("parts"):
        check_batches(what != "parts")
    elif what.endswith("wide-blocks"):
        check_wide_blocks(what != "wide-blocks")
    elif what.endswith("halves"):
        print(f"products of halves, and blocks of {check_halves(what != 'halves')} scales")
    else:
        check_blocks(CASES if what == "all-blocks" else [CASES[1]])


if __name__ == "__main__":
    main(sys.argv[1])
