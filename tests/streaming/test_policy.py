"""Late, duplicate and out-of-order observations, and long silences."""

from datetime import timedelta
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.streaming.test_session import classifier, forecaster, series
from tides.errors import ConfigError, DataError
from tides.streaming import StreamPolicy, StreamSession

MODEL = classifier()
COMPILED = find_spec("numba") is not None


def test_a_late_observation_is_rejected_with_the_reason() -> None:
    session = StreamSession(MODEL)
    session.step(1.0, [1.0, 2.0])
    answer = session.step(3.0, [0.0, 1.0])
    with pytest.raises(DataError, match="late: found t = 2 after 3"):
        session.step(2.0, [5.0, 5.0])
    np.testing.assert_array_equal(session.answer(), answer)
    answers = session.step_many([None, "new", None], [2.0, 1.0, 4.0], [[5.0, 5.0], [1.0, 1.0], [0.0, np.inf]])
    assert answers.status == ["rejected", "taken", "rejected"]
    assert answers.reasons[0].startswith("late")
    assert "infinity" in answers.reasons[2]
    np.testing.assert_array_equal(answers.values[0], answer)


def test_a_late_observation_is_ignored() -> None:
    session = StreamSession(MODEL, late="ignore")
    session.step(1.0, [1.0, 2.0])
    answer = session.step(3.0, [0.0, 1.0])
    np.testing.assert_array_equal(session.step(2.0, [5.0, 5.0]), answer)
    assert session.step_many([None], [2.0], [[5.0, 5.0]]).status == ["ignored"]
    assert session.intake.table.count[session.intake.table.row(None)] == 2


@settings(max_examples=10)
@given(st.permutations(range(9)), st.integers(1, 6), st.sampled_from([COMPILED, COMPILED, False]))
def test_replay_ends_where_the_right_order_ends(order: list[int], history: int, compiled: bool) -> None:
    times, values = series(9)
    times = np.arange(9.0)
    session = StreamSession(MODEL, late="replay", history=history, compiled=compiled)
    taken = []
    for k in order:
        answers = session.step_many([None], [times[k]], values[k : k + 1])
        if answers.status[0] == "rejected":
            assert "earliest state kept" in answers.reasons[0]
            # At least `history` observations can always be followed by a late one.
            assert sum(times[j] >= times[k] for j in taken) >= history
        else:
            taken.append(k)
    straight = StreamSession(MODEL, compiled=compiled)
    for k in sorted(taken):
        wanted = straight.step(times[k], values[k])
    np.testing.assert_allclose(session.answer(), wanted, rtol=1e-9)
    np.testing.assert_allclose(session.step(20.0, [1.0, 1.0]), straight.step(20.0, [1.0, 1.0]), rtol=1e-9)


def test_replayed_forecasts() -> None:
    session, straight = (StreamSession(forecaster(), late=late, at=[1.0]) for late in ("replay", "reject"))
    for t, x in ((0.0, 1.0), (2.0, 3.0), (1.0, 2.0)):
        found = session.step(t, [x, np.nan])
    straight_model = StreamSession(session.model, at=[1.0])
    for t, x in ((0.0, 1.0), (1.0, 2.0), (2.0, 3.0)):
        wanted = straight_model.step(t, [x, np.nan])
    np.testing.assert_allclose(found, wanted, rtol=1e-8)
    assert straight.policy.late == "reject"


@pytest.mark.parametrize(("duplicate", "status"), [("ignore", "ignored"), ("reject", "rejected"), ("take", "taken")])
def test_duplicates(duplicate: Any, status: str) -> None:
    session = StreamSession(MODEL, duplicate=duplicate)
    session.step(1.0, [1.0, np.nan])
    answers = session.step_many([None], [1.0], [[1.0, np.nan]])
    assert answers.status == [status]
    assert (0 in answers.reasons) == (status != "taken")
    # Other values at the same time are news.
    assert session.step_many([None], [1.0], [[1.0, 2.0]]).status == ["taken"]


