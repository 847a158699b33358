"""A session answers as the model does on whole series, whatever the task, the hold and the way the stream comes in."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tides
from tests.nn.models import small_config, unsettled
from tides.errors import ConfigError, DataError, NotStreamable, ShapeError
from tides.streaming import StreamSession

MISSING = {"mask_channels": True}


def series(length: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Times and values with a third of them missing, and two observations at one time."""
    generator = np.random.default_rng(seed)
    times = np.cumsum(generator.exponential(1.0, length))
    times[3] = times[2]
    values = generator.normal(size=(length, 2))
    values[generator.random((length, 2)) < 0.33] = np.nan
    return times, values


def tensors(times: np.ndarray, values: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x, seen = torch.tensor(np.nan_to_num(values))[None], torch.tensor(~np.isnan(values))[None]
    return x, torch.tensor(times)[None], seen


def classifier(**fields: Any) -> tides.SequenceClassifier:
    return unsettled(tides.SequenceClassifier(small_config(**{**MISSING, **fields}), classes=3))


def forecaster(mode: Any = "readout", **fields: Any) -> tides.Forecaster:
    return unsettled(tides.Forecaster(small_config(**{**MISSING, **fields}), 2, mode))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"hold": "preceding"},
        {"pool": "last"},
        {"pool": "time"},
        {"first_gap": "start"},
        {"variant": "mamba-s"},
        {"summary": True},
        {"summary": True, "pool": "time"},
    ],
    ids=str,
)
@torch.no_grad()
def test_class_probabilities_of_every_prefix(fields: dict[str, Any], compiled: bool) -> None:
    if compiled:
        pytest.importorskip("numba")
    model = classifier(**fields)
    session = StreamSession(model, compiled=compiled)
    times, values = series()
    for k in range(len(times)):
        found = session.step(times[k], values[k])
        x, t, seen = tensors(times[: k + 1], values[: k + 1])
        wanted = model(x, model.gaps(t), observed=seen).softmax(-1)[0]
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-9)
    np.testing.assert_allclose(session.answer(), found)


def test_a_model_that_is_very_sure_says_so_in_numbers() -> None:
    """e^800 is beyond every double."""
    model = classifier()
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([0.0, 800.0, -800.0]))
        model.head.weight.zero_()
    np.testing.assert_array_equal(StreamSession(model).step(1.0, [0.0, 0.0]), [0.0, 1.0, 0.0])


@pytest.mark.parametrize("mode", ["steps", "readout"])
@torch.no_grad()
def test_forecasts_of_every_prefix(mode: str) -> None:
    model = forecaster(mode)
    session = StreamSession(model, at=[0.0, 2.5])
    times, values = series()
    for k in range(len(times)):
        found = session.step(times[k], values[k])
        x, t, seen = tensors(times[: k + 1], values[: k + 1])
        wanted = model(x, t, seen, t[:, -1:] + torch.tensor([[0.0, 2.5]]).double())[0]
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-7, atol=1e-9)
    assert found.shape == (2, 2)
    np.testing.assert_allclose(session.peek(times[-1] + np.array([0.0, 2.5])), found, rtol=1e-7)
    np.testing.assert_allclose(session.step(times[-1] + 1, [1.0, None], at=3.0).shape, (2,))


@torch.no_grad()
def test_numbers_and_features() -> None:
    times, values = series()
    x, t, seen = tensors(times, values)
    regressor = unsettled(tides.SequenceRegressor(small_config(**MISSING), targets=2))
    found = StreamSession(regressor).catch_up(times, values)
    np.testing.assert_allclose(found, regressor(x, regressor.gaps(t), observed=seen)[0].numpy(), rtol=1e-9)
    backbone = unsettled(tides.Backbone(small_config(**MISSING)))
    found = StreamSession(backbone).catch_up(times, values)
    features, _ = backbone(x, backbone.calibration.gaps(t), observed=seen)
    np.testing.assert_allclose(found, features[0, -1].numpy(), rtol=1e-9)


@pytest.mark.parametrize("late", ["reject", "replay"])
@pytest.mark.parametrize("make", [classifier, forecaster, lambda: forecaster("steps")])
def test_catching_up_is_stepping(make: Any, late: Any) -> None:
    model = make()
    times, values = series(20)
    stepped, caught = (StreamSession(model, late=late, history=4) for _ in range(2))
    for t, x in zip(times, values, strict=True):
        wanted = stepped.step(t, x)
    caught.step(times[0], values[0])
    np.testing.assert_allclose(caught.catch_up(times[1:], values[1:]), wanted, rtol=1e-9)
    more = (times[-1] + 1.0, [0.5, np.nan])
    np.testing.assert_allclose(caught.step(*more), stepped.step(*more), rtol=1e-9)


