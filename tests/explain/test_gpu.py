"""On a GPU every explanation is what it is on the CPU, and stays on its device; plots take it from there."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.explain.models import batch, classifier, forecaster
from tests.tolerances import IDENTITY
from tides import explain
from tides.data import IrregularBatch

pytestmark = pytest.mark.gpu


def suggest(members: list[Any], asked: IrregularBatch) -> explain.Suggestion:
    return explain.suggest_next_time(members, asked, [1.0, 20.0], cost=torch.tensor([1.0, 2.0]), samples=3)


EXPLANATIONS: dict[str, Callable[[list[Any], IrregularBatch], Any]] = {
    "attribution": lambda models, asked: explain.attribute(models[0], asked, target=1),
    "later": lambda models, asked: explain.sampled_later(models[0], asked, [0.1, 2.0]),
    "removal": lambda models, asked: explain.remove_each(models[0], asked),
    "suggestion": suggest,
}


@pytest.mark.parametrize("name", EXPLANATIONS)
def test_it_equals_that_of_the_cpu(name: str) -> None:
    torch.manual_seed(0)
    forecast = name == "suggestion"
    models = [forecaster(), forecaster()] if forecast else [classifier()]
    asked = batch(queries=2 if forecast else 0)
    there = EXPLANATIONS[name](models, asked)
    here = EXPLANATIONS[name]([model.cuda() for model in models], asked.to("cuda"))
    for field in fields(there):
        wanted, found = getattr(there, field.name), getattr(here, field.name)
        if isinstance(wanted, torch.Tensor):
            assert found.is_cuda
            found = found.cpu()
        torch.testing.assert_close(found, wanted, rtol=IDENTITY, atol=IDENTITY)


def test_plots_take_it_from_there(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    torch.manual_seed(0)
    model, asked = classifier().cuda(), batch().to("cuda")
    explain.plot_clock(explain.clock(model, asked), tmp_path / "clock.png")
    explain.plot_attribution(explain.attribute(model, asked, target=1), asked, tmp_path / "attribution.png")
    explain.plot_later(explain.sampled_later(model, asked, [0.1, 2.0]), tmp_path / "later.png")
    explain.plot_removal(explain.remove_each(model, asked), asked, tmp_path / "removal.png")
    assert len(list(tmp_path.glob("*.png"))) == 4
