"""Blocks that are computed again in the backward pass give the same numbers and count their statistics once."""

import torch

from tests.comparison import assert_close
from tests.tolerances import EXACT
from tides import Backbone, TIDESConfig


def _gradients(net: Backbone, x: torch.Tensor, gaps: torch.Tensor) -> list[torch.Tensor]:
    torch.manual_seed(1)
    net.zero_grad()
    y, _ = net(x, gaps)
    y.square().sum().backward()
    return [y.detach(), *(parameter.grad.clone() for parameter in net.parameters())]


def test_recomputed_blocks_equal_kept_ones() -> None:
    config = TIDESConfig(
        input_size=3, hidden_size=8, state_size=4, depth=2, rank=3, projector_init="random", dropout=0.3
    )
    x, gaps = torch.randn(2, 30, 3, dtype=torch.float64), torch.rand(2, 30, dtype=torch.float64)
    kept, again = Backbone(config).double(), Backbone(config).double()
    again.load_state_dict(kept.state_dict())
    again.recompute_blocks()
    for found, wanted in zip(_gradients(again, x, gaps), _gradients(kept, x, gaps), strict=True):
        assert_close(found, wanted, EXACT)
    for found, wanted in zip(again.buffers(), kept.buffers(), strict=True):
        assert_close(found.double(), wanted.double(), EXACT, "running statistics")
