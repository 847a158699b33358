"""Trials on a shared storage: by slot, once each, also when a worker is killed."""

import getpass
import itertools
import os
import pwd
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna")

from optuna.trial import TrialState

from tests.experiments.sweep_worker import parabola, study
from tides.errors import ConfigError, Diverged, TidesError
from tides.experiments.sweep_study import error_of, importances, open_study, settle, slot_of

ROOT = Path(__file__).resolve().parents[2]


def storage(folder: Path) -> str:
    return f"sqlite:///{folder / 'sweep.db'}"


def drawn(trials: list[Any]) -> list[dict[str, Any]]:
    return [trial.params for trial in trials]


def test_draws_depend_on_seed_and_slot_alone(tmp_path: Path) -> None:
    one = settle(study(storage(tmp_path), "one"), parabola, 3)
    again = settle(study(storage(tmp_path), "again"), parabola, 3)
    other = settle(study(storage(tmp_path), "other", seed=1), parabola, 3)
    assert drawn(one) == drawn(again)
    assert drawn(one) != drawn(other)
    assert len({trial.params["x"] for trial in one}) == 3


@pytest.mark.slow
def test_a_guided_sweep_of_one_worker_repeats(tmp_path: Path) -> None:
    runs = [settle(study(storage(tmp_path), name, sampler="tpe"), parabola, 14) for name in ("one", "again")]
    assert drawn(runs[0]) == drawn(runs[1])


def test_a_stopped_sweep_continues_and_can_grow(tmp_path: Path) -> None:
    count = 0

    def interrupted(trial: Any) -> float:
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        return parabola(trial)

    with pytest.raises(KeyboardInterrupt):
        settle(study(storage(tmp_path)), interrupted, 4)
    four = settle(study(storage(tmp_path)), interrupted, 4)
    assert count == 5
    six = settle(study(storage(tmp_path)), interrupted, 6)
    assert count == 7
    assert [slot_of(trial) for trial in six] == list(range(6))
    assert drawn(six)[:4] == drawn(four)
    assert drawn(six) == drawn(settle(study(storage(tmp_path), "whole"), parabola, 6))
    # Who asks for fewer gets all that are there, so that no record loses trials.
    assert drawn(settle(study(storage(tmp_path)), interrupted, 2)) == drawn(six)
    assert count == 7


def test_a_configuration_that_cannot_be_trained_is_settled_with_its_reason(tmp_path: Path) -> None:
    def objective(trial: Any) -> float:
        if slot_of(trial) == 1:
            raise Diverged("loss is not finite")
        return parabola(trial)

    found = settle(study(storage(tmp_path)), objective, 3)
    assert [error_of(trial) for trial in found] == [None, "loss is not finite", None]
    assert [trial.state for trial in found].count(TrialState.COMPLETE) == 2


def test_a_score_that_is_not_a_number_is_settled_and_not_dealt_again(tmp_path: Path) -> None:
    scores = iter([float("nan"), 1.0])
    found = settle(study(storage(tmp_path)), lambda trial: next(scores), 2)
    assert [error_of(trial) for trial in found] == ["the score is not a number", None]


def test_a_storage_that_fails_on_the_way_is_named_in_one_line(tmp_path: Path) -> None:
    def objective(trial: Any) -> float:
        with sqlite3.connect(tmp_path / "sweep.db") as tables:
            tables.execute("DROP TABLE trial_params")
        return parabola(trial)

    with pytest.raises(TidesError, match=r"^--storage: no such table: trial_params; repeat the command to continue$"):
        settle(study(storage(tmp_path)), objective, 1)
    with pytest.raises(ConfigError, match=r"^--storage .*: unable to open database file$"):
        study(f"sqlite:///{tmp_path}/absent/sweep.db")


def test_another_sweep_under_the_same_name_is_refused(tmp_path: Path) -> None:
    study(storage(tmp_path))
    with pytest.raises(ConfigError, match="another space"):
        open_study(
            storage(tmp_path),
            "easy",
            direction="minimise",
            identity={"objective": "other"},
            sampler="random",
            seed=0,
            prune=False,
            heartbeat=1,
        )


def test_importance_finds_the_parameter_that_matters(tmp_path: Path) -> None:
    found = settle(study(storage(tmp_path)), lambda trial: trial.suggest_float("x", 0, 1) + 0 * parabola_n(trial), 10)
    shares = importances(found, "minimise")
    assert shares is not None
    assert shares["x"] > shares["n"]
    assert importances(found[:3], "minimise") is None


def parabola_n(trial: Any) -> int:
    return int(trial.suggest_int("n", 0, 5))


def check_two_workers_one_killed(url: str, folder: Path, trials: int) -> None:
    log = folder / "trials.log"

    def start(role: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "tests.experiments.sweep_worker", url, str(trials), str(log), role]
        return subprocess.Popen(words, cwd=ROOT)

    study(url)
    victim = start("victim")
    caught = log.with_suffix(".caught")
    workers = [victim]
    try:
        _wait(caught.exists, victim)
        workers += [start("worker"), start("worker")]
        _wait(log.exists, workers[1])
        victim.send_signal(signal.SIGKILL)
        for worker in workers[1:]:
            assert worker.wait(timeout=120) == 0
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    lines = [line.split() for line in log.read_text().splitlines()]
    assert sorted(int(slot) for slot, _ in lines) == list(range(trials))
    found = settle(study(url), parabola, trials)
    assert {slot: float(value) for slot, value in lines} == {str(slot_of(t)): t.value for t in found}
    assert drawn(found) == drawn(settle(study(url, "alone"), parabola, trials))
    assert int(caught.read_text()) in range(trials)


