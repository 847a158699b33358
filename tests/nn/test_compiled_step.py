"""The compiled step answers as the model's own `step` does, for every kind of causal model, and does not drift."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.comparison import assert_close
from tests.tolerances import EXACT, FLOAT32_FORWARD, FLOAT32_GRADIENT
from tides.errors import BackendUnavailable, ConfigError, DataError, NotStreamable, ShapeError
from tides.functional.ssm import SSMState
from tides.nn import (
    Backbone,
    BackboneState,
    CompiledStep,
    Forecaster,
    PooledState,
    SequenceClassifier,
    SequenceRegressor,
    TIDESConfig,
)

pytest.importorskip("numba", reason="extra `speed` is not installed")

_SMALL = {"input_size": 2, "hidden_size": 6, "state_size": 4, "rank": 3, "depth": 2, "projector_init": "random"}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"hold": "preceding"},
    {"discretisation": "bilinear"},
    {"discretisation": "bilinear", "hold": "preceding"},
    {"discretisation": "dirac"},
    {"discretisation": "dirac", "hold": "preceding"},
    {"rank": "full"},
    {"projector_norm": False},
    {"variant": "s5"},
    {"variant": "s5", "conjugate": True},
    {"variant": "tides-lambda", "conjugate": True},
    {"variant": "tides-bc", "rank": 1},
    {"variant": "tides-full", "decay_depth": 2},
    {"variant": "mamba-s"},
    {"norm": "layer"},
    {"norm": "rms"},
    {"encoder_depth": 2},
    {"mask_channels": True},
    {"reparam": "stable", "clip": 0.5},
    {"reparam": "softplus"},
    {"reparam": "standard"},
    {"expand": 2.5},
    {"expand": 0.0, "compat": "release"},
    {"hidden_size": 5, "state_size": 3, "rank": 2},
]


def settled(model: Any, dtype: torch.dtype) -> Any:
    """The model with weights away from their start, statistics and scales away from theirs, ready to be used."""
    model = model.to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    channels = model.config.input_size
    model.calibrate(torch.rand(50) * 3, torch.randn(channels).to(dtype), 1 + torch.rand(channels).to(dtype))
    if getattr(model, "static_size", 0):
        model.calibrate_static(torch.randn(model.static_size), 1 + torch.rand(model.static_size))
    if model.config.summary:
        model.calibrate_summary(torch.randn(model.summary.size), 1 + torch.rand(model.summary.size))
    whole = model if isinstance(model, Backbone) else model.backbone
    whole.train()(torch.randn(4, 20, channels, dtype=dtype), torch.rand(4, 20, dtype=dtype))
    return model.eval()


def backbone(dtype: torch.dtype = torch.float64, **options: Any) -> Backbone:
    return settled(Backbone(TIDESConfig(**(_SMALL | options))), dtype)


def observation(streams: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return torch.randn(streams, 2, dtype=dtype), 4 * torch.rand(streams, dtype=dtype)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_the_models_step(options: dict[str, Any]) -> None:
    model = backbone(**options)
    fast, state = CompiledStep(model, streams=3), model.init_state(3)
    with torch.no_grad():
        for _ in range(12):
            x, gap = observation(3, torch.float64)
            wanted, state = model.step(x, gap, state)
            assert_close(fast.step(x, gap), wanted, EXACT, "features")
    for ours, theirs in zip(fast.state.blocks, state.blocks, strict=True):
        for name in ("s", "lam", "drive"):
            assert_close(getattr(ours, name), getattr(theirs, name), EXACT, name)
    assert_close(fast.state.held, state.held, EXACT, "held")


@pytest.mark.parametrize("static_size", [0, 3], ids=["series", "static"])
@pytest.mark.parametrize("summary", [False, True], ids=["features", "summary"])
@pytest.mark.parametrize("pool", ["mean", "last", "time"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
def test_equals_a_classifiers_step(pool: str, dtype: torch.dtype, summary: bool, static_size: int) -> None:
    config = TIDESConfig(**_SMALL, pool=pool, summary=summary, mask_channels=True)
    model = settled(SequenceClassifier(config, 3, static_size=static_size), dtype)
    fast, state = CompiledStep(model, streams=2), model.init_state(2)
    tolerance = EXACT if dtype == torch.float64 else FLOAT32_FORWARD
    static = torch.randn(2, static_size, dtype=dtype) if static_size else None
    if static is not None:
        static[1, 0] = torch.nan  # not recorded
    with torch.no_grad():
        for k in range(12):
            x, gap = observation(2, dtype)
            gap = gap if k else torch.zeros_like(gap)
            seen = torch.rand(2, 2) < 0.7
            wanted, state = model.step(x, gap, state, observed=seen, static=static)
            assert_close(fast.step(x, gap, observed=seen, static=static), wanted, tolerance, "logits")
            later = torch.rand(2, dtype=dtype) * k
            wanted = model.peek(state, later, static=static)
            assert_close(fast.peek_rows([0, 1], later, static=static), wanted, tolerance, "logits at a later time")
    assert isinstance(fast.state, PooledState)
    if summary:
        assert_close(fast.state.summary, state.summary, tolerance, "sums of the statistics")
        fast.state = state
    assert_close(fast.state.total, state.total, tolerance, "running sums")
    assert_close(fast.state.weight, state.weight, tolerance, "their weight")


@pytest.mark.parametrize("static", [torch.ones(2, 2), torch.ones(3), None], ids=["width", "rank", "none"])
def test_static_covariates_of_another_shape(static: Tensor | None) -> None:
    fast = CompiledStep(settled(SequenceClassifier(TIDESConfig(**_SMALL), 2, static_size=3), torch.float64), streams=2)
    with pytest.raises(ShapeError, match=r"static: found .*, wanted \(2, 3\)"):
        fast.step(*observation(2, torch.float64), static=static)
    with pytest.raises(ShapeError, match=r"static: found .*, wanted \(2, 0\)"):
        CompiledStep(backbone(), streams=2).step(*observation(2, torch.float64), static=torch.ones(2, 3))


@pytest.mark.parametrize("options", [one for one in OPTIONS if not one.keys() & {"hold", "compat"}], ids=str)
@torch.no_grad()
def test_peeks_equal_the_models(options: dict[str, Any]) -> None:
    """Of a stream that nothing was told, of one a moment ago and long ago; and nothing changes."""
    model = backbone(**options)
    fast, state = CompiledStep(model, streams=3), model.init_state(3)
    rows, elapsed = np.array([0, 2, 1, 2, 2]), torch.tensor([0.0, 0.0, 1e-3, 2.0, 50.0]).double()
    for _ in range(3):
        asked = _map_state(lambda part: part[rows], state)
        before = fast.state
        assert_close(fast.peek_rows(rows, elapsed), model.peek(asked, elapsed), EXACT)
        for ours, theirs in zip(_leaves(fast.state), _leaves(before), strict=True):
            assert torch.equal(ours, theirs)
        x, gap = observation(3, torch.float64)
        _, state = model.step(x, gap, state)
        fast.step(x, gap)


@torch.no_grad()
def test_a_forecaster_steps_as_its_backbone_and_answers_when_asked() -> None:
    model = settled(Forecaster(TIDESConfig(**_SMALL), channels=2, query_mode="readout"), torch.float64)
    fast, state = CompiledStep(model, streams=2), model.init_state(2)
    at = torch.tensor([[0.0, 1.5, 7.0], [0.1, 0.0, 2.0]]).double()
    for _ in range(4):
        x, gap = observation(2, torch.float64)
        features, _ = model.backbone.step(x, gap, state)
        wanted, state = model.step(x, gap, state, at=at)
        assert_close(fast.step(x, gap), features, EXACT, "features")
        assert_close(fast.peek_rows([0, 0, 0, 1, 1, 1], at.flatten()), wanted.flatten(0, 1), EXACT, "answers")


@torch.no_grad()
def test_a_stretch_of_one_stream_is_read_step_by_step() -> None:
    model = settled(SequenceClassifier(TIDESConfig(**_SMALL, summary=True), 3, static_size=1), torch.float64)
    stepped, read = CompiledStep(model, streams=3), CompiledStep(model, streams=3)
    x, gaps, static = torch.randn(9, 2).double(), torch.rand(9).double(), torch.ones(1).double()
    for k in range(9):
        wanted = stepped.step_rows([1], x[k : k + 1], gaps[k : k + 1], np.ones((1, 2), bool), static=static[None])
    found = read.read_row(1, x, gaps, np.ones((9, 2), bool), static=static)
    assert torch.equal(found[-1:], wanted)
    for ours, theirs in zip(_leaves(read.state.backbone), _leaves(stepped.state.backbone), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("row", [-1, 2])
def test_a_stream_that_does_not_exist_changes_nothing(row: int) -> None:
    fast, (x, gap) = CompiledStep(backbone(), streams=2), observation(2, torch.float64)
    before = fast.state
    with pytest.raises(DataError, match=rf"rows: found \[0, {row}\], wanted streams from 0 to 1"):
        fast.step_rows([0, row], x, gap, torch.ones(2, 2))
    with pytest.raises(DataError, match="rows"):
        fast.peek_rows([0, row], gap)
    with pytest.raises(DataError, match="gap: found"):
        fast.peek_rows([0, 1], -gap)
    with pytest.raises(ShapeError, match="elapsed"):
        fast.peek_rows([0, 1, 1], gap)
    for ours, theirs in zip(_leaves(fast.state), _leaves(before), strict=True):
        assert torch.equal(ours, theirs)


def test_a_peek_needs_a_state_that_moves() -> None:
    with pytest.raises(ConfigError, match="hold='following'"):
        CompiledStep(backbone(hold="preceding")).peek_rows([0], torch.ones(1))


def test_observations_of_any_precision_and_layout() -> None:
    """Numpy's singles, whole numbers, lists and transposed arrays are the numbers that they are."""
    model = backbone()
    fast, state = CompiledStep(model, streams=2), model.init_state(2)
    kinds = [
        lambda x: x.float().numpy(),
        lambda x: x.long(),
        lambda x: x.tolist(),
        lambda x: np.asfortranarray(x.numpy()),
        lambda x: x.t().contiguous().t(),
    ]
    with torch.no_grad():
        for kind in kinds:
            x, gap = torch.randint(-3, 4, (2, 2)).double(), torch.randint(0, 4, (2,)).double()
            wanted, state = model.step(x, gap, state)
            assert_close(fast.step(kind(x), gap), wanted, EXACT)


