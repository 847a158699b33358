"""An affine map of stacked models is one product, and equals torch's."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from tests.comparison import assert_close
from tests.tolerances import EXACT
from tides.training.stacked_linear import StackedLinear


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


AXES: list[tuple[int | None, ...]] = [(0, 0, 0), (None, 0, 0), (0, None, None), (1, 0, 0)]
# A single row has no second axis.
CASES = [(lead, axes) for lead in [(), (4,), (2, 3)] for axes in AXES if lead or axes[0] != 1]


@pytest.mark.parametrize(("lead", "axes"), CASES)
def test_values_and_gradients_are_those_of_torch(lead: tuple[int, ...], axes: tuple[int | None, ...]) -> None:
    m, h, o = 3, 5, 2
    shapes = [(*lead, h), (o, h), (o,)]
    leaves = []
    for shape, axis in zip(shapes, axes, strict=True):
        full = list(shape)
        if axis is not None:
            full.insert(axis, m)
        leaves.append(draw(*full))
    wanted = torch.vmap(F.linear, in_dims=axes)(*leaves)
    with StackedLinear():
        found = torch.vmap(F.linear, in_dims=axes)(*leaves)
    assert_close(found, wanted, EXACT)
    weight = torch.randn_like(wanted)
    for one, other in zip(
        torch.autograd.grad((found * weight).sum(), leaves),
        torch.autograd.grad((wanted * weight).sum(), leaves),
        strict=True,
    ):
        assert_close(one, other, EXACT)


def test_outside_of_vmap_and_without_a_bias_it_is_torch() -> None:
    x, weight, bias = draw(4, 5), draw(2, 5), draw(2)
    with StackedLinear():
        with_bias, without = F.linear(x, weight, bias), F.linear(x, weight)
    assert_close(with_bias, F.linear(x, weight, bias), EXACT)
    assert torch.equal(without, F.linear(x, weight))
    with StackedLinear():
        torch.autograd.gradcheck(lambda *leaves: F.linear(*leaves), (x, weight, bias))


def test_it_is_one_operation() -> None:
    class Names(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            self.seen.append(func.__name__.split(".")[0])
            return func(*args, **(kwargs or {}))

    x, weight, bias = draw(3, 4, 5), draw(3, 2, 5), draw(3, 2)
    with Names() as names, StackedLinear():
        torch.vmap(F.linear)(x, weight, bias)
    views = {
        "view",
        "permute",
        "slice",
        "select",
        "_unsafe_view",
        "unsqueeze",
        "transpose",
        "detach",
        "expand",
        "reshape",
        "_reshape_alias",
    }
    assert [name for name in names.seen if name not in views] == ["baddbmm"]
