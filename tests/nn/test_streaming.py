"""Forward = chunked forward = step by step, for every causal model, with and without missing values."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tests.comparison import assert_close
from tests.nn.models import (
    CHANNELS,
    VARIANTS,
    backbone,
    classifier,
    forecaster,
    padding,
    small_config,
    unsettled,
    values_and_gaps,
)
from tests.tolerances import EXACT, IDENTITY
from tides.errors import ConfigError, NotStreamable
from tides.nn import Backbone, BackboneState, SequenceClassifier, SequenceRegressor
from tides.nn.heads import SequenceHead

CAUSAL: list[dict[str, Any]] = [
    *({"variant": variant, "hold": hold} for variant in VARIANTS for hold in ("following", "preceding")),
    *(
        {"discretisation": method, "hold": hold}
        for method in ("bilinear", "dirac")
        for hold in ("following", "preceding")
    ),
    *({"norm": norm} for norm in ("layer", "rms")),
    {"variant": "s5", "conjugate": True},
    {"conjugate": True, "rank": "diag", "encoder_depth": 1, "decay_depth": 1},
    {"compat": "release"},
]


def assert_same_state(found: BackboneState, wanted: BackboneState, tolerance: float = EXACT) -> None:
    assert_close(found.held, wanted.held, tolerance, "held")
    for a, b in zip(found.blocks, wanted.blocks, strict=True):
        for name in ("s", "lam", "drive"):
            assert_close(getattr(a, name), getattr(b, name), tolerance, name)


def inputs(model: Backbone) -> tuple[Tensor, Tensor, Tensor | None]:
    x, gaps = values_and_gaps()
    if model.config.mask_channels is not True:
        return x, gaps, None
    return x, gaps, torch.rand(x.shape) < 0.6


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing"])
@pytest.mark.parametrize("fields", CAUSAL, ids=str)
def test_chunks_and_steps_equal_the_whole(fields: dict[str, Any], missing: bool) -> None:
    if missing and fields.get("compat"):
        fields = {**fields, "mask_channels": False}
    elif missing:
        fields = {**fields, "mask_channels": True}
    model = backbone(**fields)
    x, gaps, observed = inputs(model)

    def part(rows: slice) -> dict[str, Tensor | None]:
        return {"observed": None if observed is None else observed[:, rows]}

    whole, last = model(x, gaps, observed=observed)
    for sizes in ([2, 4], [1, 2, 3]):
        state, outputs, start = model.init_state(3), [], 0
        for size in sizes:
            rows = slice(start, start + size)
            y, state = model(x[:, rows], gaps[:, rows], state=state, **part(rows))
            outputs.append(y)
            start += size
        assert_close(torch.cat(outputs, dim=1), whole, EXACT, f"chunks {sizes}")
        assert_same_state(state, last)
    state, outputs = model.init_state(3), []
    for k in range(6):
        seen = None if observed is None else observed[:, k]
        y, state = model.step(x[:, k], gaps[:, k], state, observed=seen)
        outputs.append(y)
    assert_close(torch.stack(outputs, dim=1), whole, EXACT, "steps")
    assert_same_state(state, last)


@settings(max_examples=8)
@given(seed=st.integers(0, 2**20), cut=st.integers(1, 5), lengths=st.lists(st.integers(0, 5), min_size=3, max_size=3))
def test_padded_chunks(seed: int, cut: int, lengths: list[int]) -> None:
    """A chunk with padding leaves each series where its last valid step was."""
    torch.manual_seed(seed)
    model = backbone()
    x, gaps = values_and_gaps()
    y, state = model(x, gaps, valid=padding(lengths, 6))
    for i, n in enumerate(lengths):
        alone = model.init_state(1)
        if n:
            wanted, alone = model(x[i : i + 1, :n], gaps[i : i + 1, :n], state=alone)
            assert_close(y[i : i + 1, :n], wanted, EXACT)
        mine = BackboneState(tuple(type(b)(*(p[i : i + 1] for p in b)) for b in state.blocks), state.held[i : i + 1])
        assert_same_state(mine, alone)


@pytest.mark.parametrize("pool", ["mean", "last", "time"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_prefix_logits(pool: str, variant: str) -> None:
    model = classifier(variant=variant, pool=pool, mask_channels=True)
    x, gaps = values_and_gaps()
    gaps[1, :3] = 0.0
    observed = torch.rand(x.shape) < 0.6
    state = model.init_state(3)
    for k in range(6):
        logits, state = model.step(x[:, k], gaps[:, k], state, observed=observed[:, k])
        wanted = model(x[:, : k + 1], gaps[:, : k + 1], observed=observed[:, : k + 1])
        assert_close(logits, wanted, EXACT, f"prefix of {k + 1}")


def test_prefix_answers_with_static_covariates() -> None:
    model = unsettled(SequenceRegressor(small_config(), targets=2, static_size=3))
    x, gaps = values_and_gaps()
    static = torch.randn(3, 3, dtype=torch.float64)
    state = model.init_state(3)
    for k in range(6):
        answer, state = model.step(x[:, k], gaps[:, k], state, static=static)
    assert_close(answer, model(x, gaps, static=static), EXACT)
    assert not torch.allclose(answer, model(x, gaps, static=2 * static))


FORECASTERS: list[tuple[str, dict[str, Any]]] = [
    *(("steps", {"variant": variant}) for variant in VARIANTS),
    ("steps", {"hold": "preceding"}),
    *(("readout", {"variant": variant}) for variant in VARIANTS),
    ("readout", {"discretisation": "dirac", "norm": "layer"}),
]


@pytest.mark.parametrize(("mode", "fields"), FORECASTERS, ids=str)
def test_forecasts_of_a_stream_equal_forecasts_of_its_prefix(mode: str, fields: dict[str, Any]) -> None:
    model = forecaster(mode, **fields)
    x, gaps = values_and_gaps()
    gaps[:, 0] = model.backbone.calibration.first_gap
    observed = torch.rand(x.shape) < 0.6
    times = gaps.cumsum(1)
    # Not in order, with a repetition and the present moment.
    ahead = torch.tensor([[1.5, 0.0, 0.7, 0.7]], dtype=torch.float64).expand(3, -1)
    state = model.init_state(3)
    for k in range(6):
        found, state = model.step(x[:, k], gaps[:, k], state, observed=observed[:, k], at=ahead)
        rows = slice(0, k + 1)
        wanted = model(x[:, rows], times[:, rows], observed[:, rows], times[:, k : k + 1] + ahead)
        # Times are summed and differenced again.
        assert_close(found, wanted, IDENTITY, f"after {k + 1} observations")
        assert_close(model.peek(state, ahead), found, EXACT, "peek")
        now, _ = model.step(x[:, k], gaps[:, k], state, observed=observed[:, k])
        assert now.shape == (3, 1, CHANNELS)


@pytest.mark.parametrize("mode", ["steps", "readout"])
def test_looking_ahead_leaves_the_state_alone(mode: str) -> None:
    model = forecaster(mode)
    x, gaps = values_and_gaps()
    _, state = model.backbone(x, gaps)
    before = [part.clone() for block in state.blocks for part in block]
    model.peek(state, torch.rand(3, 4, dtype=torch.float64))
    assert all(torch.equal(a, b) for a, b in zip(before, (p for b in state.blocks for p in b), strict=True))


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "mamba-s"])
def test_reading_out_later_is_reading_out_after_advancing(variant: str) -> None:
    model = forecaster("readout", variant=variant)
    x, gaps = values_and_gaps()
    _, state = model.backbone(x, gaps)
    gap = torch.rand(3, dtype=torch.float64)
    later = model.advance(state, gap)
    at = torch.tensor([[0.0, 0.4, 2.0]], dtype=torch.float64).expand(3, -1)
    assert_close(model.peek(later, at), model.peek(state, at + gap[:, None]), IDENTITY)


def test_bidirectional_models_say_why_they_cannot_stream() -> None:
    model, heads = backbone(bidirectional=True), classifier(bidirectional=True)
    x, gaps = values_and_gaps()
    state = backbone().init_state(3)
    calls = [
        lambda: model.init_state(3),
        lambda: model.step(x[:, 0], gaps[:, 0], state),
        lambda: model.advance(state, gaps[:, 0]),
        lambda: model(x, gaps, state=state),
        lambda: model.peek(state, gaps[:, 0]),
        lambda: heads.init_state(3),
        lambda: forecaster(bidirectional=True).step(x[:, 0], gaps[:, 0], state),
    ]
    for call in calls:
        with pytest.raises(NotStreamable, match="bidirectional: the model reads the future"):
            call()


def test_readout_needs_a_causal_model_that_holds_its_input() -> None:
    for fields in ({"hold": "preceding"}, {"bidirectional": True}):
        with pytest.raises(ConfigError, match="readout"):
            forecaster("readout", **fields)
    model = backbone(hold="preceding")
    with pytest.raises(ConfigError, match="hold"):
        model.peek(model.init_state(1), torch.zeros(1, dtype=torch.float64))


def test_a_query_at_the_time_of_an_observation_comes_after_it() -> None:
    model = forecaster("steps", hold="preceding")
    values = torch.randn(1, 3, CHANNELS, dtype=torch.float64, requires_grad=True)
    times = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    answer = model(values, times, None, torch.tensor([[2.0]], dtype=torch.float64))
    (gradient,) = torch.autograd.grad(answer.square().sum(), values)
    assert float(gradient[0, 1].abs().sum()) > 0
    assert float(gradient[0, 2].abs().sum()) == 0


@pytest.mark.parametrize("pool", ["mean", "last", "time"])
@pytest.mark.parametrize("static", [0, 2])
@torch.no_grad()
def test_a_piece_read_at_once_ends_where_its_steps_end(pool: str, static: int) -> None:
    model = unsettled(SequenceClassifier(small_config(pool=pool), classes=3, static_size=static))
    x, gaps = torch.randn(2, 9, 2).double(), torch.rand(2, 9).double()
    extra = {"static": torch.randn(2, static).double()} if static else {}
    state = model.init_state(2)
    for k in range(4):
        answer, state = model.step(x[:, k], gaps[:, k], state, **extra)
    answer, read = model.read(x[:, 4:], gaps[:, 4:], state, **extra)
    for k in range(4, 9):
        stepped, state = model.step(x[:, k], gaps[:, k], state, **extra)
    assert_close(answer, stepped, IDENTITY)
    assert_close(answer, model(x, gaps, **extra), IDENTITY)
    for found, wanted in zip(tree_leaves(read), tree_leaves(state), strict=True):
        if wanted is None:
            assert found is None
        else:
            assert_close(found, wanted, IDENTITY)


@pytest.mark.parametrize("pool", ["mean", "last", "time"])
@torch.no_grad()
def test_a_classifiers_peek_starts_at_the_present_and_moves_with_time(pool: str) -> None:
    model = classifier(pool=pool)
    state = model.init_state(2)
    for _ in range(5):
        answer, state = model.step(torch.randn(2, 2).double(), torch.rand(2).double(), state)
    assert_close(model.peek(state, torch.zeros(2).double()), answer, IDENTITY)
    later = model.peek(state, torch.full((2,), 3.0).double())
    assert (later - answer).abs().max() > 1e-4
    if pool == "last":
        features = model.backbone.peek(state.backbone, torch.full((2,), 3.0).double())
        assert_close(later, model.head(features), EXACT)
    fresh = model.peek(model.init_state(2), torch.zeros(2).double())
    assert torch.isfinite(fresh).all()


@pytest.mark.parametrize("pool", ["mean", "last", "time"])
@pytest.mark.parametrize("head", [SequenceClassifier, SequenceRegressor])
@torch.no_grad()
def test_time_that_has_passed_counts_in_the_pool(pool: str, head: type[SequenceHead]) -> None:
    model = unsettled(head(small_config(pool=pool), 3))
    x, gaps = values_and_gaps()
    waits = torch.rand(2, 3, dtype=torch.float64)
    states = [model.init_state(3)]
    for k in range(4):
        states.append(model.step(x[:, k], gaps[:, k], states[-1])[1])
    for before in (states[0], states[1], states[-1]):
        after = model.advance(model.advance(before, waits[0]), waits[1])
        rest, whole = gaps[:, 4:], gaps[:, 4:] + torch.stack([waits.sum(0), torch.zeros(3).double()], dim=1)
        assert_close(model.peek(after, rest[:, 0]), model.peek(before, whole[:, 0]), IDENTITY, "peek")
        found, wanted = (model.step(x[:, 4], g[:, 0], s) for g, s in ((rest, after), (whole, before)))
        assert_close(found[0], wanted[0], IDENTITY, "step")
        assert_close(model.peek(found[1], rest[:, 1]), model.peek(wanted[1], rest[:, 1]), IDENTITY, "peek after a step")
        found, wanted = (model.read(x[:, 4:], g, s) for g, s in ((rest, after), (whole, before)))
        assert_close(found[0], wanted[0], IDENTITY, "read")


@pytest.mark.parametrize("pool", ["mean", "last", "time"])
@torch.no_grad()
def test_time_passes_for_a_release_model_too(pool: str) -> None:
    model = classifier(pool=pool, hold="preceding")
    x, gaps = values_and_gaps()
    _, state = model.step(x[:, 0], gaps[:, 0], model.init_state(3))
    found, _ = model.step(x[:, 1], gaps[:, 1], model.advance(state, torch.ones(3).double()))
    assert torch.isfinite(found).all()