def test_a_peek_changes_nothing_and_agrees_with_time_passing() -> None:
    session = StreamSession(classifier(pool="last"))
    times, values = series()
    now = session.catch_up(times, values)
    end = float(times[-1])
    ahead = session.peek([end, end + 1.0, end + 5.0])
    assert ahead.shape == (3, 3)
    np.testing.assert_allclose(ahead[0], now, rtol=1e-9)
    assert np.abs(ahead[2] - now).max() > 1e-4
    np.testing.assert_allclose(session.peek(end + 5.0), ahead[2], rtol=1e-9)
    np.testing.assert_allclose(session.peek(["+1", end + 5.0]), ahead[1:], rtol=1e-6)
    with pytest.raises(DataError, match="no unit"):
        session.peek("+1h")
    np.testing.assert_allclose(session.answer(), now)
    with pytest.raises(DataError, match="at or after the newest"):
        session.peek(end - 1)
    with pytest.raises(DataError, match="nothing has been observed"):
        StreamSession(classifier()).peek(1.0)
    preceding = StreamSession(classifier(hold="preceding"))
    preceding.step(0.0, [1.0, 1.0])
    with pytest.raises(ConfigError, match="following"):
        preceding.peek(1.0)


def test_many_streams_are_each_their_own() -> None:
    model = classifier()
    together, alone = StreamSession(model), {key: StreamSession(model) for key in range(40)}
    generator = np.random.default_rng(0)
    clock = np.zeros(40)
    for _ in range(5):
        keys = generator.integers(0, 40, 70).tolist()
        gaps, X = generator.random(70), generator.normal(size=(70, 2))
        times = []
        for key, gap in zip(keys, gaps, strict=True):
            clock[key] += gap
            times.append(clock[key])
        answers = together.step_many(keys, times, X)
        assert set(answers.status) == {"taken"}
        for i, key in enumerate(keys):
            np.testing.assert_allclose(answers.values[i], alone[key].step(times[i], X[i]), rtol=1e-9)
    assert len(together.keys) == len(set(together.keys)) > 30
    np.testing.assert_allclose(together.answer(7), alone[7].answer(), rtol=1e-9)
    together.forget(7)
    assert 7 not in together.keys
    with pytest.raises(DataError, match="7"):
        together.answer(7)
    # A forgotten stream begins anew.
    np.testing.assert_allclose(together.step(0.5, [1.0, 2.0], key=7), StreamSession(model).step(0.5, [1.0, 2.0]))


def test_a_fixed_number_of_streams() -> None:
    model = classifier()
    session, one = StreamSession(model, streams=3), StreamSession(model)
    X = np.arange(6.0).reshape(3, 2)
    session.step(1.0, X)
    found = session.step([2.0, 3.0, 4.0], -X)
    assert found.shape == (3, 3)
    one.step(1.0, X[2])
    np.testing.assert_allclose(found[2], one.step(4.0, -X[2]), rtol=1e-9)
    np.testing.assert_allclose(session.step(5.0, [0.0, 1.0], key=2), one.step(5.0, [0.0, 1.0]), rtol=1e-9)
    with pytest.raises(DataError, match="stream 2: late"):
        session.step(4.5, X)
    with pytest.raises(DataError, match="key"):
        session.catch_up([6.0], X[:1])
    with pytest.raises(ConfigError, match="streams"):
        StreamSession(model, streams=0)


@pytest.mark.parametrize("late", ["reject", "replay"])
def test_streams_that_are_observed_together_take_all_or_nothing(late: Any) -> None:
    session = StreamSession(classifier(), streams=3, late=late, history=1, duplicate="reject")
    for t in range(5):
        session.step(float(t), np.full((3, 2), float(t)))
    before = session.state_dict()
    with pytest.raises(DataError, match="stream 1: late"):
        session.step([5.0, 0.5, 3.5] if late == "replay" else [5.0, 0.5, 5.0], np.ones((3, 2)))
    with pytest.raises(DataError, match="stream 2: duplicate"):
        session.step([5.0, 5.0, 4.0], [[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]])
    for name, tensor in session.state_dict().items():
        assert torch.equal(tensor, before[name]) or torch.equal(tensor.nan_to_num(), before[name].nan_to_num())
    assert session.step([5.0, 5.0, 5.0], np.ones((3, 2))).shape == (3, 3)


