"""The tail of a block in torch, block of rows by block of rows, against its definition."""

import pytest
import torch
from torch import Tensor

from tests.comparison import assert_close
from tests.tolerances import EXACT
from tides.functional import tail as plain
from tides.kernels import tail


def operands(h: int = 4, f: int = 3) -> list[Tensor]:
    """x, y and the six weights, all of different sizes where they may be."""
    shapes = [(2, 5, h), (2, 5, h), (f, h), (f,), (f, h), (f,), (h, f), (h,)]
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("rows", [1, 3, 5, 2048])
def test_output_and_every_gradient_equal_the_definition(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Ten rows in blocks of one, of three with a shorter last one, of five, and at once."""
    monkeypatch.setitem(tail._ROWS, "cpu", rows)
    leaves = operands()
    names = ("x", "y", *plain.TailWeights._fields)
    results = []
    for function in (tail.gated_tail, plain.gated_tail):
        x, y, *weights = leaves
        output = function(x, y, plain.TailWeights(*weights))
        gradients = torch.autograd.grad((output * torch.arange(1.0, 5).double()).sum() + output.square().sum(), leaves)
        results.append((output, *gradients))
    for name, found, wanted in zip(("output", *names), *results, strict=True):
        assert_close(found, wanted, EXACT, name)


def test_inputs_far_below_zero_pass_nothing_on() -> None:
    """GELU and its slope vanish there, and no gradient is so small that it slows down what comes after it."""
    x, y, *weights = operands()
    far = torch.full_like(y, -40.0, requires_grad=True)
    output = tail.gated_tail(x, far, plain.TailWeights(*weights))
    assert_close(output, plain.gated_tail(x, far, plain.TailWeights(*weights)), EXACT)
    (gradient,) = torch.autograd.grad(output.sum(), far)
    assert float(gradient.abs().max()) < 1e-15
    assert bool(((gradient == 0) | (gradient.abs() > torch.finfo(torch.float64).tiny)).all())