def test_streams_move_between_both_steps() -> None:
    """Every other observation is answered by the model itself, each side continuing from the other's state."""
    model = backbone()
    fast, alone, shared = CompiledStep(model, streams=2), model.init_state(2), model.init_state(2)
    with torch.no_grad():
        for k in range(10):
            x, gap = observation(2, torch.float64)
            wanted, alone = model.step(x, gap, alone)
            if k % 2:
                found, shared = model.step(x, gap, shared)
            else:
                fast.state = shared
                found, shared = fast.step(x, gap), fast.state
            assert_close(found, wanted, EXACT, f"step {k}")


@torch.no_grad()
def test_many_streams_on_two_threads() -> None:
    model, before = backbone(mask_channels=True), torch.get_num_threads()
    x, gaps, seen = torch.randn(200, 2).double(), torch.rand(200).double(), torch.rand(200, 2) < 0.7
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            compiled, rows = CompiledStep(model, streams=300), np.random.default_rng(0).permutation(300)[:200]
            for _ in range(2):
                y = compiled.step_rows(rows, x, gaps, seen)
            bad = gaps.clone()
            bad[150] = -1.0
            with pytest.raises(DataError, match="gap"):
                compiled.step_rows(rows, x, bad, seen)
            found.append([y, *_leaves(compiled.state)])
    finally:
        torch.set_num_threads(before)
    for one, two in zip(*found, strict=True):
        assert torch.equal(one, two)


