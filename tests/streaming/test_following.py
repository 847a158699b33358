"""Events in, predictions out: one process, many processes that are killed, sources that repeat themselves."""

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tides
from tests.nn.models import small_config, unsettled
from tests.streaming.killing import follow, kill_at_random
from tests.streaming.test_session import classifier, forecaster
from tides.errors import DataError
from tides.streaming import DurableSession, StreamSession
from tides.streaming.events import parse_event
from tides.streaming.following import Following, Tally

MODEL = classifier()
METADATA = {"channels": ["hr", "spo2"], "classes": ["well", "ill", "gone"], "unit": "h"}


def session(**options: Any) -> StreamSession:
    return StreamSession(MODEL, metadata=METADATA, **options)


def lines(count: int) -> list[str]:
    generator = np.random.default_rng(1)
    found = []
    for n in range(1, count + 1):
        x = {"hr": float(generator.normal())} if n % 3 else [float(generator.normal()), None]
        found.append(json.dumps({"key": f"bed {n % 4}", "t": 0.25 * n, "x": x}))
    return found


def run(one: StreamSession, text: list[str], **options: Any) -> tuple[list[dict[str, Any]], list[int], Tally]:
    source, target = os.pipe()
    os.write(target, "\n".join(text).encode())
    os.close(target)
    sink, complaints = io.BytesIO(), []
    tally = Following(one, sink, lambda line, problem: complaints.append(line), **options).run(source)
    os.close(source)
    return [json.loads(line) for line in sink.getvalue().splitlines()], complaints, tally


def direct(text: list[str]) -> list[dict[str, float]]:
    """What a session says, one observation at a time."""
    one, found = session(), []
    for event in map(json.loads, text):
        answer = one.step(event["t"], event["x"], key=event["key"])
        found.append(dict(zip(METADATA["classes"], answer.tolist(), strict=True)))
    return found


def assert_answers(found: list[dict[str, Any]], wanted: list[dict[str, float]]) -> None:
    assert [line["line"] for line in found] == list(range(1, len(wanted) + 1))
    for line, answer in zip(found, wanted, strict=True):
        assert line["probabilities"] == pytest.approx(answer, abs=2e-6)


def test_lines_in_lines_out() -> None:
    broken = [
        '{"t": 3, "x": [1',
        '{"t": 3, "x": [1, 2], "colour": 1}',
        "[1, 2]",
        '{"x": [1, 2]}',
        '{"t": 3, "x": [1, "high"]}',
        '{"t": 3, "x": [1, 2], "key": [1]}',
        '{"t": "noon", "x": [1, 2]}',
        '{"t": 3, "x": [1, 2], "at": 4}',
        "",
        '{"t": 0.1, "x": [1, 2], "key": "bed 1"}',
    ]
    found, complaints, tally = run(session(), [*lines(9), *broken, lines(10)[9]])
    assert_answers(found[:9], direct(lines(9)))
    assert (found[0]["key"], found[0]["t"], found[0]["status"]) == ("bed 1", 0.25, "taken")
    assert (found[9]["line"], found[9]["status"]) == (19, "rejected")
    assert found[9]["reason"].startswith("late")
    assert "probabilities" not in found[9]
    assert (found[10]["line"], found[10]["status"]) == (20, "taken")
    assert complaints == list(range(10, 18))
    assert (tally.lines, tally.malformed, dict(tally.outcomes)) == (20, 8, {"taken": 10, "rejected": 1})


def test_blank_lines_are_counted_and_nothing_else() -> None:
    text = lines(2)
    found, complaints, tally = run(session(), ["", text[0], " \t", "\r", text[1]], strict=True)
    assert [line["line"] for line in found] == [2, 5]
    assert (tally.lines, tally.malformed, complaints) == (5, 0, [])


def test_a_strict_run_answers_what_came_before_the_bad_line() -> None:
    source, target = os.pipe()
    os.write(target, "\n".join([*lines(2), "{", *lines(3)]).encode())
    os.close(target)
    sink = io.BytesIO()
    with pytest.raises(DataError, match="line 3: not JSON"):
        Following(session(), sink, print, strict=True).run(source)
    os.close(source)
    assert len(sink.getvalue().splitlines()) == 2


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"t": 1%s, "x": [1, 2]}' % ("0" * 400), "t: found"),
        ('{"t": "0001-01-01T00:00:00+14:00", "x": [1, 2, 3]}', "found 3 values"),
        ('{"t": 1, "x": ' + "[" * 20_000, "not JSON"),
        ('{"key": "\\ud800", "t": 1, "x": [1, 2]}', "key: found"),
        ('{"t": 1, "x": [1%s, 2]}' % ("0" * 400), None),
    ],
    ids=lambda one: str(one)[:30],
)
def test_no_line_ends_the_stream(line: str, problem: str | None) -> None:
    one = StreamSession(MODEL, metadata=METADATA)
    found, complaints, _ = run(one, [line, '{"t": 1, "x": [1, 2]}'])
    assert [answer["status"] for answer in found] == (["taken"] if problem else ["rejected", "taken"])
    assert complaints == ([1] if problem else [])
    if problem:
        with pytest.raises(DataError, match=problem):
            parse_event(line, 1, one)


def test_a_stray_static_is_rejected_alone() -> None:
    session = StreamSession(classifier())
    answers = session.step_many(["a", "b"], [0.0, 0.0], [[1.0, 2.0]] * 2, static=[None, {"age": 3}])
    assert answers.status == ["taken", "rejected"]


