"""The engine on a Ray cluster of one node; `test_cluster_kills.py` has two and loses one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("tests.experiments.cluster_stub", reason="the extra `cluster` is not installed")

import ray

from tests.experiments import cluster_stub as stub
from tides.errors import ConfigError, TidesError
from tides.experiments import cluster
from tides.experiments.cluster import Cluster
from tides.experiments.runner import run_cells
from tides.records import read_records


def test_workers_report_their_begin_at_once_and_the_rest_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.0, 0.1, 0.6, 0.6])
    monkeypatch.setattr(cluster, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    seen: list[tuple[str, float]] = []

    class Board:
        class post:
            @staticmethod
            def remote(name: str, fraction: float) -> None:
                seen.append((name, fraction))

    progress = cluster._reporter("a", Board)
    progress(0.2)
    progress(0.4)
    assert seen == [("a", 0.0), ("a", 0.4)]


def test_the_data_folder_travels_where_it_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TIDES_DATA", raising=False)
    assert cluster._environment() == {}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDES_DATA", "data")
    assert cluster._environment() == {"TIDES_DATA": str(tmp_path / "data")}


@pytest.mark.parametrize(
    ("wishes", "reason"),
    [({"cpus": 1.5}, "cpus: found 1.5"), ({"gpus": 2.5}, "gpus: found 2.5"), ({"cpus": 0.0}, "cpus: found 0, wanted")],
)
def test_requests_that_ray_could_not_honour(wishes: dict[str, float], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Cluster(**wishes)  # type: ignore[arg-type]
    Cluster(cpus=0.5, gpus=2.0)


def test_nothing_to_do_needs_no_cluster() -> None:
    assert list(Cluster("203.0.113.1:1").run({})) == []


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:port"])
def test_an_address_without_a_cluster_is_named(address: str) -> None:
    with pytest.raises(TidesError, match=f"--address {address}: no Ray cluster could be reached"):
        list(Cluster(address).run({"job": _fine}))


@pytest.fixture(scope="module")
def session() -> Iterator[str]:
    """Two processors; the address of the cluster."""
    context = ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield context.address_info["gcs_address"]
    ray.shutdown()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where stub cells write; they are let through at once."""
    found = tmp_path / "place"
    found.mkdir()
    (found / "open").touch()
    return found


@pytest.mark.slow
def test_failures_are_told_and_not_retried(session: str, place: Path, tmp_path: Path) -> None:
    cells = [*stub.make([13], place), *stub.make(range(3), place, stack="three")]
    seen: list[float] = []
    outcome = run_cells(cells, tmp_path, engine=Cluster(), watch=lambda done, labels: seen.append(done))
    assert outcome.failed == {"seed13": "the loss became NaN"}
    assert (outcome.computed, outcome.postponed) == (3, 0)
    assert stub.count(place, "begin") == {13: 1, 0: 1, 1: 1, 2: 1}
    assert [record.results["square"] for record in read_records(tmp_path)] == [0, 1, 4]
    assert (seen[0], seen[-1]) == (0, 4)
    assert {event.scratch for event in stub.events(place)} == {"None"}


@pytest.mark.slow
def test_a_defect_is_raised_after_the_others_have_ended(session: str, place: Path, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError, match="a defect"):
        run_cells(stub.make([14, 0, 1], place), tmp_path, engine=Cluster())
    assert len(read_records(tmp_path)) == 2
    assert stub.count(place, "begin")[14] == 1