@torch.no_grad()
def test_some_of_many_streams_step_and_room_grows() -> None:
    model = backbone(mask_channels=True)
    compiled = CompiledStep(model, streams=2)
    compiled.resize(5)
    state = _map_state(lambda part: part, model.init_state(5))
    for rows in ([4, 1], [0, 1, 2, 3, 4], [3]):
        index = np.array(rows)
        x, gaps = torch.randn(len(rows), 2).double(), torch.rand(len(rows)).double()
        seen = torch.rand(len(rows), 2) < 0.7
        some = _map_state(lambda part, index=index: part[index], state)
        y, some = model.step(x, gaps, some, observed=seen)
        assert_close(compiled.step_rows(index, x, gaps, seen), y, EXACT)
        for whole, part in zip(_leaves(state), _leaves(some), strict=True):
            whole[index] = part
    for ours, theirs in zip(_leaves(compiled.get_state(slice(None))), _leaves(state), strict=True):
        assert_close(ours, theirs, EXACT)
    compiled.reset(np.array([1, 3]))
    compiled.set_state(np.array([0]), _map_state(lambda part: part[2:3], state))
    fresh, kept = model.init_state(1), compiled.state
    for ours, empty, theirs in zip(_leaves(kept), _leaves(fresh), _leaves(state), strict=True):
        assert_close(ours[3], empty[0], EXACT)
        assert_close(ours[0], theirs[2], EXACT)
        assert_close(ours[4], theirs[4], EXACT)
    with pytest.raises(ShapeError, match="x, gap, observed"):
        compiled.step_rows(np.array([1, 2]), torch.ones(1, 2), torch.ones(1), torch.ones(1, 2))
    with pytest.raises(DataError, match="gap"):
        compiled.step_rows(np.array([1]), torch.ones(1, 2), -torch.ones(1), torch.ones(1, 2))


