"""The triton kernels in interpreter mode, on the CPU and in small tiles: run as a program with TRITON_INTERPRET=1."""

import importlib

import torch

from tests.functional.layers import Case, describe
from tests.kernels.contract import Problem, check
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


def main() -> None:
    # Tiles of a few steps: chunks, carries and their borders all occur in short sequences.
    evolve = importlib.import_module("tides.kernels.triton.evolve")
    evolve._TILE, evolve._CARRY_CHUNKS = 32, 2
    with use_backend("triton"):
        for problem in PROBLEMS:
            check(problem, "cpu")
            print("equal to the reference:", describe(problem.case), flush=True)
    check_tail()
    print(f"{len(PROBLEMS)} layers and the tail")


if __name__ == "__main__":
    main()
