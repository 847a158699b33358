"""The fused block of the `cpu` backend against the composed float64 block."""

from typing import Any

import pytest
import torch

from tests.comparison import relative_error
from tests.kernels.block_contract import CASES, make_block, run
from tests.tolerances import FLOAT32_FORWARD, FLOAT32_GRADIENT, IDENTITY
from tides.kernels import block_operator, use_backend

pytest.importorskip("numba", reason="the cpu backend needs numba")


def check(case: dict[str, Any], sizes: tuple[int, int, int], l: int, padded: bool, dtype: torch.dtype) -> None:
    block = make_block(case, sizes)
    tail = block.glu.weights()
    assert tail is not None
    with use_backend("cpu"):
        assert block_operator(torch.zeros(1, l, sizes[0]), block.ssm.weights(), block.ssm.spec, tail) is not None
    wanted = run(block, "reference", torch.float64, "cpu", l, padded)
    found = run(make_block(case, sizes), "cpu", dtype, "cpu", l, padded)
    for name, value in wanted.items():
        bound = FLOAT32_GRADIENT if name.startswith("d ") else FLOAT32_FORWARD
        error = relative_error(found[name].double(), value)
        assert error < (bound if dtype == torch.float32 else IDENTITY), f"{name}: {error:.1e}"


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_block_equals_its_parts(case: dict[str, Any], padded: bool) -> None:
    check(case, (5, 2, 3), 70, padded, torch.float64)
    check(case, (5, 2, 3), 70, padded, torch.float32)


def test_a_block_of_the_papers_size_in_several_blocks_of_steps() -> None:
    check({}, (32, 16, 8), 700, True, torch.float32)


def test_threads_change_nothing_but_rounding() -> None:
    block = make_block({}, (32, 16, 8))
    alone = run(block, "cpu", torch.float32, "cpu", 900, False)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        shared = run(make_block({}, (32, 16, 8)), "cpu", torch.float32, "cpu", 900, False)
    finally:
        torch.set_num_threads(before)
    for name, value in alone.items():
        assert relative_error(shared[name].double(), value.double()) < 1e-5, name


def test_stacked_models_are_each_by_itself() -> None:
    blocks = [make_block({}, (5, 3, 2), seed).eval() for seed in (1, 2)]
    names = [name for name, _ in blocks[0].named_parameters()]
    x, gaps = torch.randn(2, 2, 40, 5), torch.rand(2, 40)
    stacked = {
        name: torch.stack([dict(block.named_parameters())[name].detach() for block in blocks]).requires_grad_()
        for name in names
    }
    with use_backend("cpu"):
        together = torch.func.vmap(
            lambda parameters, x: torch.func.functional_call(blocks[0], parameters, (x, gaps))[0]
        )(stacked, x)
        gradients = torch.autograd.grad(together.square().sum(), list(stacked.values()))
        for k, block in enumerate(blocks):
            alone = block(x[k], gaps)[0]
            torch.testing.assert_close(together[k], alone, rtol=1e-5, atol=1e-6)
            parts = torch.autograd.grad(alone.square().sum(), list(block.parameters()))
            for name, part, gradient in zip(names, parts, gradients, strict=True):
                assert relative_error(gradient[k].double(), part.double()) < FLOAT32_GRADIENT, name


def test_dropout_has_the_gradient_of_its_function() -> None:
    block = make_block({"dropout": 0.4}, (5, 3, 2)).double()
    block.train()
    x, gaps, direction = (
        torch.randn(2, 50, 5).double(),
        torch.rand(2, 50).double(),
        torch.randn(2, 50, 5).double(),
    )

    def value(x: torch.Tensor, seed: int = 3) -> torch.Tensor:
        torch.manual_seed(seed)
        with use_backend("cpu"):
            y: torch.Tensor = block(x, gaps)[0]
        return y

    assert torch.equal(value(x), value(x))
    assert (value(x) != value(x, seed=4)).double().mean() > 0.2, "another seed, other masks"
    x.requires_grad_()
    (gradient,) = torch.autograd.grad((value(x) * direction).sum(), x)
    with torch.no_grad():
        eps = 1e-6
        change = ((value(x + eps * direction) - value(x - eps * direction)) * direction).sum() / (2 * eps)
    torch.testing.assert_close((gradient * direction).sum(), change, rtol=1e-5, atol=1e-6)


def test_large_negative_inputs_leave_no_subnormal_gradients() -> None:
    from tides.kernels.cpu.block_loops import gelu_and_slope

    y = torch.linspace(-30, 30, 2000).numpy()
    active = y.copy()
    gelu_and_slope(y, active)
    wanted = torch.nn.functional.gelu(torch.linspace(-30, 30, 2000).double())
    assert (torch.from_numpy(active).double() - wanted).abs().max() < 3e-6
    for found in (torch.from_numpy(active), torch.from_numpy(y)):
        assert not ((found != 0) & (found.abs() < 1e-25)).any()