def test_loading_a_folder_and_its_names(tmp_path: Path) -> None:
    model = classifier().float()
    metadata = {"channels": ["hr", "spo2"], "classes": ["home", "icu", "died"], "unit": "h", "origin": "2031-05-01"}
    tides.save(model, tmp_path, metadata=metadata)
    session, plain = StreamSession.load(tmp_path), StreamSession(model)
    assert session.profile.classes == ("home", "icu", "died")
    start = datetime(2031, 5, 1, tzinfo=UTC)
    named = [
        session.step(start, {"spo2": 97}),
        session.step("2031-05-01T06:30:00Z", {"hr": 84, "spo2": None}),
        session.step(np.datetime64("2031-05-01T07:30"), [91, 95]),
        session.step(start.astimezone() + timedelta(hours=8), {}),
    ]
    nan = np.nan
    numbers = [(0.0, [nan, 97]), (6.5, [84, nan]), (7.5, [91, 95]), (8.0, [nan, nan])]
    for found, (t, x) in zip(named, numbers, strict=True):
        np.testing.assert_allclose(found, plain.step(t, x), rtol=1e-6)
    with pytest.raises(DataError, match="'heart rate', the model knows hr, spo2"):
        session.step("2031-05-02", {"heart rate": 3})
    with pytest.raises(DataError, match="x: found '97%' in channel 'spo2', wanted a number"):
        session.step("2031-05-02", {"hr": 3, "spo2": "97%"})
    with pytest.raises(DataError, match="ISO 8601"):
        session.step("tomorrow", [1, 2])
    with pytest.raises(DataError, match="found 3 values, wanted 2"):
        session.step("2031-05-02", [1, 2, 3])
    with pytest.raises(DataError, match="no unit"):
        StreamSession(model).step(start, [1, 2])


@pytest.mark.parametrize("summary", [False, True], ids=["features", "summary"])
def test_static_columns_come_with_the_first_observation(summary: bool, tmp_path: Path) -> None:
    model = unsettled(tides.SequenceClassifier(small_config(**MISSING, summary=summary), classes=2, static_size=3))
    schema = {
        "channels": ["a", "b"],
        "unit": "h",
        "origin": None,
        "class_names": ["no", "yes"],
        "static": [
            {"name": "age", "categories": None, "ordinal": False},
            {"name": "sex", "categories": ["f", "m"], "ordinal": False},
        ],
    }
    tides.save(model, tmp_path, metadata={"schema": schema})
    session = StreamSession.load(tmp_path)
    with pytest.raises(DataError, match="static: wanted with the first observation"):
        session.step(0.0, [1.0, 2.0], key="p")
    assert "p" not in session.keys
    with pytest.raises(DataError, match="'x', the model knows f, m; None counts as not recorded"):
        session.step(0.0, [1.0, 2.0], key="p", static={"sex": "x"})
    session.step(0.0, [1.0, 2.0], key="p", static={"age": 63, "sex": "m"})
    found = session.step(2.0, [1.5, np.nan], key="p")
    x = torch.tensor([[[1.0, 2.0], [1.5, 0.0]]]).double()
    seen = torch.tensor([[[True, True], [True, False]]])
    with torch.no_grad():
        gaps = model.gaps(torch.tensor([[0.0, 2.0]]).double())
        wanted = model(x, gaps, observed=seen, static=torch.tensor([[63.0, 0.0, 1.0]]).double()).softmax(-1)
    np.testing.assert_allclose(found, wanted[0].numpy(), rtol=1e-9)
    with pytest.raises(DataError, match="no static covariates"):
        StreamSession(classifier()).step(0.0, [1.0, 2.0], static=[1.0])


