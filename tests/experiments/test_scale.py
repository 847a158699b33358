"""Throughput against workers: equal cells, a run of them, and the command."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tides.cli.bench import app
from tides.errors import ConfigError, TidesError
from tides.experiments import scale
from tides.experiments.scale import Setup, Workload

TINY = Workload(cells_per_worker=2, epochs=1, instances=10, hidden_size=4, state_size=4, depth=1, rank=2)


def test_cells_differ_in_their_name_alone() -> None:
    cells = TINY.cells(3)
    assert len({cell.id for cell in cells}) == len({cell.label for cell in cells}) == 3
    assert all(cell.stack is None for cell in cells)
    same = [{name: value for name, value in cell.config.items() if name != "variant"} for cell in cells]
    assert same[0] == same[1] == same[2]
    assert same[0]["train"]["epochs"] == same[0]["train"]["patience"] == 1
    assert same[0]["architecture"]["hidden_size"] == 4


def test_setups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "available_cpus", lambda: 6)
    assert scale.default_workers() == [1, 2, 4, 6]
    found = scale.setups(["local"], [8, 2])
    assert found == [Setup("local", 1, 1), Setup("local", 2, 2), Setup("local", 8, 6), Setup("local", 1, 6)]
    assert scale.setups(["local"], [8, 2], threads=False) == found[:3]
    monkeypatch.setattr(scale, "available_cpus", lambda: 1)
    assert scale.default_workers() == [1]
    assert scale.setups(["local"], [1]) == [Setup("local", 1, 1)]


@pytest.mark.parametrize(("engines", "workers", "message"), [(["slurm"], [1], "slurm"), (["local"], [0], "workers")])
def test_mistakes(engines: list[str], workers: list[int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        scale.setups(engines, workers)


def test_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    # A test process keeps its processors and threads.
    monkeypatch.setattr(scale, "_restrict", lambda processors: None)
    monkeypatch.setattr("torch.set_num_threads", lambda threads: None)
    run = scale.measure(Setup("local", 1, 1), TINY)
    assert (run["engine"], run["workers"], run["processors"], run["cells"]) == ("local", 1, 1, 2)
    assert len(run["cell_seconds"]) == len(run["cell_processor_seconds"]) == 2
    assert all(seconds > 0 for seconds in run["cell_seconds"] + run["cell_processor_seconds"])
    assert run["processor_seconds"] > sum(run["cell_processor_seconds"])
    # Seven of ten series are for training, in each of two cells once.
    assert run["observations"] == 2 * scale._training_observations(TINY)
    assert 7 <= scale._training_observations(TINY) <= 7 * 100


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not bind processes to processors")
def test_a_run_is_kept_to_its_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[list[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, found: bound.append(list(found)))
    # Processors 0 and 1 are the two threads of one core, 2 and 3 of another.
    monkeypatch.setattr(scale, "_core_rank", lambda processor: (processor % 2, processor))
    scale._restrict(2)
    assert bound == [[0, 2]]
    monkeypatch.undo()
    assert sorted(os.sched_getaffinity(0), key=scale._core_rank)


def test_ray_is_measured_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "available_cpus", lambda: 2)
    monkeypatch.setattr(scale, "find_spec", lambda name: object())
    assert scale.default_engines() == ["local", "ray"]
    assert Setup("ray", 2, 2) in scale.setups(["ray"], [2])
    monkeypatch.setattr(scale, "find_spec", lambda name: None)
    assert scale.default_engines() == ["local"]
    with pytest.raises(TidesError, match="cluster"):
        scale.setups(["ray"], [1])


@pytest.mark.slow
def test_ray() -> None:
    pytest.importorskip("ray", reason="the extra cluster is not installed")
    found = scale.measure_all([Setup("ray", 1, 1), Setup("ray", 2, 2)], workload=TINY, repeats=1)
    assert [row["workers"] for row in found["rows"]] == [1, 2]
    assert [len(run["cell_seconds"]) for run in found["runs"]] == [2, 4]
    assert found["environment"]["ray"]
    assert all(run["other_processors"] is None for run in found["runs"])


@pytest.mark.slow
def test_command(tmp_path: Path) -> None:
    """A process for every setup, two workers beside each other, a table and a file."""
    file = tmp_path / "scale.json"
    line = [
        "scale",
        "--workers",
        "1,2",
        "--cells",
        "1",
        "--epochs",
        "1",
        "--repeats",
        "1",
        "--no-threads",
        "--engines",
        "local",
    ]
    line += ["--json", str(file)]
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 0, done.output
    assert "observations/s" in done.stdout
    found = json.loads(file.read_text())
    assert [row["workers"] for row in found["rows"]] == [1, 2]
    assert [run["cells"] for run in found["runs"]] == [run["workers"] for run in found["runs"]]
    assert found["workload"]["epochs"] == 1
    assert {"cpu", "processors"} <= set(found["machine"])
    assert found["environment"]["torch"]


def test_the_command_names_what_it_cannot_read() -> None:
    done = CliRunner().invoke(app, ["scale", "--workers", "two"])
    assert isinstance(done.exception, ConfigError)
    assert "--workers" in str(done.exception)
