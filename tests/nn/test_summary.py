"""Heads with a summary: what they know, and that streams, units, padding and hidden values do not change it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

import tides
from tests.comparison import assert_close
from tests.nn.models import CHANNELS, padding, small_config, unsettled, values_and_gaps
from tests.tolerances import EXACT, IDENTITY
from tides import kernels
from tides.errors import ConfigError, ShapeError
from tides.nn import Forecaster, SequenceClassifier, SequenceRegressor, TIDESConfig

POOLS = ("mean", "last", "time")


def model(**fields: Any) -> SequenceClassifier:
    return unsettled(SequenceClassifier(small_config(summary=True, mask_channels=True, **fields), 3))


def observed_rows(seed: int = 0, l: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    x, gaps = values_and_gaps(l=l)
    return x, gaps, torch.rand(x.shape) < 0.6


@pytest.mark.parametrize("pool", POOLS)
@settings(max_examples=5)
@given(seed=st.integers(0, 2**20), cut=st.integers(1, 7))
def test_pieces_and_steps_equal_the_whole(pool: str, seed: int, cut: int) -> None:
    """With time that passes in between, and a look at the answer at every moment."""
    one, (x, gaps, observed) = model(pool=pool), observed_rows(seed)
    whole = one(x, gaps, observed=observed)
    answer, state = one.read(x[:, :cut], gaps[:, :cut], one.init_state(3), observed=observed[:, :cut])
    assert_close(answer, one(x[:, :cut], gaps[:, :cut], observed=observed[:, :cut]), IDENTITY, "prefix")
    assert_close(one.peek(state, torch.zeros(3).double()), answer, IDENTITY, "peek")
    state = one.advance(state, 0.5 * gaps[:, cut])
    rest = torch.cat([0.5 * gaps[:, cut : cut + 1], gaps[:, cut + 1 :]], dim=1)
    answer, _ = one.read(x[:, cut:], rest, state, observed=observed[:, cut:])
    assert_close(answer, whole, IDENTITY, "pieces")
    state = one.init_state(3)
    for k in range(8):
        answer, state = one.step(x[:, k], gaps[:, k], state, observed=observed[:, k])
    assert_close(answer, whole, IDENTITY, "steps")


@pytest.mark.parametrize("fields", [{}, {"pool": "time"}, {"bidirectional": True}, {"pool": "last"}], ids=str)
def test_padding_changes_nothing(fields: dict[str, Any]) -> None:
    one, (x, gaps, observed) = model(**fields), observed_rows()
    wanted = one(x, gaps, observed=observed)
    more = torch.full((3, 4, CHANNELS), torch.nan).double()
    valid = padding([8, 8, 8], 12)
    known = torch.cat([observed, torch.ones(3, 4, CHANNELS, dtype=torch.bool)], dim=1)
    found = one(torch.cat([x, more], dim=1), torch.cat([gaps, more[..., 0]], dim=1), observed=known, valid=valid)
    assert_close(found, wanted, EXACT)


@pytest.mark.parametrize("factor", [1e-6, 60.0, 3.6e12])
def test_no_unit_matters(factor: float) -> None:
    """Neither that of time nor those of the channels, once both are calibrated."""
    x, gaps, observed = observed_rows()
    answers = []
    for times, values in ((1.0, 1.0), (factor, 1 / factor)):
        torch.manual_seed(1)
        one = model()
        shift, scale = torch.tensor([1.0, -2.0]).double() * values, torch.tensor([2.0, 0.5]).double() * values
        one.calibrate(gaps[:, 1:].flatten() * times, shift, scale)
        answers.append(one(x * values, gaps * times, observed=observed))
    assert_close(answers[1], answers[0], IDENTITY)


def test_the_head_begins_without_it() -> None:
    torch.manual_seed(0)
    one = SequenceRegressor(small_config(summary=True), 2, static_size=1)
    assert one.summary is not None
    assert not one.head.weight[:, -one.summary.size :].any()
    assert one.head.weight[:, : -one.summary.size].all()


def test_what_is_hidden_from_the_features_is_counted() -> None:
    one, (x, gaps, observed) = model(), observed_rows()
    with torch.no_grad():
        one.head.weight[:, :4] = 0
    hidden = observed & (torch.rand(observed.shape) < 0.5)
    told = one(x, gaps, observed=hidden, recorded=observed)
    assert torch.equal(told, one(x, gaps, observed=observed))
    assert not torch.equal(one(x, gaps, observed=hidden), told)


def test_a_saved_model_answers_the_same(tmp_path: Path) -> None:
    one, (x, gaps, observed) = model(), observed_rows()
    again: Any = tides.load(tides.save(one, tmp_path / "model"))
    assert torch.equal(again(x, gaps, observed=observed), one(x, gaps, observed=observed))


def test_configurations_of_earlier_versions_have_none() -> None:
    fields = {name: value for name, value in small_config().to_dict().items() if name != "summary"}
    assert SequenceClassifier(TIDESConfig.from_dict(fields), 3).summary is None


def test_models_side_by_side() -> None:
    models, (x, gaps, observed) = [model() for _ in range(2)], observed_rows()
    parameters, buffers = stack_module_state(models)

    def answer(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
        return functional_call(models[0], (parameters, buffers), (x, gaps), {"observed": observed})

    with kernels.use_backend("reference"):
        found = vmap(answer)(parameters, buffers)
        for k, one in enumerate(models):
            assert_close(found[k], one(x, gaps, observed=observed), EXACT, f"model {k}")


def test_what_does_not_fit_is_named() -> None:
    plain, one = unsettled(SequenceClassifier(small_config(), 3)), model()
    x, gaps, _ = observed_rows()
    with pytest.raises(ConfigError, match=r"summary_shift, summary_scale: the model was built without summary=True"):
        plain.calibrate_summary(torch.zeros(1), torch.ones(1))
    with pytest.raises(ConfigError, match="summary: the model was built without summary=True"):
        plain.summarise(x, gaps)
    with pytest.raises(ConfigError, match=r"summary_shift, summary_scale: found shapes .* wanted \(20,\)"):
        one.calibrate_summary(torch.zeros(1), torch.ones(1))
    with pytest.raises(ShapeError, match=r"state: found a summary of shape None, wanted \(3, 24\)"):
        one.step(x[:, 0], gaps[:, 0], plain.init_state(3))
    with pytest.raises(ShapeError, match=r"state: found a summary of shape \(3, 24\), wanted None"):
        plain.peek(one.init_state(3), gaps[:, 0])
    with pytest.raises(ConfigError, match="summary: found True, wanted False"):
        Forecaster(small_config(summary=True), CHANNELS)
