"""The layer and the block without a model around them: doors that are checked, and steps."""

from typing import Any

import pytest
import torch

from tests.nn.models import small_config
from tides.errors import ShapeError
from tides.nn import SSM, Block

LAYERS = {"ssm": SSM, "block": Block}


def layer(kind: str, **fields: Any) -> SSM | Block:
    torch.manual_seed(0)
    made: SSM | Block = LAYERS[kind](small_config(**fields)).double().eval()
    return made


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("hold", ["following", "preceding"])
@torch.no_grad()
def test_steps_are_the_sequence(kind: str, hold: str) -> None:
    made = layer(kind, hold=hold)
    u, gaps = torch.randn(2, 5, 4).double(), torch.rand(2, 5).double()
    wanted, last = made(u, gaps, state=made.init_state(2))
    state = made.init_state(2)
    for k in range(5):
        y, state = made.step(u[:, k], gaps[:, k], state)
        torch.testing.assert_close(y, wanted[:, k])
    torch.testing.assert_close(made.advance(state, gaps[:, 0]).s, made.advance(last, gaps[:, 0]).s)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize(
    ("u", "gaps"),
    [
        (torch.zeros(2, 6, 4), torch.ones(2, 5)),
        (torch.zeros(2, 6, 4), torch.ones(2, 7)),
        (torch.zeros(2, 6, 4), torch.ones(6)),
        (torch.zeros(2, 6, 3), torch.ones(2, 6)),
        (torch.zeros(6, 4), torch.ones(6)),
        (torch.zeros(2, 6, 4), 1.0),
    ],
    ids=lambda one: str(tuple(one.shape) if isinstance(one, torch.Tensor) else one),
)
def test_shapes_that_do_not_fit_are_named(kind: str, u: torch.Tensor, gaps: Any) -> None:
    made = layer(kind).float()
    with pytest.raises(ShapeError, match=r"wanted \(b, l, 4\) and \(b, l\)"):
        made(u, gaps)
