"""Baselines on a GPU: the answers of the CPU, and training steps that can be captured as CUDA graphs."""

import pytest
import torch

from tests.baselines.small import CHANNELS, CLASSES, SMALL, answer, draw
from tides import baselines
from tides.training import TrainConfig
from tides.training.lanes import Member, ResidentSeries, fit_side_by_side

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("name", baselines.names())
def test_answers_of_the_cpu(name: str) -> None:
    batch = draw()
    torch.manual_seed(0)
    model = baselines.build(name, **SMALL[name]).eval()
    single = batch._replace(values=batch.values.float(), gaps=batch.gaps.float())
    with torch.no_grad():
        expected = answer(name, model, single)
        moved = type(single)(*(x.cuda() for x in single))
        found = answer(name, model.cuda(), moved).cpu()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", baselines.names("classification"))
def test_seeds_side_by_side(name: str) -> None:
    """Two seeds for two epochs, every step a CUDA graph: finite losses, and each model ends elsewhere."""
    source = torch.Generator().manual_seed(0)
    values = torch.randn(24, 16, CHANNELS, generator=source).cuda()
    times = torch.rand(24, 16, generator=source, dtype=torch.float64).cumsum(1).cuda()
    data = ResidentSeries(values, times, (torch.arange(24) % CLASSES).cuda())
    members = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        model = baselines.build(name, **SMALL[name]).cuda()
        model.calibrate(times.diff(dim=1))  # type: ignore[operator]
        rows = torch.arange(24).cuda()
        members.append(Member(model, data, rows[:16], data.rows(rows[16:]), seed))
    config = TrainConfig(epochs=2, batch_size=8, optimiser="adam", lr=1e-2, schedule="constant")
    for finish in fit_side_by_side(members, config):
        assert finish.stopped == "epochs"
    first, second = (torch.cat([p.detach().flatten() for p in member.model.parameters()]) for member in members)
    assert first.isfinite().all()
    assert not torch.equal(first, second)
