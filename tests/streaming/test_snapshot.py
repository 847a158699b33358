"""Sessions stop and go on: in memory, in a file, on another machine; never with another model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.streaming.test_session import classifier, forecaster, series
from tides.errors import DataError
from tides.streaming import StreamSession
from tides.streaming.snapshot import read_snapshot, write_snapshot


def fed(model: Any, **options: Any) -> StreamSession:
    session = StreamSession(model, **options)
    times, values = series()
    for i, key in enumerate(("a", 3, None)):
        for t, x in zip(times, values, strict=True):
            session.step(t + len(str(key)), x + i, key=key)
    return session


@pytest.mark.parametrize("late", ["reject", "replay"])
@pytest.mark.parametrize("make", [classifier, lambda: classifier(summary=True), forecaster])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_session_goes_on_where_it_was_stored(make: Any, late: Any, compiled: bool, tmp_path: Path) -> None:
    pytest.importorskip("numba")
    model = make()
    session = fed(model, late=late, history=5, compiled=compiled)
    save_file(session.state_dict(), tmp_path / "state.safetensors")
    # The form of the state does not depend on how steps are computed.
    again = StreamSession(model, late=late, history=5, compiled=not compiled)
    again.step(0.0, [1.0, 1.0], key="forgotten")
    again.load_state_dict(load_file(tmp_path / "state.safetensors"))
    assert again.keys == session.keys
    for key in ("a", 3, None, "new"):
        np.testing.assert_allclose(again.step(50.0, [1.0, np.nan], key=key), session.step(50.0, [1.0, np.nan], key=key))
    if late == "replay":
        for key in ("a", 3, None):
            one, two = (s.step(49.0, [2.0, 2.0], key=key) for s in (session, again))
            np.testing.assert_allclose(one, two)
    np.testing.assert_allclose(again.step(60.0, [0.0, 1.0], key=3), session.step(60.0, [0.0, 1.0], key=3))


def test_a_state_of_another_model_is_refused_and_changes_nothing() -> None:
    session = fed(classifier())
    other = fed(classifier(pool="last"))
    answer = other.answer("a")
    with pytest.raises(DataError, match="another model"):
        other.load_state_dict(session.state_dict())
    np.testing.assert_array_equal(other.answer("a"), answer)
    same_numbers = StreamSession(session.model, metadata={"unit": "h"})
    with pytest.raises(DataError, match="another model"):
        same_numbers.load_state_dict(session.state_dict())
    with torch.no_grad():
        session.model.head.bias[0] += 1e-3
    with pytest.raises(DataError, match="another model"):
        StreamSession(session.model).load_state_dict(session.state_dict())


def test_broken_states_are_named(tmp_path: Path) -> None:
    session = fed(classifier())
    state = session.state_dict()
    state.pop("table.last")
    with pytest.raises(DataError, match=r"table\.last"):
        session.load_state_dict(state)
    with pytest.raises(DataError, match="not the state of a session"):
        session.load_state_dict({"x": torch.ones(2)})
    state = session.state_dict()
    other = bytes(state["about"]).replace(b'"format": 1', b'"format": 2')
    state["about"] = torch.tensor(list(other), dtype=torch.uint8)
    with pytest.raises(DataError, match="state: found format 2, wanted 1"):
        session.load_state_dict(state)
    (tmp_path / "broken").write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match="broken"):
        read_snapshot(session, tmp_path / "broken")
    write_snapshot(session, tmp_path / "snapshot.safetensors", {"applied": 17})
    assert read_snapshot(session, tmp_path / "snapshot.safetensors") == {"applied": 17}
    session.step(99.0, [1.0, 1.0], key=("a", "tuple"))
    with pytest.raises(DataError, match=r"keys: found .*tuple"):
        session.state_dict()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("table.last", lambda tensor: tensor[:0]),
        ("table.count", lambda tensor: tensor.double()),
        ("state.held", lambda tensor: tensor[:, :1]),
        ("state.held", lambda tensor: tensor.float()),
        ("history.counts", lambda tensor: tensor + 1),
        ("history.counts", lambda tensor: -tensor),
        ("history.sizes", lambda tensor: 0 * tensor),
        ("history.base.held", lambda tensor: tensor[1:]),
        (
            "about",
            lambda tensor: torch.tensor(list(bytes(tensor).replace(b"3, null", b'"a", null')), dtype=torch.uint8),
        ),
    ],
)
def test_a_state_of_another_size_or_kind_changes_nothing(name: str, change: Any) -> None:
    session = fed(classifier(), late="replay")
    answer, state = session.answer("a"), session.state_dict()
    state[name] = change(state[name])
    with pytest.raises(DataError, match="state: "):
        session.load_state_dict(state)
    assert session.keys == ["a", 3, None]
    np.testing.assert_array_equal(session.answer("a"), answer)


def test_static_covariates_of_the_past_are_stored() -> None:
    columns = {"channels": ["a"], "static": [{"name": "age"}]}
    model = forecaster()
    session = StreamSession(model, metadata=columns, late="replay", history=2)
    for t, static in ((0.0, {"age": 1}), (2.0, None), (3.0, {"age": 5})):
        session.step(t, [t], static=static)
    again, earlier = (StreamSession(model, metadata=columns, late="replay", history=2) for _ in range(2))
    again.load_state_dict(session.state_dict())
    np.testing.assert_array_equal(again.step(1.0, [1.0]), session.step(1.0, [1.0]))
    # Earlier versions did not store them: the present ones stand for all.
    unknown = (".static", ".named")
    state = {n: leaf for n, leaf in session.state_dict().items() if not (n.startswith("hist") and n.endswith(unknown))}
    earlier.load_state_dict(state)
    assert earlier.step_many([None], [2.5], [[1.0]]).status == ["replayed"]


def test_a_shorter_history_changes_no_answer() -> None:
    session = fed(classifier(), late="replay", history=5)
    later = StreamSession(session.model, late="replay", history=2)
    later.load_state_dict(session.state_dict())
    straight = fed(session.model)
    for step in range(12):
        for one in (later, straight):
            found = one.step(50.0 + step, [1.0, float(step)], key="a")
    np.testing.assert_allclose(later.answer("a"), found, rtol=1e-9)
    later.step(60.5, [0.5, 0.5], key="a")
    again = fed(session.model)
    for t, x in sorted([*((50.0 + step, [1.0, float(step)]) for step in range(12)), (60.5, [0.5, 0.5])]):
        found = again.step(t, x, key="a")
    np.testing.assert_allclose(later.answer("a"), found, rtol=1e-9)


def test_replay_can_be_switched_on_later() -> None:
    session = fed(classifier())
    later = StreamSession(session.model, late="replay")
    later.load_state_dict(session.state_dict())
    later.step(50.0, [1.0, 1.0], key="a")
    assert later.step_many(["a"], [40.0], [[1.0, 1.0]]).status == ["replayed"]
    assert later.step_many(["a"], [1.0], [[1.0, 1.0]]).status == ["rejected"]
