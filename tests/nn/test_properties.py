"""The properties that define this project, on whole models (functions: tests/functional/test_properties.py)."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.comparison import assert_close
from tests.nn.models import CHANNELS, VARIANTS, backbone, classifier, forecaster, small_config, values_and_gaps
from tests.tolerances import EXACT, IDENTITY
from tides.nn import Backbone, Forecaster, SequenceClassifier, TIDESConfig

seeds = st.integers(0, 2**20)
PHYSICAL = tuple(v for v in VARIANTS if v != "mamba-s")


@pytest.fixture
def double_precision() -> Iterator[None]:
    """Starting values computed in float64."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


# 1. time passing


@pytest.mark.parametrize("variant", PHYSICAL)
@pytest.mark.parametrize("method", ["zoh", "dirac"])
@settings(max_examples=3)
@given(seed=seeds, first=st.floats(0, 100), second=st.floats(0, 100))
def test_time_passes_in_two_parts_as_in_one(variant: str, method: str, seed: int, first: float, second: float) -> None:
    torch.manual_seed(seed)
    model = backbone(variant=variant, discretisation=method)
    _, state = model(*values_and_gaps())
    zero, one, two = (torch.full((3,), g, dtype=torch.float64) for g in (0.0, first, second))
    for a, b in zip(model.advance(state, zero).blocks, state.blocks, strict=True):
        assert_close(a.s, b.s, EXACT)
    split = model.advance(model.advance(state, one), two)
    for a, b in zip(split.blocks, model.advance(state, one + two).blocks, strict=True):
        assert_close(a.s, b.s, IDENTITY)
    assert torch.equal(split.held, state.held)


# 4. padding


