"""Workers and nodes of a Ray cluster die, and every cell ends once."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tests.experiments.cluster_stub", reason="the extra `cluster` is not installed")

import ray
from ray.cluster_utils import Cluster as RayNodes

from tests.experiments import cluster_stub as stub
from tides.experiments.cluster import Cluster
from tides.experiments.runner import run_cells
from tides.records import read_records

pytestmark = pytest.mark.slow


@pytest.fixture
def nodes() -> Iterator[Any]:
    """Two nodes on this machine: the head with one processor, and one with two."""
    # A lost node is noticed within seconds instead of half a minute.
    quick = {"health_check_initial_delay_ms": 2000, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
    found = RayNodes(initialize_head=True, head_node_args={"num_cpus": 1, "_system_config": quick})
    # Before there is a second node, so that the run belongs to the head.
    ray.init(found.address, log_to_driver=False, logging_level="error")
    found.second = found.add_node(num_cpus=2)
    yield found
    ray.shutdown()
    found.shutdown()


def test_a_worker_and_then_a_node_are_killed(nodes: Any, tmp_path: Path) -> None:
    place, folder = tmp_path / "place", tmp_path / "runs"
    place.mkdir()
    cells = [*stub.make(range(6), place), *stub.make(range(6, 8), place, stack="pair")]
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(run_cells, cells, folder, engine=Cluster())
        try:
            victim = _kill_a_worker(place)
            early, orphans = _lose_the_second_node(nodes, place, folder)
        finally:
            (place / "open").touch()
        outcome = run.result(timeout=240)

    assert (outcome.computed, outcome.cached, outcome.failed, outcome.postponed) == (8, 0, {}, 0)
    assert stub.count(place, "end") == dict.fromkeys(range(8), 1)
    begins = stub.count(place, "begin")
    for seed in range(8):
        losses = (seed == victim.seed) + (seed in orphans)
        assert begins[seed] == 1 + losses, f"seed {seed}"
    assert early
    assert sorted(record.results["square"] for record in read_records(folder)) == [seed**2 for seed in range(8)]
    assert run_cells(cells, folder, engine=Cluster()).cached == 8


def _kill_a_worker(place: Path) -> stub.Event:
    stub.wait_for(lambda: len(_at_work(place)) == 3, "three cells at work")
    victim = next(iter(_at_work(place).values()))
    os.kill(victim.pid, signal.SIGKILL)
    stub.wait_for(lambda: not stub.alive(victim.pid), "the worker to be gone")
    stub.wait_for(lambda: len(_at_work(place)) == 3, "another cell in its place")
    return victim


def _lose_the_second_node(nodes: Any, place: Path, folder: Path) -> tuple[set[int], set[int]]:
    """The cells that ended there before, and those that were lost with it."""
    second = nodes.second.node_id

    def there() -> dict[int, stub.Event]:
        return {seed: event for seed, event in _at_work(place).items() if event.node == second}

    early = set(there())
    for seed in early:
        (place / f"seed{seed}").touch()
    stub.wait_for(lambda: len(list(folder.rglob("*.json"))) == len(early), "their records")
    stub.wait_for(lambda: len(there()) == len(early), "other cells in their place")
    orphans = there()
    nodes.remove_node(nodes.second, allow_graceful=False)
    stub.wait_for(lambda: not any(stub.alive(event.pid) for event in orphans.values()), "its workers to be gone")
    return early, set(orphans)


def _at_work(place: Path) -> dict[int, stub.Event]:
    """By seed, what has begun, has not ended, and lives."""
    ended = stub.count(place, "end")
    return {event.seed: event for event in stub.events(place) if not ended[event.seed] and stub.alive(event.pid)}