def test_a_late_duplicate_is_known_when_it_can_be_replayed() -> None:
    session = StreamSession(MODEL, late="replay")
    for t in (0.0, 1.0, 2.0):
        answer = session.step(t, [t, 1.0])
    assert session.step_many([None], [1.0], [[1.0, 1.0]]).status == ["ignored"]
    np.testing.assert_array_equal(session.answer(), answer)
    assert session.step_many([None], [1.0], [[7.0, 1.0]]).status == ["replayed"]


@pytest.mark.parametrize(("late", "status"), [("reject", "taken"), ("replay", "rejected")])
def test_a_duplicate_of_an_earlier_one_of_the_same_time_is_known_from_the_history(late: Any, status: str) -> None:
    session, caught = (StreamSession(MODEL, late=late, duplicate="reject", history=2) for _ in range(2))
    session.step(1.0, [1.0, 2.0])
    session.step(1.0, [3.0, 4.0])
    assert session.step_many([None], [1.0], [[1.0, 2.0]]).status == [status]
    # A stretch that is long enough to be read at once is no different.
    times = [0.0, 1.0, 1.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    values = [[0.0, 0.0], [1.0, 2.0], [3.0, 4.0], [1.0, 2.0], *[[0.0, 0.0]] * 4]
    if late == "reject":
        caught.catch_up(times, values)
    else:
        with pytest.raises(DataError, match="row 3 of 8: duplicate"):
            caught.catch_up(times, values)


@pytest.mark.parametrize("silence", [None, 50.0])
def test_what_is_too_long_before_the_next_is_not_replayed(silence: float | None) -> None:
    session, in_order = (StreamSession(MODEL, late="replay", reset_after=silence) for _ in range(2))
    early = -1e200 if silence is None else 0.0
    session.step(100.0, [3.0, 4.0])
    answers = session.step_many([None], [early], [[1.0, 2.0]])
    reason = "longer than the model can calculate with" if silence is None else "the stream starts anew at 100"
    assert answers.status == ["rejected"]
    assert reason in answers.reasons[0]
    if silence is not None:
        in_order.step(early, [1.0, 2.0])
    in_order.step(100.0, [3.0, 4.0])
    np.testing.assert_array_equal(session.step(101.0, [5.0, 6.0]), in_order.step(101.0, [5.0, 6.0]))


def test_nothing_is_replayed_before_the_start_of_time() -> None:
    model = classifier(first_gap="start")
    session, plain = StreamSession(model, late="replay"), StreamSession(model, late="replay")
    for one in (session, plain):
        one.step(1.0, [1.0, 2.0])
    answers = session.step_many([None, "b"], [-0.5, 0.5], [[3.0, 4.0]] * 2)
    assert answers.status == ["rejected", "taken"]
    assert answers.reasons[0] == "t: found -0.5, before the start of time at 0"
    for t in (2.0, 1.5):
        np.testing.assert_array_equal(session.step(t, [5.0, 6.0]), plain.step(t, [5.0, 6.0]))
    ignoring = StreamSession(model, late="ignore")
    ignoring.step(1.0, [1.0, 2.0])
    assert ignoring.step_many([None], [-0.5], [[3.0, 4.0]]).status == ["ignored"]


def test_a_replay_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    session, plain = StreamSession(MODEL, late="replay"), StreamSession(MODEL, late="replay")
    for one in (session, plain):
        one.catch_up([0.0, 2.0], [[1.0, 2.0], [3.0, 4.0]])
    with monkeypatch.context() as patch:
        patch.setattr(session.intake.bank, "read", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            session.step(1.0, [5.0, 6.0])
    for t in (3.0, 1.5):
        np.testing.assert_array_equal(session.step(t, [5.0, 6.0]), plain.step(t, [5.0, 6.0]))


def test_a_long_silence_starts_anew() -> None:
    session = StreamSession(MODEL, metadata={"unit": "h"}, reset_after=timedelta(hours=24), late="replay")
    session.catch_up([0.0, 1.0, 2.0], [[1.0, 2.0]] * 3)
    assert session.step_many([None], [26.0], [[0.0, 1.0]]).status == ["taken"]
    answers = session.step_many([None], [50.5], [[3.0, 1.0]])
    assert answers.status == ["reset"]
    np.testing.assert_allclose(answers.values[0], StreamSession(MODEL).step(50.5, [3.0, 1.0]), rtol=1e-12)
    # What came before the new beginning stays there.
    assert session.step_many([None], [50.0], [[3.0, 1.0]]).status == ["rejected"]
    stretch = session.catch_up([51.0, 52.0, 100.0], [[1.0, 1.0], [0.0, 0.0], [3.0, 1.0]])
    np.testing.assert_allclose(stretch, answers.values[0], rtol=1e-12)


def test_missing_values_need_mask_channels() -> None:
    session = StreamSession(classifier(mask_channels="auto"))
    with pytest.raises(DataError, match="no mask channels"):
        session.step(0.0, [1.0, np.nan])
    session.step(0.0, [1.0, 2.0])
    with pytest.raises(DataError, match="finite time"):
        session.step(np.nan, [1.0, 2.0])
    with pytest.raises(DataError, match="start of time"):
        StreamSession(classifier(first_gap="start")).step(-1.0, [1.0, 2.0])


def test_one_key_several_times_in_one_call() -> None:
    together, one = StreamSession(MODEL), StreamSession(MODEL)
    answers = together.step_many(["a", "b", "a", "a"], [0.0, 0.0, 2.0, 1.0], [[1.0, 1.0]] * 4)
    assert answers.status == ["taken", "taken", "taken", "rejected"]
    one.step(0.0, [1.0, 1.0])
    np.testing.assert_allclose(answers.values[2], one.step(2.0, [1.0, 1.0]), rtol=1e-9)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"late": "accept"}, "late: found 'accept'"),
        ({"duplicate": "replay"}, "duplicate"),
        ({"history": 0}, "history"),
    ],
)
def test_policies_are_checked(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        StreamPolicy(**fields)


@pytest.mark.parametrize("hold", ["following", "preceding"])
def test_how_fast_an_alarm_moves_the_answer(hold: Any) -> None:
    """Under `preceding` a reading enters the state at once; under `following` the state knows it a gap later."""
    session = StreamSession(classifier(hold=hold, pool="last"), compiled=False)
    for t in range(20):
        session.step(float(t), [0.0, 0.0])
    before = session.state_dict()["state.blocks.0.s"].clone()
    calm = StreamSession(session.model, compiled=False)
    calm.load_state_dict(session.state_dict())
    session.step(20.0, [5.0, 5.0])
    calm.step(20.0, [0.0, 0.0])
    alarmed, quiet = (one.state_dict()["state.blocks.0.s"] for one in (session, calm))
    assert not np.array_equal(before, quiet)
    at_once = float((alarmed - quiet).abs().max())
    if hold == "following":
        assert at_once == 0.0
    else:
        assert at_once > 1e-3
    session.step(21.0, [5.0, 5.0])
    calm.step(21.0, [0.0, 0.0])
    alarmed, quiet = (one.state_dict()["state.blocks.0.s"] for one in (session, calm))
    assert float((alarmed - quiet).abs().max()) > 1e-3
    # The answer itself moves at once under both: by the read-out and the skip connection.
    assert np.abs(session.answer() - calm.answer()).max() > 1e-4


class Reference:
    """One stream in the plainest words: the list of what was accepted, read whole."""

    def __init__(self, late: str, duplicate: str, silence: float) -> None:
        self.late, self.duplicate, self.silence = late, duplicate, silence
        self.taken: list[tuple[float, float]] = []
        self.floor = -np.inf

    def offer(self, t: float, x: float) -> str:
        newest = max((time for time, _ in self.taken), default=-np.inf)
        if self.taken and t - newest > self.silence:
            self.taken, self.floor = [(t, x)], t
            return "reset"
        is_late = t < newest
        if is_late and (self.late != "replay" or t < self.floor):
            return "ignored" if self.late == "ignore" else "rejected"
        if is_late and self.late == "replay" and min(time for time, _ in self.taken if time > t) - t > self.silence:
            return "rejected"
        known = self.taken if self.late == "replay" else self.taken[-1:]
        if self.duplicate != "take" and (t, x) in known:
            return "ignored" if self.duplicate == "ignore" else "rejected"
        place = sum(time <= t for time, _ in self.taken)
        self.taken.insert(place, (t, x))
        return "replayed" if is_late else "taken"


@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 1)), min_size=1, max_size=25),
    st.sampled_from(["reject", "ignore", "replay"]),
    st.sampled_from(["reject", "ignore", "take"]),
    st.sampled_from([None, 3]),
    st.integers(1, 5),
)
@torch.no_grad()
def test_streams_against_a_plain_reference(
    events: list[tuple[str, int, int]], late: Any, duplicate: Any, silence: int | None, batch: int
) -> None:
    session = StreamSession(MODEL, late=late, duplicate=duplicate, reset_after=silence, compiled=COMPILED)
    references = {key: Reference(late, duplicate, silence or np.inf) for key in "ab"}
    for begin in range(0, len(events), batch):
        piece = events[begin : begin + batch]
        keys, times, values = zip(*piece, strict=True)
        found = session.step_many(keys, times, [[float(x), np.nan] for x in values])
        assert found.status == [references[key].offer(t, x) for key, t, x in piece]
        assert set(found.reasons) == {i for i, status in enumerate(found.status) if status in ("ignored", "rejected")}
    for key in session.keys:
        times, values = zip(*references[key].taken, strict=True)
        x = torch.tensor([[[float(value), 0.0] for value in values]]).double()
        seen = torch.tensor([[[True, False]] * len(values)])
        wanted = MODEL(x, MODEL.gaps(torch.tensor([times]).double()), observed=seen).softmax(-1)[0]
        np.testing.assert_allclose(session.answer(key), wanted.numpy(), rtol=1e-8)


