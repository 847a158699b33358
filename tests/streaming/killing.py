"""Processes that follow events and are killed at random: nothing may be lost, nothing counted twice."""

import contextlib
import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any, NoReturn

from tides.streaming import DurableSession, StreamSession
from tides.streaming.following import Following
from tides.streaming.lines import repair_tail


def follow(make: Any, events: list[str], state: Path, out: Path, *, every: int, pause: float) -> None:
    """What `tides stream model --state … --out …` does, from a source that sends all lines from the first one on."""
    source, target = os.pipe()
    if os.fork() == 0:
        os.close(source)
        with contextlib.suppress(BrokenPipeError):
            for line in events:
                os.write(target, line.encode() + b"\n")
                time.sleep(pause)
        os._exit(0)
    os.close(target)
    session: StreamSession = make()
    last = repair_tail(out)
    answered = 0 if last is None else int(json.loads(last)["line"])
    with out.open("ab") as sink, DurableSession(session, state, every=every) as durable:
        Following(session, sink, _complain, durable, answered=answered, batch=3).run(source)
    os.close(source)


def kill_at_random(make: Any, events: list[str], folder: Path, *, kills: int, seed: int) -> int:
    """Start and kill processes, so many or until one has read the source to its end; how many were killed."""
    chance = random.Random(seed)
    killed = 0
    while killed < kills:
        child = os.fork()
        if child == 0:
            _run_and_end(make, events, folder, pause=0.0005)
        if chance.random() < 0.7:
            # In the middle of its work, however slow the machine is; the others die while they begin.
            _wait_for_progress(child, folder / "out.jsonl")
        time.sleep(chance.random() * 0.06)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            assert status == 0, f"the process failed by itself: {status}"
            break
        killed += 1
    return killed


def _wait_for_progress(child: int, out: Path, seconds: float = 20.0) -> None:
    before, until = _size(out), time.monotonic() + seconds
    while _size(out) == before and time.monotonic() < until:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(0.001)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _run_and_end(make: Any, events: list[str], folder: Path, *, pause: float) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        follow(make, events, folder / "state", folder / "out.jsonl", every=11, pause=pause)
    except BaseException as error:
        os.write(2, repr(error).encode())
        os._exit(1)
    os._exit(0)


def _complain(line: int, problem: str) -> None:
    raise AssertionError(f"line {line}: {problem}")
