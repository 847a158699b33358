"""Baselines on a GPU: the answers of the CPU, and training steps that can be captured as CUDA graphs."""

from copy import deepcopy

import pytest
import torch

from tests.baselines.small import CHANNELS, CLASSES, SMALL, answer, draw
from tides import baselines
from tides.baselines.s6 import SelectiveScan
from tides.data import IrregularBatch
from tides.training import Forecasting, TrainConfig, fit_population
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


TRAINED = [name for name in baselines.names("forecasting") if baselines.entry(name).model_class().trainable]


@pytest.mark.parametrize("name", TRAINED)
def test_folds_side_by_side(name: str) -> None:
    """Two folds for two epochs as one population: captured steps score as steps launched one by one do."""
    series = draw(lengths=(12, 7, 9, 12, 5, 8, 11, 12), queries=4)
    whole = IrregularBatch(
        values=series.values.float(),
        times=series.times,
        gaps=series.gaps.float(),
        observed=series.observed,
        valid=series.valid,
        targets=torch.randn(8, 4, CHANNELS, generator=torch.Generator().manual_seed(0)),
        query_times=series.query_times,
        query_valid=series.query_valid,
        target_observed=series.query_valid.unsqueeze(-1).expand(-1, -1, CHANNELS),
    )
    data = [(whole.rows(slice(5)), whole.rows(slice(5, 8))), (whole.rows(slice(3, 8)), whole.rows(slice(3)))]
    config = TrainConfig(epochs=2, batch_size=2, lr=1e-3, calibrate="none", schedule="constant")
    ends = []
    for graphs in (True, False):
        models = []
        for seed in range(2):
            torch.manual_seed(seed)
            models.append(
                baselines.build(
                    name,
                    **SMALL[name],
                ).cuda()
            )
        finishes = fit_population(models, Forecasting(), data, config, graphs=graphs, progress=False)
        assert [finish.stopped for finish in finishes] == ["epochs", "epochs"]
        ends.append([finish.best["val_loss"] for finish in finishes])
    # Not the weights: Adam turns the rounding of a vanishing gradient into a whole step.
    assert ends[0] == pytest.approx(ends[1], rel=1e-2)


@pytest.mark.parametrize("states", [3, 16, 256])
def test_gradients_of_a_selective_scan(states: int) -> None:
    """The fused operator against the composed scan on the CPU in float64, with sizes that fill no tile."""
    torch.manual_seed(0)
    mixer = SelectiveScan(37, states, step_rank=3)
    u, steps = torch.randn(2, 63, 37), torch.ones(1, 63)
    outcomes = []
    for device, dtype in (("cpu", torch.float64), ("cuda", torch.float32)):
        own = deepcopy(mixer).to(device, dtype)
        x = u.to(device, dtype).requires_grad_()
        y = own(x, steps.to(device, dtype))
        gradients = torch.autograd.grad(y.square().sum(), [x, *own.parameters()])
        outcomes.append([tensor.detach().double().cpu() for tensor in (y, *gradients)])
    for wanted, found in zip(*outcomes, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4 * wanted.abs().max().item())