def _wait(condition: Any, process: subprocess.Popen[bytes]) -> None:
    for _ in range(1200):
        if condition():
            return
        assert process.poll() is None
        time.sleep(0.05)
    raise AssertionError("the worker did not get that far")


@pytest.mark.slow
def test_two_workers_settle_every_trial_once_when_a_third_is_killed(tmp_path: Path) -> None:
    check_two_workers_one_killed(storage(tmp_path), tmp_path, 24)


@pytest.mark.slow
def test_workers_may_start_together_on_a_storage_that_is_not_there_yet(tmp_path: Path) -> None:
    log = tmp_path / "trials.log"
    words = [sys.executable, "-m", "tests.experiments.sweep_worker", storage(tmp_path), "12", str(log), "worker"]
    workers = [subprocess.Popen(words, cwd=ROOT) for _ in range(4)]
    assert [worker.wait(timeout=120) for worker in workers] == [0] * 4
    assert sorted(int(line.split()[0]) for line in log.read_text().splitlines()) == list(range(12))


def test_a_dead_worker_loses_its_trial_to_the_next(tmp_path: Path) -> None:
    """The same without processes: a trial that was begun and whose heartbeat is long ago."""
    from optuna.storages import RDBStorage

    dead = study(storage(tmp_path))
    with pytest.warns(UserWarning, match="Heartbeat"):
        trial = dead.ask()
    parabola(trial)
    store = dead._storage._backend
    assert isinstance(store, RDBStorage)
    store.record_heartbeat(trial._trial_id)
    with sqlite3.connect(tmp_path / "sweep.db") as connection:
        connection.execute("UPDATE trial_heartbeats SET heartbeat = datetime('now', '-1 day')")
    found = settle(study(storage(tmp_path)), parabola, 3)
    assert [slot_of(t) for t in found] == [0, 1, 2]
    assert found[0].number != 0
    assert found[0].params == trial.params
    states = [t.state for t in dead.get_trials() if t.number == 0]
    assert states == [TrialState.FAIL]


def test_a_worker_that_died_before_its_first_heartbeat_loses_its_trial_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour = itertools.count(step=3600)
    monkeypatch.setattr("tides.experiments.sweep_study.time.monotonic", lambda: next(hour))
    dead = study(storage(tmp_path))
    with pytest.warns(UserWarning, match="Heartbeat"):
        dead.ask()
    heard: list[tuple[int, list[int]]] = []
    found = settle(
        study(storage(tmp_path)), parabola, 2, watch=lambda settled, held: heard.append((settled, [*held])), poll=0.01
    )
    assert [slot_of(t) for t in found] == [0, 1]
    assert [t.state for t in dead.get_trials() if t.number == 0] == [TrialState.FAIL]
    assert drawn(found) == drawn(settle(study(storage(tmp_path), "alone"), parabola, 2))
    assert (1, [0]) in heard


@pytest.mark.parametrize("end", ["returns", "reports", "fails"])
def test_a_worker_that_was_silent_for_too_long_goes_on_with_another_trial(tmp_path: Path, end: str) -> None:
    slow, begun = study(storage(tmp_path)), list[int]()

    def objective(trial: Any) -> float:
        value = parabola(trial)
        begun.append(trial.number)
        if len(begun) == 1:
            # Another worker has taken this one for dead.
            slow.tell(trial.number, state=TrialState.FAIL)
            if end == "reports":
                trial.report(value, 1)
            if end == "fails":
                raise Diverged("loss is not finite")
        return value

    found = settle(slow, objective, 2)
    assert [slot_of(t) for t in found] == [0, 1]
    assert len(begun) == 3
    assert {t.state for t in found} == {TrialState.COMPLETE}


def test_a_worker_whose_trial_has_no_heartbeat_yet_is_given_time(tmp_path: Path) -> None:
    alive = study(storage(tmp_path))
    with pytest.warns(UserWarning, match="Heartbeat"):
        trial = alive.ask()

    class Waited(Exception):
        pass

    def stop(settled: int, awaited: Any) -> None:
        if awaited:
            raise Waited

    with pytest.raises(Waited):
        settle(study(storage(tmp_path)), parabola, 2, watch=stop)
    assert alive.get_trials()[trial.number].state is TrialState.RUNNING


@pytest.fixture
def postgresql() -> Iterator[str]:
    """A server of our own on a socket; skipped where none is installed."""
    pytest.importorskip("psycopg")
    programs = {name: shutil.which(name) for name in ("initdb", "pg_ctl")}
    if None in programs.values():
        pytest.skip("no PostgreSQL server is installed")
    # The server refuses to run as root.
    user = "postgres" if os.geteuid() == 0 else None
    if user is not None and user not in {entry.pw_name for entry in pwd.getpwall()}:
        pytest.skip("PostgreSQL does not run as root and there is no user postgres")
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    if user is not None:
        shutil.chown(folder, user)
    data, name = folder / "data", user or getpass.getuser()

    def call(*words: str) -> None:
        subprocess.run(words, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL, timeout=120)

    try:
        call(str(programs["initdb"]), "-D", str(data), "-A", "trust", "-N", "-U", name)
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        call(str(programs["pg_ctl"]), "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://{name}@/postgres?host={folder}"
        finally:
            call(str(programs["pg_ctl"]), "-D", str(data), "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_postgresql(postgresql: str, tmp_path: Path) -> None:
    check_two_workers_one_killed(postgresql, tmp_path, 24)
