"""Jobs that take turns in one process, and jobs in processes of their own."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.experiments.engine_jobs import Chatter, Note, enter_worker
from tides.errors import TidesError
from tides.experiments import engines
from tides.experiments.engines import Failure, Processes, Progress, Streams
from tides.experiments.population_clock import Clock
from tides.turns import Turns, finished


class Job:
    """Takes three turns, or fails in its second one."""

    def __init__(self, name: str, log: list[str], error: Exception | None = None) -> None:
        self.name, self.log, self.error = name, log, error

    def __call__(self, progress: Progress) -> str:
        return finished(self.turns(progress))

    def turns(self, progress: Progress) -> Turns[str]:
        for turn in range(3):
            self.log.append(self.name)
            if turn == 1 and self.error is not None:
                raise self.error
            yield
        return self.name


def test_jobs_take_turns_and_failures_are_their_own() -> None:
    log: list[str] = []
    jobs = {"a": Job("a", log), "b": Job("b", log, TidesError("no room")), "c": Job("c", log)}
    assert dict(Streams(2).run(jobs)) == {"a": "a", "b": Failure("no room"), "c": "c"}
    assert log == ["a", "b", "a", "b", "a", "c", "c", "c"]


def test_a_defect_is_raised_after_the_others_have_ended() -> None:
    log: list[str] = []
    results = Streams(2).run({"a": Job("a", log, ZeroDivisionError()), "b": Job("b", log)})
    assert next(results) == ("b", "b")
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_jobs_hear_how_many_are_at_work() -> None:
    heard: dict[str, list[int | None]] = {"long": [], "short": []}

    class Listener(Job):
        def turns(self, progress: Progress) -> Turns[str]:
            for _ in range(4 if self.name == "long" else 2):
                heard[self.name].append((yield))
            return self.name

    dict(Streams(2).run({name: Listener(name, []) for name in heard}))
    assert heard == {"long": [2, 2, 1, 1], "short": [2, 2]}


@pytest.fixture
def light_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes that begin without torch."""
    monkeypatch.setattr(engines, "_enter_worker", enter_worker)


def test_a_killed_worker_does_not_end_the_jobs_that_had_not_begun(light_workers: None, tmp_path: Path) -> None:
    jobs = {name: Note(tmp_path, name, kill=name == "bad") for name in ("bad", "a", "b", "c")}
    found = dict(Processes(2).run(jobs))
    assert found.keys() == jobs.keys()
    failed = {name for name, answer in found.items() if isinstance(answer, Failure)}
    # One that was at work beside it may be lost too.
    assert {"bad"} <= failed <= {"bad", "a", "b"}
    assert len(failed) <= 2
    assert "was killed" in str(found["bad"])


def test_no_process_begins_a_job_after_the_deadline(
    light_workers: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jobs = {str(n): Note(tmp_path, str(n), wait=True) for n in range(8)}
    clock, late = time.perf_counter, 1e9

    def post(name: str, fraction: float) -> None:
        if all((tmp_path / begun).exists() for begun in "01"):
            # Time has passed, and the two that are at work may end.
            monkeypatch.setattr("tides.experiments.engines.time.perf_counter", lambda: clock() + late)
            (tmp_path / "go").touch()

    ended = dict(Processes(2).run(jobs, deadline=clock() + late, post=post))
    assert ended == {"0": "0", "1": "1"}
    assert not (tmp_path / "2").exists()


def test_workers_that_report_at_every_step_end_too(light_workers: None) -> None:
    heard: list[float] = []
    found = dict(Processes(2).run({"a": Chatter(), "b": Chatter()}, post=lambda name, fraction: heard.append(fraction)))
    assert found == {"a": "done", "b": "done"}
    assert len(heard) < 1000


def test_who_closes_a_run_does_not_wait_for_what_is_at_work(light_workers: None, tmp_path: Path) -> None:
    results = Processes(2).run({"a": Note(tmp_path, "a"), "b": Note(tmp_path, "b", wait=True)})
    assert next(results) == ("a", "a")
    begin = time.monotonic()
    results.close()
    assert time.monotonic() - begin < 15


@pytest.mark.skipif(sys.platform == "win32", reason="needs kill -9")
def test_workers_of_a_run_that_was_killed_end_at_once(tmp_path: Path) -> None:
    """They have no checkpoint to write any more, and a new run needs their stacks."""
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.experiments.engine_jobs import Silent, enter_worker\n"
        "from tides.experiments import engines\n"
        "if __name__ == '__main__':\n"
        "    engines._enter_worker = enter_worker\n"
        "    place = Path(sys.argv[1])\n"
        "    list(engines.Processes(2).run({'a': Silent(place), 'b': Silent(place)}))\n"
    )
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=root, stderr=subprocess.DEVNULL) as run:
        workers = _wait_for(lambda: [int(path.name) for path in tmp_path.iterdir() if path.name.isdigit()], 2)
        run.kill()
    assert _wait_for(lambda: [pid for pid in workers if not _is_alive(pid)], 2)


def _wait_for(look: Callable[[], list[int]], count: int) -> list[int]:
    end = time.monotonic() + 30
    while len(found := look()) < count:
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # One that has ended may still wait for somebody to ask how.
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_clock_counts_a_share_of_what_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("tides.experiments.population_clock.time.perf_counter", lambda: now)

    def work() -> Turns[str]:
        nonlocal now
        for _ in range(2):
            now += 1.0
            yield
        now += 1.0
        return "done"

    clock = Clock(torch.device("cpu"))
    turns = clock.outside(work())
    next(turns)
    now += 3.0  # the others' turn
    turns.send(2)  # one second of its own and three of the others, shared by two
    now += 5.0
    with pytest.raises(StopIteration):
        turns.send(1)
    clock.lap("training")
    assert clock.laps["training"] == pytest.approx(2.0 + 1.0 + 5.0 + 1.0)