@pytest.mark.slow
def test_data_are_looked_for_where_a_cell_runs(
    session: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, lost = str(tmp_path / "here"), str(tmp_path / "lost")
    monkeypatch.setenv("TIDES_DATA", here)
    cells = [*stub.make([0], place, data=here), *stub.make([1], place, data=lost)]
    outcome = run_cells(cells, tmp_path, engine=Cluster())
    assert (outcome.computed, outcome.unavailable) == (1, {"seed1": f"no data in {lost}"})


@pytest.mark.slow
def test_with_shared_files_unfinished_cells_keep_theirs_beside_the_records(
    session: str, place: Path, tmp_path: Path
) -> None:
    (cell,) = stub.make([0], place)
    run_cells([cell], tmp_path, engine=Cluster(shares_files=True))
    assert {event.scratch for event in stub.events(place)} == {str(tmp_path / "unfinished" / cell.id)}


@pytest.mark.slow
def test_nothing_new_is_started_after_the_time_limit(
    session: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = stub.make(range(5), place)
    assert run_cells(cells, tmp_path, engine=Cluster(), time_limit=0).postponed == 5
    # The time is up once two cells are at work, and they go on once the three others have been taken back.
    (place / "open").unlink()
    cancel, taken_back = cluster._cancel, []
    seen: set[str] = set()

    def clock() -> float:
        return time.perf_counter() + (2000 if len(seen) == 2 else 0)

    def take_back(reference: Any) -> None:
        cancel(reference)
        taken_back.append(reference)
        if len(taken_back) == 3:
            (place / "open").touch()

    with monkeypatch.context() as patch:
        patch.setattr(cluster, "time", SimpleNamespace(perf_counter=clock))
        patch.setattr(cluster, "_cancel", take_back)
        watch = lambda done, labels: seen.update(labels)  # noqa: E731
        outcome = run_cells(cells, tmp_path, engine=Cluster(), time_limit=1000, watch=watch)
    assert (outcome.computed, outcome.postponed, outcome.failed) == (2, 3, {})
    assert set(stub.count(place, "end").values()) == {1}
    assert run_cells(cells, tmp_path, engine=Cluster(at_once=1)).computed == 3
    assert stub.count(place, "end") == dict.fromkeys(range(5), 1)


@pytest.mark.slow
def test_a_cell_that_kills_every_worker_is_given_up(session: str, tmp_path: Path) -> None:
    found: dict[str, Any] = dict(Cluster(retries=1).run({"bad": _die, "good": _fine}))
    assert found["good"] == "fine"
    assert "its worker was lost 2 times, at last by WorkerCrashedError" in found["bad"].message


def _die(progress: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _fine(progress: Any) -> str:
    return "fine"


@pytest.mark.slow
def test_requests_that_no_node_meets_are_refused(session: str, place: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no node has 1 CPUs and 4 GPUs for a job; found 2 CPUs, 0 GPUs"):
        run_cells(stub.make([0], place), tmp_path, engine=Cluster(gpus=4))


_DRIVER = """
import sys
from pathlib import Path
from tests.experiments import cluster_stub as stub
from tides.experiments.cluster import Cluster
from tides.experiments.runner import run_cells
place, folder, address = sys.argv[1:]
run_cells(stub.make(range(4), Path(place)), Path(folder), engine=Cluster(address))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_keeps_what_is_finished(session: str, place: Path, tmp_path: Path, kind: int) -> None:
    (place / "open").unlink()
    (place / "seed0").touch()
    words = [sys.executable, "-c", _DRIVER, str(place), str(tmp_path / "runs"), session]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as driver:
        try:
            stub.wait_for(lambda: list(tmp_path.rglob("*.json")), "a record")
            stub.wait_for(lambda: len(stub.count(place, "begin")) == 3, "two cells at work")
            driver.send_signal(kind)
            assert (kind == signal.SIGKILL) or "KeyboardInterrupt" in driver.communicate(timeout=120)[1]
        finally:
            driver.kill()
    left = [event for event in stub.events(place) if event.seed != 0]
    stub.wait_for(lambda: not any(stub.alive(event.pid) for event in left), "the workers of the interrupted run to end")
    (place / "open").touch()
    outcome = run_cells(stub.make(range(4), place), tmp_path / "runs", engine=Cluster())
    assert (outcome.cached, outcome.computed) == (1, 3)
    assert stub.count(place, "end") == dict.fromkeys(range(4), 1)
