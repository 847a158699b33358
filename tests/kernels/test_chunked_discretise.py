"""Intervals on a CPU are made in blocks of steps; where blocks begin changes nothing."""

import pytest
import torch

import tides.kernels.chunked.discretise as module
from tests.comparison import assert_close
from tests.tolerances import EXACT
from tides.functional import discretise
from tides.kernels.chunked.discretise import zoh_interval


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("block", [1, 50, 10**6])
def test_blocks_of_steps(monkeypatch: pytest.MonkeyPatch, block: int, static: bool) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    torch.manual_seed(0)
    b, l, p = 3, 13, 4
    decay = -torch.rand(b, 1 if static else l, p, dtype=torch.float64)
    frequency = 20 * torch.randn(b, 1, p, dtype=torch.float64)
    delta = 10 ** (3 * torch.randn(b, l, 1, dtype=torch.float64)) * torch.rand(b, 1, p, dtype=torch.float64)
    wanted = discretise(torch.complex(*torch.broadcast_tensors(decay, frequency)), delta)
    for with_slope in (False, True):
        found = zoh_interval(decay, frequency, delta, with_slope=with_slope)
        assert (found.slope is None) is not with_slope
        for ours, theirs in zip(found, wanted, strict=False):
            assert_close(ours, theirs, EXACT)
    monkeypatch.undo()
    assert torch.equal(found.slope, zoh_interval(decay, frequency, delta, with_slope=True).slope)
