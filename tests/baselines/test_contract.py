"""What every baseline in the registry must do, whatever it is inside."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

import tides
from tests.baselines.small import CHANNELS, CLASSES, SMALL, answer, draw, make
from tides import baselines
from tides.errors import ConfigError, ShapeError

NAMES = baselines.names()
CLASSIFIERS, FORECASTERS = baselines.names("classification"), baselines.names("forecasting")
LEARNED = tuple(name for name in NAMES if getattr(baselines.entry(name).model_class(), "trainable", True))


def gradients(name: str, batch: object, model: torch.nn.Module) -> dict[str, Tensor]:
    if name not in LEARNED:
        return {}
    model.zero_grad()
    output = answer(name, model, batch)  # type: ignore[arg-type]
    output[:, 0].square().sum().backward()
    return {key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}


def test_every_model_has_a_small_configuration() -> None:
    assert set(SMALL) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_shape_and_finite_answers(name: str) -> None:
    batch = draw()
    output = answer(name, make(name).eval(), batch)
    wanted = (3, CLASSES) if name in CLASSIFIERS else (3, batch.query_times.shape[1], CHANNELS)
    assert output.shape == wanted
    assert output.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_padding_changes_nothing(name: str) -> None:
    """Outputs, gradients and running statistics, in training mode too."""
    batch = draw()
    queries = batch.query_times.shape[1]
    for mode in (True, False):
        short, long = make(name).train(mode), make(name).train(mode)
        for attempt in (short, long):
            torch.manual_seed(1)
            answer(name, attempt, batch if attempt is short else batch.padded(3))
        torch.manual_seed(1)
        expected = answer(name, short, batch)
        torch.manual_seed(1)
        found = answer(name, long, batch.padded(3))
        if name in FORECASTERS:
            assert not found[:, queries:].any()
            found = found[:, :queries]
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
        torch.manual_seed(1)
        wanted = gradients(name, batch, short)
        torch.manual_seed(1)
        torch.testing.assert_close(gradients(name, batch.padded(3), long), wanted, rtol=1e-7, atol=1e-9)
        for key, buffer in short.state_dict().items():
            torch.testing.assert_close(long.state_dict()[key], buffer, rtol=1e-8, atol=1e-10, msg=key)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_no_marks_mean_no_padding(name: str) -> None:
    model, batch = make(name).eval(), draw(lengths=(9, 9))
    marked = model(batch.values, batch.gaps, observed=batch.observed, valid=batch.valid)
    torch.testing.assert_close(model(batch.values, batch.gaps, observed=batch.observed), marked)


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_the_batch_does_not_matter(name: str) -> None:
    batch, order = draw(), torch.tensor([2, 0, 1])
    model = make(name).train()
    torch.manual_seed(1)
    expected = answer(name, model, batch)[order]
    torch.manual_seed(1)
    torch.testing.assert_close(answer(name, model, batch.rows(order)), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_a_series_does_not_depend_on_its_neighbours(name: str) -> None:
    batch, model = draw(), make(name).eval()
    alone = torch.cat([answer(name, model, batch.rows(torch.tensor([row]))) for row in range(3)])
    torch.testing.assert_close(alone, answer(name, model, batch), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", LEARNED)
def test_every_parameter_gets_a_finite_gradient(name: str) -> None:
    model = make(name).train()
    found = gradients(name, draw(), model)
    assert set(found) == {key for key, p in model.named_parameters() if p.requires_grad}
    for key, gradient in found.items():
        assert gradient.isfinite().all(), key


@pytest.mark.parametrize("name", NAMES)
def test_awkward_series(name: str) -> None:
    """One step, nothing observed, equal times: finite answers and gradients."""
    batch = draw(lengths=(5, 1, 2))
    observed = batch.observed.clone()
    observed[2] = False
    gaps, times = batch.gaps.clone(), batch.times.clone()
    gaps[0], times[0] = 0.0, 1.0
    batch = batch._replace(observed=observed, gaps=gaps, times=times)
    model = make(name).train()
    assert answer(name, model.eval(), batch).isfinite().all()
    for key, gradient in gradients(name, batch, model.train()).items():
        assert gradient.isfinite().all(), key


@pytest.mark.parametrize("name", NAMES)
def test_save_and_load(name: str, tmp_path: Path) -> None:
    batch, model = draw(), make(name)
    model.calibrate(batch.gaps, torch.zeros(CHANNELS), torch.full((CHANNELS,), 2.0))  # type: ignore[operator]
    answer(name, model.train(), batch)
    loaded = tides.load(tides.save(model, tmp_path / "model"))
    assert type(loaded) is type(model)
    assert loaded.config == model.config
    torch.testing.assert_close(answer(name, loaded, batch), answer(name, model.eval(), batch), rtol=0, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_configurations_are_strict(name: str) -> None:
    fields = SMALL[name]
    with pytest.raises(ConfigError, match=r"input_sizes: unknown field .* did you mean 'input_size'"):
        baselines.build(name, **fields, input_sizes=3)
    with pytest.raises(ConfigError, match="input_size: missing"):
        baselines.build(name, **{key: value for key, value in fields.items() if key != "input_size"})
    with pytest.raises(ConfigError, match="input_size: found '3'"):
        baselines.build(name, **{**fields, "input_size": "3"})
    with pytest.raises(ConfigError, match="input_size: found 0"):
        baselines.build(name, **{**fields, "input_size": 0})
    config = baselines.config_of(name, **fields)
    assert type(config).from_dict(config.to_dict()) == config


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_covariates_are_refused_in_words(name: str) -> None:
    batch = draw()
    with pytest.raises(ShapeError, match=r"static: found shape \(3, 2\)"):
        make(name)(batch.values, batch.gaps, observed=batch.observed, valid=batch.valid, static=torch.zeros(3, 2))


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'lru'"):
        baselines.build("lrru", input_size=1, classes=2)


@pytest.mark.parametrize("name", NAMES)
def test_predictions_do_not_depend_on_the_unit_of_time(name: str) -> None:
    batch = draw()
    answers = []
    for unit in (1.0, 3600.0):
        model = make(name).eval()
        model.calibrate(batch.gaps[batch.gaps > 0] * unit)  # type: ignore[operator]
        scaled = batch._replace(gaps=batch.gaps * unit, times=batch.times * unit, query_times=batch.query_times * unit)
        answers.append(answer(name, model, scaled))
    torch.testing.assert_close(answers[1], answers[0], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ["transformer", "rformer", "ncde", "nrde", "log-ncde", "gru-d"])
def test_time_counts_from_the_first_observation(name: str) -> None:
    """However long before it the series began: in single precision a sum from there would lose the gaps."""
    model, batch = make(name).float().eval(), draw()
    values, gaps = batch.values.float(), batch.gaps.float()
    wanted = model(values, gaps, observed=batch.observed, valid=batch.valid)
    gaps[:, 0] = 1e8
    torch.testing.assert_close(model(values, gaps, observed=batch.observed, valid=batch.valid), wanted)
