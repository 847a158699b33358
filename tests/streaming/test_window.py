"""Streams of models that were trained on pieces of long series answer from the last such stretch."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.streaming.test_session import classifier, forecaster, series
from tides.errors import DataError
from tides.streaming import DurableSession, StreamSession

CUT = {"cut": 3.0}
MODEL = forecaster()


def alone(model: Any, times: Any, values: Any, span: float = 3.0) -> Any:
    """The answer of a stream to which only the last stretch was told."""
    times, values = np.asarray(times), np.asarray(values)
    near = times >= times[-1] - span - 1e-9
    return StreamSession(model).catch_up(times[near], values[near])


@pytest.mark.parametrize("compiled", [None, False])
@pytest.mark.parametrize("make", [forecaster, lambda: forecaster("steps"), lambda: classifier(summary=True)])
def test_every_answer_is_that_of_the_last_stretch(make: Any, compiled: bool | None) -> None:
    model, (times, values) = make(), series(25)
    session, uncut = StreamSession(model, metadata=CUT, compiled=compiled), StreamSession(model)
    for k in range(25):
        found, other = session.step(times[k], values[k]), uncut.step(times[k], values[k])
        np.testing.assert_allclose(found, alone(model, times[: k + 1], values[: k + 1]), rtol=1e-7, atol=1e-9)
    assert np.abs(found - other).max() > 1e-6
    np.testing.assert_array_equal(session.answer(), found)
    assert len(session.intake.histories[0].times) < 12


@settings(max_examples=20)
@given(st.integers(1, 60), st.integers(2, 40), st.sampled_from([3, 7, 10]), st.integers(-50, 50))
def test_what_lies_at_the_very_end_of_the_stretch_counts(span: int, rows: int, per_unit: int, first: int) -> None:
    """Times on a grid whose step has no exact number: the first one is a whole span before the last one."""
    times, values = (first + np.arange(rows)) / per_unit, np.arange(2.0 * rows).reshape(rows, 2)
    session = StreamSession(MODEL, metadata={"cut": span / per_unit})
    for t, x in zip(times, values, strict=True):
        session.step(t, x)
    assert session.intake.histories[0].times == times[max(0, rows - span - 1) :].tolist()


def test_however_it_was_taken_in() -> None:
    times, values = series(30)
    wanted = alone(MODEL, times, values)
    for sizes in ([30], [1, 29], [12, 1, 17], [29, 1]):
        session, at = StreamSession(MODEL, metadata=CUT), 0
        for size in sizes:
            found = session.catch_up(times[at : at + size], values[at : at + size])
            at += size
        np.testing.assert_allclose(found, wanted, rtol=1e-7)
    many = StreamSession(MODEL, metadata=CUT)
    keys = ["a", "b"] * 30
    answers = many.step_many(keys, np.repeat(times, 2), np.repeat(values, 2, axis=0))
    np.testing.assert_allclose(answers.values[-2:], np.stack([wanted] * 2), rtol=1e-7)
    later = times[-1] + 1.5
    uncut = StreamSession(MODEL)
    uncut.catch_up(times[times >= times[-1] - 3.0], values[times >= times[-1] - 3.0])
    np.testing.assert_allclose(many.peek(later, key="a"), uncut.peek(later), rtol=1e-7)


def test_late_ones_within_the_stretch_find_their_place() -> None:
    times, values = np.arange(10.0) / 2, series(10)[1]
    session = StreamSession(MODEL, metadata=CUT, late="replay", history=1)
    order = [0, 1, 2, 4, 3, 5, 7, 9, 6, 8]
    for k in order:
        found = session.step(times[k], values[k])
    np.testing.assert_allclose(found, alone(MODEL, times, values), rtol=1e-7)
    answers = session.step_many([None, None], [1.0, 1.5], [[1.0, 1.0], [2.0, 2.0]])
    assert answers.status == ["rejected", "replayed"]
    assert answers.reasons[0] == "late: found t = 1, the earliest state kept is of 1.5"
    refusing = StreamSession(MODEL, metadata=CUT)
    refusing.catch_up(times, values)
    assert refusing.step_many([None], [4.25], [[1.0, 1.0]]).status == ["rejected"]


def test_static_columns_hold_for_the_observations_that_they_came_with() -> None:
    columns = {"channels": ["a"], "static": [{"name": "age"}]}
    session, plain = StreamSession(MODEL, metadata=columns | CUT), StreamSession(MODEL, metadata=columns)
    told = [{"age": 1.0}, None, {"age": 3.0}, None, None, {"age": 7.0}, None]
    for t, static in enumerate(told):
        found = session.step(float(t), [float(t)], static=static)
    plain.step(3.0, [3.0], static={"age": 3.0})
    for t, static in ((4.0, None), (5.0, {"age": 7.0}), (6.0, None)):
        wanted = plain.step(t, [t], static=static)
    np.testing.assert_allclose(found, wanted, rtol=1e-7)


def test_a_silence_begins_a_new_stretch() -> None:
    session = StreamSession(MODEL, metadata=CUT, reset_after=2.0)
    session.catch_up([0.0, 1.0, 1.5], [[1.0, 2.0]] * 3)
    assert session.step_many([None], [4.0], [[3.0, 4.0]]).status == ["reset"]
    found = session.step(4.5, [5.0, 6.0])
    np.testing.assert_allclose(found, alone(MODEL, [4.0, 4.5], [[3.0, 4.0], [5.0, 6.0]]), rtol=1e-7)


@pytest.mark.parametrize("late", ["reject", "replay"])
def test_it_goes_on_where_it_was_stored(late: Any) -> None:
    times, values = series(30)
    session, again = (StreamSession(MODEL, metadata=CUT, late=late) for _ in range(2))
    session.catch_up(times[:20], values[:20], key="a")
    session.step(0.5, [1.0, 1.0], key="b")
    again.load_state_dict(session.state_dict())
    for one in (session, again):
        found = one.catch_up(times[20:], values[20:], key="a")
        np.testing.assert_allclose(found, alone(MODEL, times, values), rtol=1e-7)
    np.testing.assert_array_equal(again.step(9.0, [2.0, 2.0], key="b"), session.step(9.0, [2.0, 2.0], key="b"))
    bare = {name: leaf for name, leaf in session.state_dict().items() if not name.startswith("history")}
    with pytest.raises(DataError, match=r"'history\.counts' is missing"):
        again.load_state_dict(bare)


def test_it_survives_a_process(tmp_path: Path) -> None:
    times, values = series(30)
    for begin in range(0, 30, 6):
        durable = DurableSession(StreamSession(MODEL, metadata=CUT), tmp_path, every=7)
        for k in range(begin, begin + 6):
            found = durable.step(times[k], values[k], number=k + 1)
        durable._release()  # as a kill does, without a farewell
    np.testing.assert_allclose(found, alone(MODEL, times, values), rtol=1e-7)


def test_a_stretch_without_a_finite_answer_changes_nothing() -> None:
    session, plain = (StreamSession(MODEL, metadata=CUT) for _ in range(2))
    for one in (session, plain):
        one.catch_up([0.0, 1.0, 2.0], [[1.0, 2.0]] * 3)
    with pytest.raises(DataError, match="row 1 of 2"):
        session.catch_up([2.5, 2.2], [[1.0, 1.0]] * 2)
    np.testing.assert_array_equal(session.step(5.5, [0.0, 1.0]), plain.step(5.5, [0.0, 1.0]))


@pytest.mark.parametrize("cut", [0, -1.0, "3h", "soon"])
def test_a_cut_is_a_duration(cut: Any) -> None:
    with pytest.raises(DataError, match="cut: found"):
        StreamSession(MODEL, metadata={"cut": cut})