def test_later_static_covariates_replace_what_they_name() -> None:
    columns = [{"name": "age", "categories": None}, {"name": "sex", "categories": ["f", "m"]}]
    model = unsettled(tides.SequenceClassifier(small_config(**MISSING), classes=3, static_size=3))
    session, told = (StreamSession(model, metadata={"static": columns}) for _ in range(2))
    session.step(0.0, [1.0, 2.0], static={"age": 63, "sex": "m"})
    told.step(0.0, [1.0, 2.0], static={"age": 64, "sex": "m"})
    session.step(0.0, [1.0, 2.0], static={"age": 90})  # a duplicate changes nothing
    found, wanted = session.step(1.0, [1.0, 2.0], static={"age": 64}), told.step(1.0, [1.0, 2.0])
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    np.testing.assert_allclose(session.step(2.0, [0.0, 0.0]), told.step(2.0, [0.0, 0.0]), rtol=1e-12)


@pytest.mark.parametrize("history", [1, 2, 64])
@pytest.mark.parametrize("make", [lambda: forecaster(), lambda: with_static()])
def test_a_replay_leaves_static_covariates_to_their_time(make: Any, history: int) -> None:
    model = make()
    channels = ["a"] if isinstance(model, tides.Forecaster) else ["a", "b"]
    metadata = {"channels": channels, "static": [{"name": "age"}]}
    rows = [(0.0, {"age": 1}), (1.0, {"age": 3}), (2.0, None), (3.0, {"age": 5}), (4.0, None), (5.0, None)]
    in_order = StreamSession(model, metadata=metadata)
    for t, static in rows:
        wanted = in_order.step(t, [t] * len(channels), static=static)
    for order in ((0, 2, 1, 3, 5, 4), (0, 2, 3, 1, 4, 5), (0, 1, 3, 2, 4, 5), (1, 0, 3, 2, 4, 5)):
        late = StreamSession(model, metadata=metadata, late="replay", history=history)
        answers = [late.step_many([None], [t], [[t] * len(channels)], static=[s]) for t, s in (rows[k] for k in order)]
        if all(one.status != ["rejected"] for one in answers):
            np.testing.assert_allclose(late.answer(), wanted, rtol=1e-9)
        else:
            assert history == 1


@pytest.mark.parametrize(
    ("late", "earlier", "first"),
    [
        (None, {"age": 1, "sex": "m"}, {}),
        ({"age": 3}, {"age": 3, "sex": "m"}, {"age": 1}),
        ({"age": 3, "sex": "f"}, {"age": 3, "sex": "f"}, {"age": 1, "sex": "m"}),
    ],
)
def test_what_came_with_the_first_observation_holds_for_earlier_ones(late: Any, earlier: Any, first: Any) -> None:
    """An observation from before the first one names what has changed since, and nothing else is known to have."""
    columns = [{"name": "age"}, {"name": "sex", "categories": ["f", "m"]}]
    model = unsettled(tides.SequenceClassifier(small_config(**MISSING), classes=3, static_size=3))
    replayed, in_order = (
        StreamSession(model, metadata={"static": columns}, late=policy) for policy in ("replay", "reject")
    )
    replayed.step(1.0, [1.0, 2.0], static={"age": 1, "sex": "m"})
    replayed.step(0.0, [3.0, 4.0], static=late)
    in_order.step(0.0, [3.0, 4.0], static=earlier)
    in_order.step(1.0, [1.0, 2.0], static=first or None)
    np.testing.assert_allclose(replayed.answer(), in_order.answer(), rtol=1e-12)
    rows = replayed.intake.histories[0].static_rows()
    known = {"f": [1.0, 0.0], "m": [0.0, 1.0]}
    np.testing.assert_array_equal(rows, [[earlier["age"], *known[earlier["sex"]]], [1.0, 0.0, 1.0]])


def with_static() -> tides.SequenceClassifier:
    return unsettled(tides.SequenceClassifier(small_config(**MISSING), classes=3, static_size=1))


@pytest.mark.parametrize("summary", [False, True], ids=["features", "summary"])
@pytest.mark.parametrize("pool", ["mean", "last", "time"])
@torch.no_grad()
def test_static_covariates_in_the_compiled_step(pool: str, summary: bool) -> None:
    pytest.importorskip("numba")
    config = small_config(**MISSING, pool=pool, summary=summary)
    model = unsettled(tides.SequenceRegressor(config, targets=2, static_size=1))
    one, other = StreamSession(model, compiled=True, late="replay"), StreamSession(model, compiled=False)
    times, values = series()
    keys, static = [k % 20 for k in range(60)], [[float(k % 20)] for k in range(60)]
    for begin in (0, 6):
        order = np.repeat(np.arange(begin, begin + 3), 20)
        found, wanted = (s.step_many(keys, times[order] + 0.1, values[order], static=static) for s in (one, other))
        np.testing.assert_allclose(found.values, wanted.values, rtol=1e-9)
    again = StreamSession(model, compiled=True)
    again.load_state_dict(one.state_dict())
    np.testing.assert_allclose(again.answer(3), other.answer(3), rtol=1e-9)
    np.testing.assert_allclose(again.step(99.0, [1.0, 1.0], key=3), other.step(99.0, [1.0, 1.0], key=3), rtol=1e-9)
    np.testing.assert_allclose(again.peek(101.0, key=3), other.peek(101.0, key=3), rtol=1e-9)


