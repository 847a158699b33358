"""Attributions add up to the answer; what was not seen gets exactly nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.explain.models import batch, classifier, forecaster
from tides.errors import ConfigError, DataError, ShapeError
from tides.explain import attribute
from tides.explain.asking import ask


@pytest.mark.parametrize("pool", ["mean", "last", "time"])
def test_they_add_up_to_the_answer(pool: str) -> None:
    model, given = classifier(pool=pool), batch()
    found = attribute(model, given, target=1)
    torch.testing.assert_close(found.answer, ask(model, given)[:, 1])
    assert float(found.answer.sub(found.reference).abs().min()) > 1e-3
    assert float(found.incompleteness.abs().max()) < 1e-6


def test_they_pass_through_a_summary() -> None:
    """Extremes have kinks, where the path goes from one value to another: many nodes see them well enough."""
    model, given = classifier(summary=True), batch()
    found = attribute(model, given, target=1, steps=512)
    assert bool(torch.isfinite(found.values).all())
    torch.testing.assert_close(found.answer, ask(model, given)[:, 1])
    assert float(found.incompleteness.abs().max()) < 1e-2 * float(found.answer.sub(found.reference).abs().max())
    with torch.no_grad():
        model.head.weight[:, : model.config.hidden_size] = 0
    found = attribute(model, given, target=1)
    assert bool((found.values[given.observed] != 0).all())
    assert bool((found.values[~given.observed] == 0).all())


def test_gradients_may_be_switched_off_around_it() -> None:
    model, given = classifier(), batch()
    with torch.no_grad():
        found = attribute(model, given, target=1)
    assert torch.equal(found.values, attribute(model, given, target=1).values)
    assert not found.values.requires_grad


@pytest.mark.parametrize("mode", ["steps", "readout"])
def test_forecasts_too(mode: str) -> None:
    model, given = forecaster(mode=mode), batch(queries=2)
    found = attribute(model, given, target=(1, 0))
    torch.testing.assert_close(found.answer, ask(model, given)[:, 1, 0])
    assert float(found.incompleteness.abs().max()) < 1e-6
    both = attribute(model, given, target=lambda answers: answers.sum((1, 2)))
    assert float(both.incompleteness.abs().max()) < 1e-6


def test_padding_and_missing_entries_get_exactly_none() -> None:
    model, given = classifier(), batch()
    spoilt = replace(given, values=torch.where(given.observed, given.values, torch.full_like(given.values, 99.0)))
    for one in (given, spoilt):
        found = attribute(model, one, target=0)
        assert bool((found.values[~given.observed] == 0).all())
        assert bool((found.values[given.observed] != 0).any())
    assert bool((~given.observed & given.valid.unsqueeze(-1)).any())
    assert bool((~given.valid).any())


def test_a_linear_answer_is_attributed_exactly() -> None:
    """f = Σ w x: φ = w (x − x'), whatever the quadrature."""
    given = batch()
    weight = torch.randn(given.values.shape[1:]).double()

    class Linear(torch.nn.Module):
        def forward(self, x: torch.Tensor, gaps: torch.Tensor, **_: object) -> torch.Tensor:
            return (x * weight).sum((1, 2)).unsqueeze(1)

    found = attribute(Linear().eval(), given, baseline=torch.tensor([0.25, -1.0]), steps=1)
    start = torch.tensor([0.25, -1.0]).double().expand_as(given.values)
    wanted = torch.where(given.observed, weight * (given.values - start), torch.zeros_like(given.values))
    torch.testing.assert_close(found.values, wanted)
    # A model that stores no mean is compared with zeros.
    bare = attribute(Linear().eval(), given, steps=1)
    torch.testing.assert_close(bare.values, torch.where(given.observed, weight * given.values, torch.zeros(1).double()))


def test_the_training_mean_is_the_default_baseline() -> None:
    model, given = classifier(), batch()
    mean = model.backbone.calibration.shift
    assert bool((mean != 0).all())
    found, wanted = (
        attribute(model, given, target=0, steps=2),
        attribute(model, given, target=0, baseline=mean, steps=2),
    )
    torch.testing.assert_close(found.values, wanted.values)
    start = replace(given, values=torch.where(given.observed, mean, given.values))
    torch.testing.assert_close(found.reference, ask(model, start)[:, 0])


def test_the_predicted_class_is_the_default() -> None:
    model, given = classifier(), batch()
    torch.testing.assert_close(attribute(model, given, steps=1).answer, ask(model, given).amax(-1))


def test_lists_arrays_and_numpys_integers_are_arguments_like_others() -> None:
    model, given = classifier(), batch()
    wanted = attribute(model, given, target=1, baseline=torch.tensor([0.25, -1.0]), steps=2)
    for baseline in ([0.25, -1.0], np.array([0.25, -1.0])):
        found = attribute(model, given, target=np.int64(1), baseline=baseline, steps=np.int64(2))  # type: ignore[arg-type]
        torch.testing.assert_close(found.values, wanted.values)


def test_wrong_questions_are_refused() -> None:
    model, given = classifier(), batch()
    with pytest.raises(ShapeError, match="target"):
        attribute(model, given, target=3)
    with pytest.raises(ShapeError, match="query"):
        attribute(forecaster(), batch(queries=2))
    with pytest.raises(ShapeError, match="baseline"):
        attribute(model, given, target=0, baseline=torch.zeros(5))
    with pytest.raises(DataError, match="baseline: found 'none', wanted one finite number for each of 2 channels"):
        attribute(model, given, target=0, baseline="none")
    with pytest.raises(DataError, match=r"baseline: found \[nan, 0.0\]"):
        attribute(model, given, target=0, baseline=[float("nan"), 0.0])
    for steps in (0, 1.5, "a"):
        with pytest.raises(ConfigError, match=r"steps: found .*, wanted an integer ≥ 1"):
            attribute(model, given, target=0, steps=steps)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="batch: found no query times; a forecaster needs"):
        attribute(forecaster(), given, target=(0, 0))
    with pytest.raises(DataError, match="batch: found query times, wanted none"):
        attribute(model, batch(queries=2), target=0)
    with pytest.raises(ShapeError, match="target: found 'calm'"):
        attribute(model, given, target="calm")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="found list, wanted what"):
        attribute(model, [given])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="found str, wanted a network"):
        attribute("model", given)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="training mode"):
        attribute(model.train(), given)