@pytest.mark.parametrize("compiled", [COMPILED, False])
@pytest.mark.parametrize("value", [3.4e38, -1e300, 1e25])
def test_a_value_beyond_all_measure_is_rejected_alone(value: float, compiled: bool) -> None:
    model = classifier().float()
    session = StreamSession(model, compiled=compiled)
    answer = session.step(0.0, [1.0, 1.0])
    answers = session.step_many([None, "b"], [1.0, 1.0], [[0.0, value], [1.0, 1.0]])
    assert answers.status == ["rejected", "taken"]
    assert answers.reasons[0] == f"x: found {value:g} in channel 1, larger than the model can calculate with"
    np.testing.assert_array_equal(session.answer(), answer)
    with pytest.raises(DataError, match="larger than"):
        session.catch_up([2.0, 3.0, 4.0], [[1.0, 1.0], [value, 0.0], [1.0, 1.0]])


def test_a_silence_beyond_all_measure_is_rejected_unless_it_starts_anew() -> None:
    model = classifier().float()
    for policy, status in (({}, "rejected"), ({"reset_after": 10.0}, "reset")):
        session = StreamSession(model, **policy)
        session.step(0.0, [1.0, 1.0])
        assert session.step_many([None], [1e39], [[1.0, 1.0]]).status == [status]
    session = StreamSession(forecaster().float())
    session.step(0.0, [1.0, 1.0])
    for ask in (lambda: session.answer(at=[1e39]), lambda: session.peek(1e39)):
        with pytest.raises(DataError, match="1e\\+39"):
            ask()