def test_columns_are_found_by_their_names() -> None:
    pd = pytest.importorskip("pandas")
    metadata = {"channels": ["hr", "spo2"]}
    model = classifier()
    named, plain = StreamSession(model, metadata=metadata), StreamSession(model)
    frame = pd.DataFrame(
        {"id": [7, 8, 7], "t": [0.0, 1.0, 2.0], "spo2": [96.0, 97.0, 98.0], "hr": [80.0, np.nan, 82.0]}
    )
    frame.index = [5, 6, 7]
    found = named.step_many(frame["id"], frame["t"], frame[["spo2", "hr"]])
    wanted = plain.step_many([7, 8, 7], frame["t"], frame[["hr", "spo2"]])
    np.testing.assert_array_equal(found.values, wanted.values)
    row = pd.Series({"spo2": 95.0, "hr": 90.0})
    np.testing.assert_array_equal(named.step(3.0, row, key=7), plain.step(3.0, [90.0, 95.0], key=7))
    found = named.catch_up([4.0, 5.0], pd.DataFrame({"spo2": [1.0, 2.0]}), key=7)
    np.testing.assert_array_equal(found, plain.catch_up([4.0, 5.0], [[np.nan, 1.0], [np.nan, 2.0]], key=7))
    with pytest.raises(DataError, match="column 'bp', the model knows hr, spo2"):
        named.step_many([7], [9.0], pd.DataFrame({"hr": [1.0], "bp": [2.0]}))
    with pytest.raises(DataError, match="wanted rows of numbers"):
        named.step_many([7], [9.0], [["high", "low"]])


def test_every_way_to_write_a_missing_value() -> None:
    pd = pytest.importorskip("pandas")
    model = classifier()
    wanted = StreamSession(model).step(0.0, [1.0, np.nan])
    masked, nullable = np.ma.array([1.0, -999.0], mask=[False, True]), pd.array([1, None], dtype="Int64")
    whole = np.ma.array([1, -999], mask=[False, True])
    for row in ([1.0, None], [1, pd.NA], masked, whole, nullable, pd.Series(nullable), {"a": 1, "b": pd.NA}, {"a": 1}):
        session = StreamSession(model, metadata={"channels": ["a", "b"]})
        np.testing.assert_array_equal(session.step(0.0, row), wanted)
    frame = pd.DataFrame({"b": nullable[1:], "a": [1.0]})
    for rows in ([[1.0, None]], masked[None], whole[None], frame, frame[["a", "b"]].to_numpy()):
        session = StreamSession(model, metadata={"channels": ["a", "b"]})
        np.testing.assert_array_equal(session.step_many([None], [0.0], rows).values[0], wanted)


def test_keys_of_arrays_are_stored_and_lists_are_none() -> None:
    session = StreamSession(classifier())
    session.step_many(np.array([3, 4]), [0.0, 0.0], [[1.0, 2.0]] * 2)
    session.step(1.0, [1.0, 2.0], key=np.int64(5))
    again = StreamSession(session.model)
    again.load_state_dict(session.state_dict())
    assert again.keys == [3, 4, 5]
    for use in (lambda: session.step(2.0, [1.0, 2.0], key=["a"]), lambda: session.peek(3.0, key=["a"])):
        with pytest.raises(DataError, match="key: found \\['a'\\]"):
            use()
    with pytest.raises(DataError, match="key: found \\['a'\\]"):
        session.step_many([3, ["a"]], [2.0, 2.0], [[1.0, 2.0]] * 2)
    with pytest.raises(DataError, match=r"key: found .*\('a', \[1\]\)"):
        session.step_many([("a", [1])], [1.0], [[1.0, 1.0]])