def _leaves(state: BackboneState) -> list[Tensor]:
    return [*(part for block in state.blocks for part in block), state.held]


def _map_state(change: Callable[[Tensor], Tensor], state: BackboneState) -> BackboneState:
    blocks = tuple(SSMState(*(change(part).clone() for part in block)) for block in state.blocks)
    return BackboneState(blocks, change(state.held).clone())


def test_a_regressor_answers_in_its_targets_units() -> None:
    model = settled(SequenceRegressor(TIDESConfig(**_SMALL), targets=2), torch.float64)
    model.calibrate(torch.rand(9), output_shift=torch.tensor([3.0, -1.0]), output_scale=torch.tensor([10.0, 0.1]))
    compiled, state = CompiledStep(model), model.init_state(1)
    for _ in range(3):
        x, gap = torch.randn(1, 2).double(), torch.rand(1).double()
        wanted, state = model.step(x, gap, state)
        assert_close(compiled.step(x, gap), wanted, EXACT)


def test_the_state_is_a_copy() -> None:
    model = backbone()
    fast = CompiledStep(model)
    x, gap = observation(1, torch.float64)
    before = fast.state
    kept = before.blocks[0].lam.clone()
    fast.step(x, gap)
    assert torch.equal(before.blocks[0].lam, kept)
    assert not torch.equal(fast.state.blocks[0].lam, kept)


def test_missing_values() -> None:
    model = backbone(mask_channels=True)
    fast, state = CompiledStep(model, streams=2), model.init_state(2)
    with torch.no_grad():
        for _ in range(5):
            x, gap = observation(2, torch.float64)
            observed = torch.rand(2, 2) < 0.5
            wanted, state = model.step(x, gap, state, observed=observed)
            spoilt = x.masked_fill(~observed, torch.nan)
            assert_close(fast.step(spoilt, gap, observed=observed), wanted, EXACT)


def test_ten_thousand_steps_equal_one_batch() -> None:
    """float32, the size of the paper's models: the stream's last features against the whole sequence at once."""
    torch.manual_seed(0)
    options = {"input_size": 1, "hidden_size": 32, "state_size": 16, "rank": 8, "depth": 4}
    model = settled(Backbone(TIDESConfig(**options, projector_init="random")), torch.float32)
    fast = CompiledStep(model)
    x, gaps = torch.randn(1, 10_000, 1), torch.rand(1, 10_000)
    with torch.no_grad():
        wanted, state = model(x, gaps)
    found = torch.stack([fast.step(x[:, k], gaps[:, k]) for k in range(10_000)], dim=1)
    assert_close(found[:, -1000:], wanted[:, -1000:], FLOAT32_GRADIENT, "features")
    for ours, theirs in zip(fast.state.blocks, state.blocks, strict=True):
        assert_close(ours.s, theirs.s, FLOAT32_GRADIENT, "state")


def resident_bytes() -> int:
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("no /proc to read the resident memory from")
    return int(statm.read_text().split()[1]) * 4096


@pytest.mark.slow
def test_a_million_steps_drift_nowhere_and_keep_nothing() -> None:
    options = {"input_size": 1, "hidden_size": 32, "state_size": 16, "rank": 8, "depth": 4}
    model = settled(Backbone(TIDESConfig(**options, projector_init="random")), torch.float32)
    # The first step compiles where nothing is cached yet, and a compiler's memory stays.
    CompiledStep(model).step(torch.randn(1, 1), torch.rand(1))
    fast, state = CompiledStep(model), None
    for chunk in range(10):
        x, gaps = torch.randn(1, 100_000, 1), torch.rand(1, 100_000)
        with torch.no_grad():
            wanted, state = model(x, gaps, state=state)
        before = resident_bytes()
        for k in range(100_000):
            found = fast.step(x[:, k], gaps[:, k])
        assert resident_bytes() - before < 1 << 20
        assert_close(found, wanted[:, -1], FLOAT32_GRADIENT, f"after {chunk + 1}00000 steps")


