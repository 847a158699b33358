"""Embedded classification tasks as folds of one population."""

import pytest
import torch

from tides.experiments import config, regimes
from tides.experiments.ablations import cells


def test_a_fold_is_standardised_and_split() -> None:
    parts = regimes.load("regimes-calcium", 0, 60)
    assert [len(part) for part in parts] == [42, 12, 6]
    values = torch.cat([part.values[part.observed.any(-1)] for part in parts])
    seen = torch.cat([part.observed[part.observed.any(-1)] for part in parts])
    for channel in range(regimes.channels("regimes-calcium")):
        known = values[:, channel][seen[:, channel]]
        assert float(known.mean()) == pytest.approx(0, abs=1e-4)
        assert float(known.std()) == pytest.approx(1, abs=1e-2)
    assert 0 < parts.train.times.max() <= 1
    assert parts.train.targets is not None
    assert set(parts.train.targets.tolist()) == {0, 1, 2}
    assert not torch.equal(regimes.load("regimes-calcium", 1, 60).train.values, parts.train.values)


def test_scores_of_a_model_that_knows_nothing() -> None:
    resolved = config.load("ablations", "recommended", quick=True, settings=['datasets=["regimes-calcium"]'])
    cell = cells(resolved, variant="recommended", quick=True)[0]
    parts = regimes.load("regimes-calcium", 0, 60)
    model = regimes.build_model(cell.config, 0, parts.train)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    found = regimes.scores(model, parts.test)
    assert found["test_nll"] == pytest.approx(float(torch.log(torch.tensor(3.0))), rel=1e-5)
    assert found["test_accuracy"] == found["correct"] / found["cases"]
    # Every parameter was reset, but a fold's own seed decides where it starts.
    first, again, other = (regimes.build_model(cell.config, seed, parts.train).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