@pytest.mark.parametrize("key", [np.datetime64("2031-05-01"), float("nan"), np.float32("nan")])
def test_a_key_that_is_never_found_again_is_refused(key: Any) -> None:
    """Every observation would begin the stream anew."""
    session = StreamSession(classifier())
    with pytest.raises(DataError, match="key: found"):
        session.step_many(["a", key], [0.0, 0.0], np.ones((2, 2)))
    assert session.keys == []


@pytest.mark.parametrize("keys", [None, 5])
def test_arguments_of_many_observations_are_checked(keys: Any) -> None:
    session = StreamSession(classifier())
    with pytest.raises(DataError, match=f"keys: found {keys}"):
        session.step_many(keys, [0.0], [[1.0, 2.0]])
    for static in ({"age": 3}, 5):
        with pytest.raises(DataError, match=r"static: found .*, wanted one entry"):
            session.step_many(["a"], [0.0], [[1.0, 2.0]], static=static)  # type: ignore[arg-type]
    values = torch.ones(2, 2, requires_grad=True)
    np.testing.assert_array_equal(
        session.catch_up([0.0, 1.0], values), StreamSession(session.model).catch_up([0.0, 1.0], np.ones((2, 2)))
    )


def test_what_cannot_be_streamed_says_so() -> None:
    with pytest.raises(NotStreamable, match="future"):
        StreamSession(classifier(bidirectional=True))
    with pytest.raises(ConfigError, match="Linear cannot be streamed"):
        StreamSession(torch.nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="found on meta, wanted model"):
        StreamSession(classifier().to("meta"))
    for dtype in (torch.float16, torch.bfloat16):
        with pytest.raises(ShapeError, match=f"model: found parameters in {dtype}"):
            StreamSession(classifier().to(dtype))
    with pytest.raises(DataError, match="origin: found 'abc', wanted an ISO 8601 date"):
        StreamSession(classifier(), metadata={"origin": "abc", "unit": "s"})
    with pytest.raises(DataError, match="see `peek`"):
        StreamSession(classifier(), at=[1.0, 2.0])
    with pytest.raises(DataError, match="n keys"):
        StreamSession(classifier()).step_many(["a"], [0.0, 1.0], [[1.0, 2.0]])
    assert len(StreamSession(classifier()).step_many([], [], [])) == 0
    session = StreamSession(forecaster())
    session.step(0.0, [1.0, 2.0])
    with pytest.raises(DataError, match=r"t_future: found \[\]"):
        session.peek([])


@pytest.mark.parametrize("compiled", [False, None], ids=["module", "compiled"])
def test_a_model_in_training_stays_in_training(compiled: bool | None) -> None:
    model, (times, values) = classifier(), series()
    wanted = StreamSession(model, compiled=compiled).step(times[0], values[0])
    session = StreamSession(model.train(), compiled=compiled)
    assert all(part.training for part in model.modules())
    with torch.no_grad():
        model.head.bias.copy_(torch.arange(3.0))
    np.testing.assert_array_equal(session.step(times[0], values[0]), wanted)


def test_now_may_be_a_whole_number() -> None:
    session, (times, values) = StreamSession(classifier(), at=0), series()
    np.testing.assert_array_equal(
        session.step(times[0], values[0], at=0), StreamSession(session.model).step(times[0], values[0])
    )
    with pytest.raises(DataError, match="at: found 1, but a SequenceClassifier answers for now"):
        session.step(times[1], values[1], at=1)


@pytest.mark.parametrize(
    ("metadata", "kind", "words"),
    [
        ({"schema": "none"}, DataError, "metadata does not describe data"),
        ({"offset": "late"}, DataError, "metadata does not describe data"),
        ({"classes": np.arange(3)}, DataError, "metadata does not describe data"),
        ({"made": np.arange(3)}, ConfigError, "metadata: wanted what JSON can hold"),
    ],
)
def test_metadata_that_are_none_are_named(metadata: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        StreamSession(classifier(), metadata=metadata)


def test_arrays_of_other_kinds_are_numbers_or_refused() -> None:
    model = classifier()
    wanted = StreamSession(model).step(1.0, [1.0, None])
    for row in (np.array([1, None], object), np.array([1.0, np.nan], np.float32), [1, np.nan]):
        np.testing.assert_array_equal(StreamSession(model).step(1.0, row), wanted)
    for row in (np.array(["1", "2"]), np.array(["1", "2"], object), np.array([1 + 1j, 2])):
        with pytest.raises(DataError, match=r"x: found .*, wanted a number"):
            StreamSession(model).step(1.0, row)