@pytest.mark.parametrize("mode", ["readout", "steps"])
def test_a_question_too_far_ahead_does_not_cost_the_stream_its_memory(mode: Any) -> None:
    model = forecaster(mode, reparam="standard", variant="s5")
    with torch.no_grad():
        for block in model.backbone.typed_blocks():
            block.ssm.decay.value.fill_(0.5)
    asked, plain = StreamSession(model), StreamSession(model)
    for t in range(4):
        wanted = plain.step(float(t), [1.0, float(t)])
        answers = asked.step_many([None], [float(t)], [[1.0, float(t)]], at=[0.0, 1e9])
        assert answers.status == ["taken"]
        assert answers.reasons == {}
        np.testing.assert_allclose(answers.values[0, 0], wanted, rtol=1e-9)
        assert not np.isfinite(answers.values[0, 1]).any()


@pytest.mark.parametrize("task", ["class", "forecast"])
def test_a_stream_whose_answer_is_not_finite_starts_anew(task: str) -> None:
    model = (classifier if task == "class" else forecaster)(projector_norm=False).float()
    session, fresh = StreamSession(model), StreamSession(model)
    session.step(0.0, [1.0, 1.0])
    # Squares and products of this reading overflow, in this step or in a later one.
    status = [session.step_many([None], [t], [[x, x]]).status[0] for t, x in ((1.0, 1e15), (2.0, 0.5), (3.0, 0.5))]
    assert {"reset", "rejected"} & set(status)
    assert status[-1] in ("taken", "reset")
    session.forget(None)
    for t in (4.0, 5.0):
        np.testing.assert_array_equal(session.step(t, [1.0, 1.0]), fresh.step(t, [1.0, 1.0]))