def test_answers_are_json_whatever_they_are() -> None:
    model = forecaster(reparam="standard", variant="s5")
    with torch.no_grad():
        for block in model.backbone.typed_blocks():
            block.ssm.decay.value.fill_(0.5)
    text = [json.dumps({"t": t, "x": [1.0, 2.0], "at": [0.0, 1e9]}) for t in (0.0, 1.0)]
    found, _, _ = run(StreamSession(model), text)
    assert [line["forecast"][1] for line in found] == [{"at": 1e9, "channel_0": None, "channel_1": None}] * 2
    assert all(isinstance(line["forecast"][0]["channel_0"], float) for line in found)


def test_forecasts_have_offsets_and_names() -> None:
    model = forecaster()
    one = StreamSession(model, metadata={"channels": ["hr", "spo2"], "unit": "h"}, at=["30min", 2])
    events = ['{"t": 0, "x": [1, 2]}', '{"t": "2031-05-01T00:00:00Z", "x": [1, 2], "key": "a", "at": "6h"}']
    found, complaints, _ = run(one, events)
    assert complaints == []
    assert [list(row) for row in found[0]["forecast"]] == [["at", "hr", "spo2"]] * 2
    assert [row["at"] for row in found[0]["forecast"]] == [0.5, 2.0]
    assert [row["at"] for row in found[1]["forecast"]] == [6.0]
    assert found[1]["t"] == "2031-05-01T00:00:00Z"
    plain = StreamSession(model)
    wanted = plain.step(0.0, [1.0, 2.0], at=[0.5, 2.0])
    assert found[0]["forecast"][1]["spo2"] == pytest.approx(wanted[1, 1], rel=1e-6)


@pytest.mark.parametrize("name", ["at", "spread"])
def test_a_channel_with_the_name_of_a_field_is_not_lost(name: str) -> None:
    metadata = {"channels": ["hr", name], "gaussian": True, "spread_scale": [1.0, 1.0]}
    model = unsettled(tides.Forecaster(small_config(mask_channels=True), 4, "readout"))
    found, _, _ = run(StreamSession(model, metadata=metadata, at=[0.5]), ['{"t": 0, "x": [1, 2]}'])
    plain = StreamSession(model, metadata={**metadata, "channels": ["hr", "spo2"]}, at=[0.5])
    (wanted,) = run(plain, ['{"t": 0, "x": [1, 2]}'])[0][0]["forecast"]
    (row,) = found[0]["forecast"]
    assert row["at"] == 0.5
    assert row["values"] == {"hr": wanted["hr"], name: wanted["spo2"]}
    assert row["spread"] == {"hr": wanted["spread"]["hr"], name: wanted["spread"]["spo2"]}


def test_events_with_numbers_of_their_own(tmp_path: Path) -> None:
    events = [json.dumps({**json.loads(line), "seq": 10 * n}) for n, line in enumerate(lines(6), start=1)]
    wanted = direct(lines(6))
    with DurableSession(session(), tmp_path, every=2) as durable:
        found, _, _ = run(durable.session, events[:3], durable=durable)
    with DurableSession(session(), tmp_path, every=2) as durable:
        # The source repeats what it is not sure of.
        more, _, tally = run(durable.session, events[1:], durable=durable)
    assert [line["seq"] for line in found + more] == [10, 20, 30, 40, 50, 60]
    assert tally.counted_before == 2
    assert more[-1]["probabilities"] == pytest.approx(wanted[-1], abs=2e-6)
    with DurableSession(session(), tmp_path) as durable:
        found, complaints, _ = run(durable.session, lines(1), durable=durable)
    assert (found, complaints) == ([], [1])


def test_a_source_that_goes_on(tmp_path: Path) -> None:
    with DurableSession(session(), tmp_path) as durable:
        run(durable.session, lines(3), durable=durable)
    with DurableSession(session(), tmp_path) as durable:
        rest, _, _ = run(durable.session, lines(6)[3:], durable=durable, live=True)
    assert [line["line"] for line in rest] == [4, 5, 6]
    assert rest[-1]["probabilities"] == pytest.approx(direct(lines(6))[-1], abs=2e-6)


def test_predictions_reach_the_disk_before_they_count_as_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    source, target = os.pipe()
    os.write(target, "\n".join(lines(3)).encode())
    os.close(target)
    with (tmp_path / "out").open("wb") as sink, DurableSession(session(), tmp_path / "state", sync=True) as durable:
        mark = durable.confirm
        monkeypatch.setattr(os, "fsync", lambda file: synced.append(file))
        monkeypatch.setattr(durable, "confirm", lambda: (durable.applied and synced.append(-1), mark()))
        Following(durable.session, sink, print, durable, sync=True).run(source)
        assert synced.index(sink.fileno()) < synced.index(-1)
    os.close(source)


def test_the_seventh_kill_is_no_different(tmp_path: Path) -> None:
    assert kill_and_compare(tmp_path, count=300, kills=7, seed=0) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_thirty_kills(tmp_path: Path, seed: int) -> None:
    assert kill_and_compare(tmp_path, count=3000, kills=30, seed=seed) >= 20


def greedy() -> StreamSession:
    """A session that takes whatever it is given: an observation that is counted twice would show."""
    return session(late="replay", duplicate="take", history=3000)


def kill_and_compare(folder: Path, *, count: int, kills: int, seed: int) -> int:
    greedy().step(0.0, [0.0, 0.0])  # What is compiled on first use is compiled before the first fork.
    events = lines(count)
    killed = kill_at_random(greedy, events, folder, kills=kills, seed=seed)
    follow(greedy, events, folder / "state", folder / "out.jsonl", every=11, pause=0.0)
    found = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert_answers(found, direct(events))
    with DurableSession(session(), folder / "state") as durable:
        table = durable.session.intake.table
        assert durable.applied == count
        assert sum(int(table.count[table.row(key)]) for key in table) == count
    return killed
