"""Several observations of one stream at one time: steps of their own, or one step that they complete together."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.streaming.test_session import classifier, forecaster
from tides.errors import ConfigError
from tides.streaming import DurableSession, StreamSession

MODEL, FORECASTER = classifier(summary=True), forecaster()
NAN = np.nan
# Lines as a table with one row per measurement has them, and the steps that such a table is read as.
LINES = [
    (0.0, [1.0, NAN]),
    (1.0, [2.0, NAN]),
    (1.0, [NAN, 3.0]),
    (2.0, [NAN, 1.0]),
    (4.0, [0.5, NAN]),
    (4.0, [NAN, 0.1]),
    (4.5, [1.5, 2.5]),
]
STEPS = [(0.0, [1.0, NAN]), (1.0, [2.0, 3.0]), (2.0, [NAN, 1.0]), (4.0, [0.5, 0.1]), (4.5, [1.5, 2.5])]


def taken(model: Any, rows: Any, **options: Any) -> StreamSession:
    session = StreamSession(model, **options)
    for t, x in rows:
        session.step(t, x)
    return session


@pytest.mark.parametrize("metadata", [{}, {"cut": 3.0}], ids=["whole", "cut"])
@pytest.mark.parametrize("late", ["reject", "replay"])
@pytest.mark.parametrize("model", [MODEL, FORECASTER], ids=["classifier", "forecaster"])
def test_they_complete_one_step(model: Any, late: Any, metadata: Any) -> None:
    wanted = taken(model, STEPS, metadata=metadata).answer()
    options = {"metadata": metadata, "late": late, "same_time": "merge"}
    merged = taken(model, LINES, **options)
    np.testing.assert_allclose(merged.answer(), wanted, rtol=1e-9)
    assert merged.intake.table.count[0] == len(STEPS)
    times, values = [t for t, _ in LINES], [x for _, x in LINES]
    for sizes in ([7], [2, 5], [5, 2], [6, 1]):
        caught, at = StreamSession(model, **options), 0
        for size in sizes:
            caught.catch_up(times[at : at + size], values[at : at + size])
            at += size
        np.testing.assert_allclose(caught.answer(), wanted, rtol=1e-9)
    together = StreamSession(model, **options)
    answers = together.step_many([None] * 7, times, values)
    assert answers.status == ["taken", "taken", "merged", "taken", "taken", "merged", "taken"]
    np.testing.assert_allclose(answers.values[-1], wanted, rtol=1e-9)
    alone = taken(model, LINES, metadata=metadata)
    assert np.abs(alone.answer() - wanted).max() > 1e-4
    assert alone.intake.coincident == 2
    assert merged.intake.coincident == 0


def test_what_is_said_again_and_what_is_said_otherwise() -> None:
    session = StreamSession(MODEL, same_time="merge")
    answers = session.step_many([None] * 5, [1.0] * 5, [[1.0, 2.0], [1.0, NAN], [NAN, NAN], [5.0, NAN], [5.0, 2.0]])
    assert answers.status == ["taken", "ignored", "ignored", "merged", "ignored"]
    np.testing.assert_allclose(answers.values[-1], taken(MODEL, [(1.0, [5.0, 2.0])]).answer(), rtol=1e-9)


def test_a_late_one_completes_the_step_of_its_time() -> None:
    session = taken(MODEL, [STEPS[0], (1.0, [2.0, NAN]), *STEPS[2:]], late="replay", same_time="merge")
    answers = session.step_many([None, None, None], [1.0, 1.0, 3.0], [[NAN, 3.0], [NAN, 3.0], [7.0, 7.0]])
    assert answers.status == ["merged", "ignored", "replayed"]
    np.testing.assert_allclose(answers.values[0], taken(MODEL, STEPS).answer(), rtol=1e-9)


def test_static_columns_that_come_with_them() -> None:
    columns = {"channels": ["a"], "static": [{"name": "age"}]}
    session = StreamSession(FORECASTER, metadata=columns, same_time="merge")
    session.step(0.0, [1.0], static={"age": 1.0})
    session.step(1.0, [NAN], static={"age": 2.0})
    session.step(1.0, [3.0], static={"age": 5.0})
    plain = StreamSession(FORECASTER, metadata=columns)
    plain.step(0.0, [1.0], static={"age": 1.0})
    wanted = plain.step(1.0, [3.0], static={"age": 5.0})
    np.testing.assert_allclose(session.answer(), wanted, rtol=1e-9)
    np.testing.assert_allclose(session.step(2.0, [0.0]), plain.step(2.0, [0.0]), rtol=1e-9)


def test_between_two_processes(tmp_path: Path) -> None:
    for number, (t, x) in enumerate(LINES, start=1):
        durable = DurableSession(StreamSession(MODEL, same_time="merge"), tmp_path, every=2)
        found = durable.step(t, x, number=number)
        durable._release()  # as a kill does, without a farewell
    np.testing.assert_allclose(found, taken(MODEL, STEPS).answer(), rtol=1e-9)
    # What was stored before anybody asked for it cannot be completed: such an observation is a step of its own.
    plain, later = taken(MODEL, LINES[:2]), StreamSession(MODEL, same_time="merge")
    later.load_state_dict(plain.state_dict())
    np.testing.assert_allclose(later.step(*LINES[2]), plain.step(*LINES[2]), rtol=1e-9)


def test_it_is_one_of_two() -> None:
    with pytest.raises(ConfigError, match="same_time: found 'mean', wanted step or merge"):
        StreamSession(MODEL, same_time="mean")  # type: ignore[arg-type]