def test_reasons_say_when() -> None:
    session = StreamSession(MODEL, metadata={"unit": "h", "origin": "2031-05-01"})
    session.step("2031-05-02T10:00:00.25Z", [1.0, 2.0])
    with pytest.raises(DataError, match=r"late: found t = 2031-05-02T08:00:00 after 2031-05-02T10:00:00\.25$"):
        session.step("2031-05-02T08:00:00Z", [1.0, 2.0])
    session = StreamSession(MODEL)
    session.step(1900000000.5, [1.0, 2.0])
    with pytest.raises(DataError, match=r"late: found t = 1900000000\.25 after 1900000000\.5"):
        session.step(1900000000.25, [1.0, 2.0])


@pytest.mark.parametrize(
    ("times", "values", "problem"),
    [
        ([1.0, 3.0, 2.0, 4.0], [0.0] * 4, "row 2 of 4, t = 2: found a time before the one it follows"),
        ([-1.0, 3.0], [0.0] * 2, "row 0 of 2, t = -1: found a time before"),
        ([1.0, np.nan], [0.0] * 2, "row 1 of 2, t = nan: found a time that is not finite"),
        ([1.0, 2.0], [0.0, np.inf], "row 1 of 2, t = 2: found a value that is infinite"),
    ],
)
def test_a_stretch_is_taken_whole_or_not_at_all(times: list[float], values: list[float], problem: str) -> None:
    session = StreamSession(MODEL)
    answer = session.step(0.0, [1.0, 1.0])
    with pytest.raises(DataError, match=problem):
        session.catch_up(times, [[value, 0.0] for value in values])
    np.testing.assert_array_equal(session.answer(), answer)
    with pytest.raises(DataError, match="found a"):
        session.catch_up([3.0, 2.0], [[0.0, 0.0]] * 2, key="new")
    assert session.keys == [None]


@pytest.mark.parametrize(
    ("policy", "times", "problem"),
    [
        ({"duplicate": "reject"}, [6.0, 7.0, 7.0, 8.0], "row 2 of 4: duplicate"),
        ({}, [6.0, 7.0, 1e200], "row 2 of 3: t: found 1e.200, a gap of 1e.200 is longer"),
        ({"late": "replay", "history": 1}, [6.0, 7.0, 2.0], "row 2 of 3: late: .* earliest state kept"),
        ({"late": "replay", "reset_after": 1.0}, [9.0, 7.0], "row 1 of 2: late: .* earliest state kept"),
    ],
)
def test_a_stretch_that_the_policy_refuses_is_undone(policy: dict[str, Any], times: list[float], problem: str) -> None:
    session, plain = StreamSession(MODEL, **policy), StreamSession(MODEL, **policy)
    for one in (session, plain):
        for t in range(6):
            one.step(float(t), [0.0, t])
    with pytest.raises(DataError, match=problem):
        session.catch_up(times, [[1.0, 1.0]] * len(times))
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(session.state_dict()[name], tensor, rtol=0, atol=0, equal_nan=True)
    with pytest.raises(DataError, match="row"):
        session.catch_up([0.0, *times], [[1.0, 1.0]] * (1 + len(times)), key="new")
    assert session.keys == [None]