def gradients_and_statistics(model: nn.Module, output: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    output.square().sum().backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return found | {name: buffer.clone() for name, buffer in model.named_buffers()}


def assert_same(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    scale = max(float(x.abs().max()) for x in wanted.values())
    for name, value in wanted.items():
        if float(value.abs().max()) < 1e-8 * scale:
            assert float((found[name] - value).abs().max()) < IDENTITY * scale, name
        else:
            assert_close(found[name], value, IDENTITY, name)


def padded(x: Tensor, extra: int, filling: float = torch.nan) -> Tensor:
    return torch.cat([x, torch.full_like(x[:, :1], filling).expand(-1, extra, *x.shape[2:])], dim=1)


MODELS: list[dict[str, Any]] = [
    *({"variant": variant, "norm": "batch"} for variant in VARIANTS),
    {"bidirectional": True, "pool": "last"},
    {"bidirectional": True, "hold": "preceding", "pool": "time", "norm": "layer"},
    {"discretisation": "dirac", "pool": "time", "norm": "rms"},
]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("fields", MODELS, ids=str)
@settings(max_examples=3)
@given(seed=seeds, extra=st.integers(1, 5))
def test_padding_changes_nothing(fields: dict[str, Any], training: bool, seed: int, extra: int) -> None:
    x, gaps = values_and_gaps()
    valid = (torch.arange(6 + extra) < 6).expand(3, -1)
    results = []
    for inputs in ((x, gaps, None), (padded(x, extra), padded(gaps, extra), valid)):
        torch.manual_seed(seed)
        model = classifier(**fields).train(training)
        output = model(inputs[0], inputs[1], valid=inputs[2])
        results.append((output, gradients_and_statistics(model, output)))
    (wanted, wanted_rest), (found, found_rest) = results
    assert_close(found, wanted, EXACT, "logits")
    assert_same(found_rest, wanted_rest)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("mode", ["steps", "readout"])
@settings(max_examples=3)
@given(seed=seeds, extra=st.integers(1, 3), more=st.integers(1, 3))
def test_padding_of_observations_and_queries_changes_no_forecast(
    mode: str, training: bool, seed: int, extra: int, more: int
) -> None:
    x, gaps = values_and_gaps()
    times, asked = gaps.cumsum(1), 6 * torch.rand(3, 4, dtype=torch.float64)
    valid, real = (torch.arange(6 + extra) < 6).expand(3, -1), (torch.arange(4 + more) < 4).expand(3, -1)
    results = []
    for masked in (False, True):
        torch.manual_seed(seed)
        model = forecaster(mode).train(training)
        if masked:
            output = model(
                padded(x, extra), padded(times, extra), None, padded(asked, more), valid=valid, query_valid=real
            )
            assert float(output[:, 4:].detach().abs().max()) == 0
        else:
            output = model(x, times, None, asked)
        results.append((output[:, :4], gradients_and_statistics(model, output)))
    (wanted, wanted_rest), (found, found_rest) = results
    assert_close(found, wanted, EXACT, "answers")
    assert_same(found_rest, wanted_rest)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_padding_in_the_release_enters_everything(training: bool) -> None:
    """What our default excludes: under compat the same padding moves the logits."""
    model = classifier(compat="release").train(training)
    x, gaps = values_and_gaps()
    valid = (torch.arange(8) < 6).expand(3, -1)
    found = model(padded(x, 2, 0.0), padded(gaps, 2, 1.0), valid=valid)
    assert not torch.allclose(found, model(x, gaps))


# 5. order of the batch


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("kind", ["classifier", "steps", "readout"])
@settings(max_examples=5)
@given(seed=seeds, order=st.permutations(range(3)))
def test_the_order_of_the_series_does_not_matter(kind: str, training: bool, seed: int, order: list[int]) -> None:
    torch.manual_seed(seed)
    x, gaps = values_and_gaps()
    asked = 6 * torch.rand(3, 4, dtype=torch.float64)
    if kind == "classifier":
        model: nn.Module = classifier(bidirectional=True).train(training)
        assert_close(model(x[order], gaps[order]), model(x, gaps)[order], EXACT)
    else:
        model = forecaster(kind).train(training)
        times = gaps.cumsum(1)
        permuted = model(x[order], times[order], None, asked[order])
        assert_close(permuted, model(x, times, None, asked)[order], EXACT)


# 9. units of time


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", ["mean", "time", "steps", "readout"])
@settings(max_examples=3)
@given(seed=seeds, unit=st.sampled_from([1 / 86400, 1 / 3600, 60.0, 3600.0, 1e9]))
def test_the_same_table_in_another_unit(variant: str, kind: str, seed: int, unit: float) -> None:
    torch.manual_seed(seed)
    x, gaps = values_and_gaps()
    asked = 6 * torch.rand(3, 4, dtype=torch.float64)
    if kind in ("mean", "time"):
        model: Any = classifier(variant=variant, pool=kind)
        wanted = model.calibrate(gaps)(x, gaps)
        found = model.calibrate(gaps * unit)(x, gaps * unit)
    else:
        model, times = forecaster(kind, variant=variant), gaps.cumsum(1)
        wanted = model.calibrate(gaps)(x, times, None, asked)
        found = model.calibrate(gaps * unit)(x, times * unit, None, asked * unit)
    assert_close(found, wanted, IDENTITY)


def test_a_fixed_time_scale_is_not_calibrated() -> None:
    model = Backbone(small_config(time_scale=4.0, first_gap=2.0))
    model.calibrate(torch.tensor([[1.0, 3.0, 3.0]]))
    assert model.calibration.time_scale.item() == 4.0
    assert model.calibration.first_gap.item() == 2.0


# 10. extremes


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("hold", ["following", "preceding"])
@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_finite_for_extreme_gaps_and_inputs(variant: str, hold: str, norm: str) -> None:
    for training in (False, True):
        model = SequenceClassifier(small_config(variant=variant, hold=hold, norm=norm, bidirectional=True), 3)
        model.train(training)
        gaps = torch.tensor([[1e-12, 1e12, 0.0, 1.0, 1e-6, 1e6]])
        logits = model(1e6 * torch.randn(1, 6, CHANNELS), gaps)
        assert torch.isfinite(logits).all()
        logits.mean().backward()
        assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


# 11. the start of training


@pytest.mark.parametrize("rank", [2, "full", "diag"])
@pytest.mark.parametrize("norm", [True, False], ids=["norm", "no norm"])
@pytest.mark.parametrize("conjugate", [False, True], ids=["whole", "halves"])
@pytest.mark.parametrize("variant", [v for v in PHYSICAL if v != "s5"])
def test_every_variant_starts_as_s5(
    variant: str, conjugate: bool, norm: bool, rank: Any, double_precision: None
) -> None:
    fields: dict[str, Any] = {
        "conjugate": conjugate,
        "bidirectional": True,
        "projector_init": "zeros",
        "decay_depth": 1,
    }
    selective = SequenceClassifier(small_config(variant=variant, projector_norm=norm, rank=rank, **fields), 3)
    plain = SequenceClassifier(small_config(variant="s5", **fields), 3)
    source = selective.state_dict()

    def half(name: str, tensor: Tensor) -> Tensor:
        """The first half of mirrored modes, for each direction of time."""
        if not conjugate or tensor.shape[0] == dict(plain.named_parameters())[name].shape[0]:
            return tensor
        parts = tensor.chunk(2 if "readout" in name else 1)
        return torch.cat([part[: part.shape[0] // 2] for part in parts])

    wanted = {}
    for name in plain.state_dict():
        if name in source:
            wanted[name] = source[name]
        else:
            wanted[name] = source[name.replace(".value", ".bias")]
        if ".ssm." in name:
            wanted[name] = half(name, wanted[name])
    plain.load_state_dict(wanted)
    x, gaps = values_and_gaps()
    for training in (False, True):
        assert_close(selective.train(training)(x, gaps), plain.train(training)(x, gaps), EXACT)


def test_hippo_survives_the_norm_and_does_not_in_the_release(double_precision: None) -> None:
    x, gaps = values_and_gaps()
    rates = {}
    for start, compat in (("preserve", None), ("ones", "release")):
        model = Backbone(small_config(projector_init="zeros", norm_start=start, compat=compat)).eval()
        _, state = model(x, gaps)
        rates[start] = state.blocks[0].lam.real
    assert_close(rates["preserve"], torch.full_like(rates["preserve"], -0.5), EXACT)
    # exp: θ = log ½ is normalised to −1, so the rate becomes −1/e.
    assert float((rates["ones"] + 0.3679).detach().abs().max()) < 1e-3


# 12. where time enters


@pytest.mark.parametrize("variant", PHYSICAL)
def test_the_first_layers_projections_do_not_depend_on_the_gaps(variant: str) -> None:
    model = backbone(variant=variant)
    x, gaps = values_and_gaps()
    _, state = model(x, gaps)
    _, other = model(x, 3 * gaps + 1)
    assert torch.equal(state.blocks[0].lam, other.blocks[0].lam)
    assert torch.equal(state.blocks[0].drive, other.blocks[0].drive)
    assert torch.equal(state.held, other.held)
    assert not torch.allclose(state.blocks[0].s, other.blocks[0].s)


def test_mamba_sees_the_gaps_everywhere() -> None:
    model = backbone(variant="mamba-s")
    x, gaps = values_and_gaps()
    _, state = model(x, gaps)
    _, other = model(x, 3 * gaps + 1)
    assert not torch.allclose(state.held, other.held)


# 13. questions


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@settings(max_examples=4)
@given(seed=seeds, more=st.integers(1, 6))
def test_asking_more_changes_no_answer(variant: str, training: bool, seed: int, more: int) -> None:
    torch.manual_seed(seed)
    model = forecaster("readout", variant=variant).train(training)
    x, gaps = values_and_gaps()
    times = gaps.cumsum(1)
    asked, others = (14 * torch.rand(3, n, dtype=torch.float64) - 2 for n in (3, more))
    few = model(x, times, None, asked)
    many = model(x, times, None, torch.cat([others, asked], dim=1))
    assert_close(many[:, more:], few, EXACT)
    alone = model(x, times, None, asked[:, 1:2])
    assert_close(alone, few[:, 1:2], EXACT)


def test_as_steps_more_questions_do_change_the_statistics_in_training() -> None:
    """The documented price of `steps`: query rows count in BatchNorm."""
    model = forecaster("steps").train()
    x, gaps = values_and_gaps()
    asked = gaps.cumsum(1)[:, :3] + 0.1
    few = model(x, gaps.cumsum(1), None, asked[:, :1])
    assert not torch.allclose(model(x, gaps.cumsum(1), None, asked)[:, :1], few)


def test_models_are_built_from_a_config_alone() -> None:
    config = TIDESConfig(input_size=2, hidden_size=4, state_size=4, depth=1, rank=1)
    for model in (Backbone(config), SequenceClassifier(config, 2), Forecaster(config, 2)):
        torch.manual_seed(3)
        one = type(model)(config, *([] if isinstance(model, Backbone) else [2])).state_dict()
        torch.manual_seed(3)
        two = type(model)(config, *([] if isinstance(model, Backbone) else [2])).state_dict()
        assert all(torch.equal(one[name], two[name]) for name in one)