def test_bad_observations_change_nothing() -> None:
    fast = CompiledStep(backbone(), streams=2)
    x, gap = observation(2, torch.float64)
    fast.step(x, gap)
    before = fast.state
    for bad_x, bad_gap in ((x.log(), gap), (x, -gap), (x, gap * torch.nan), (x, gap + torch.inf)):
        with pytest.raises(DataError, match=r"x|gap"):
            fast.step(bad_x * torch.tensor([[1.0, torch.nan]]) if bad_x is not x else x, bad_gap)
    assert all(torch.equal(a.s, b.s) for a, b in zip(before.blocks, fast.state.blocks, strict=True))
    with pytest.raises(ShapeError, match="x, gap"):
        fast.step(x[:1], gap)
    with pytest.raises(ShapeError, match="observed"):
        fast.step(x, gap, observed=torch.ones(2, dtype=torch.bool))
    with pytest.raises(ConfigError, match="mask_channels"):
        fast.step(x, gap, observed=torch.zeros(2, 2, dtype=torch.bool))
    with pytest.raises(ConfigError, match="mask"):
        fast.step(x, gap, observed=torch.tensor([[True, True], [True, False]]))
    with pytest.raises(ShapeError, match="streams"):
        fast.state = backbone().init_state(3)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            lambda: Backbone(TIDESConfig(**_SMALL | {"depth": 1})).init_state(2),
            "found 1 blocks, wanted a BackboneState",
        ),
        (lambda: Backbone(TIDESConfig(**_SMALL | {"state_size": 8})).init_state(2), "it comes from another model"),
        (lambda: SequenceClassifier(TIDESConfig(**_SMALL), 2).init_state(2), "found PooledState, wanted a Backbone"),
        (lambda: None, "found NoneType"),
    ],
    ids=["depth", "width", "pooled", "none"],
)
def test_the_state_of_another_model_is_refused_and_changes_nothing(state: Callable[[], Any], words: str) -> None:
    fast = CompiledStep(backbone(), streams=2)
    fast.step(*observation(2, torch.float64))
    before = fast.state
    with pytest.raises(ShapeError, match=words):
        fast.state = state()
    for ours, theirs in zip(_leaves(fast.state), _leaves(before), strict=True):
        assert torch.equal(ours, theirs)


def test_missing_values_of_some_rows_need_mask_channels() -> None:
    fast, (x, gap) = CompiledStep(backbone(), streams=2), observation(1, torch.float64)
    with pytest.raises(ConfigError, match="mask_channels"):
        fast.step_rows(np.array([1]), x, gap, np.array([[True, False]]))


@pytest.mark.parametrize("streams", [0, -1, 1.5, True])
def test_a_number_of_streams_is_one(streams: Any) -> None:
    with pytest.raises(ConfigError, match="streams: found"):
        CompiledStep(backbone(), streams)


@pytest.mark.parametrize("pool", ["mean", "time"])
def test_a_pool_that_waits_is_refused(pool: str) -> None:
    model = settled(SequenceClassifier(TIDESConfig(**_SMALL, pool=pool), 3), torch.float64)
    x, gap = observation(2, torch.float64)
    fast = CompiledStep(model, streams=2)
    with torch.no_grad():
        later = model.advance(model.step(x, gap, model.init_state(2))[1], gap)
        with pytest.raises(ShapeError, match="state: found one that was advanced"):
            fast.state = later
        _, fast.state = model.step(x, gap, later)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_model_is_refused(dtype: torch.dtype) -> None:
    model = SequenceClassifier(TIDESConfig(**_SMALL), 3).to(dtype).eval()
    with pytest.raises(ShapeError, match="model: found parameters in"):
        CompiledStep(model)


def test_what_is_not_compiled_says_so() -> None:
    config = TIDESConfig(**_SMALL)
    with pytest.raises(ConfigError, match="eval"):
        CompiledStep(Backbone(config))
    with pytest.raises(NotStreamable, match="bidirectional"):
        CompiledStep(Backbone(config.replace(bidirectional=True)).eval())
    with pytest.raises(BackendUnavailable, match="diag"):
        CompiledStep(Backbone(config.replace(rank="diag")).eval())
    with pytest.raises(BackendUnavailable, match="query_mode='steps'"):
        CompiledStep(Forecaster(config, channels=2).eval())
    with pytest.raises(ConfigError, match="found Linear"):
        CompiledStep(torch.nn.Linear(2, 2).eval())  # type: ignore[arg-type]
