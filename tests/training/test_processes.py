"""One model in several processes: the same curve as in one, from any checkpoint, and no process left waiting."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("accelerate", reason="needs Accelerate: pip install 'tides-ssm[distributed]'")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork")


class Outcome:
    """What the processes of some jobs ended with."""

    def __init__(self, root: Path, *jobs: dict[str, Any]) -> None:
        self.root = root
        command = [sys.executable, "-m", "tests.training.together", str(root), json.dumps(jobs)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        self.codes: dict[str, list[int]] = json.loads(done.stdout.splitlines()[-1])

    def of(self, job: str, rank: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / job / f"{rank}.json").read_text())
        return found

    def assert_same(self, job: str, reference: str) -> None:
        """Every process's history and weights are the reference's to rounding, and bit for bit each other's."""
        wanted = self.of(reference)
        for rank in range(len(self.codes[job])):
            found = self.of(job, rank)
            assert found["weights"] == self.of(job)["weights"]
            assert found["weights"] == pytest.approx(wanted["weights"], rel=1e-9, abs=1e-12)
            assert (found["stopped"], found["best_epoch"]) == (wanted["stopped"], wanted["best_epoch"])
            for ours, theirs in zip(found["history"], wanted["history"], strict=True):
                assert ours == pytest.approx(theirs, rel=1e-9)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    halfway = {"deed": "stop", "step": 6}
    return Outcome(
        tmp_path_factory.mktemp("pairs"),
        {"name": "one", "size": 1},
        {"name": "two", "size": 2, "apart": True},
        {"name": "half of two", "size": 2, "folder": "two to one", **halfway},
        {"name": "then one", "size": 1, "folder": "two to one"},
        {"name": "half of one", "size": 1, "folder": "one to two", **halfway},
        {"name": "then two", "size": 2, "folder": "one to two"},
        {"name": "nan", "size": 2, "folder": "nan", "deed": "nan", "step": 5, "rank": 1},
        {"name": "fail", "size": 2, "deed": "fail", "step": 5, "rank": 1},
    )


def test_two_processes_train_as_one_does(pairs: Outcome) -> None:
    """Although the second one was given other weights to begin with; both stop early and go back to the best epoch."""
    pairs.assert_same("two", "one")
    assert (pairs.of("one")["stopped"], pairs.of("one")["best_epoch"]) == ("patience", 2)


def test_a_checkpoint_continues_in_any_number_of_processes(pairs: Outcome) -> None:
    pairs.assert_same("then one", "one")
    pairs.assert_same("then two", "one")
    for folder in ("two to one", "one to two"):
        lines = (pairs.root / folder / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["epoch"] for line in lines] == [1, 2, 3]


def test_divergence_ends_all_of_them(pairs: Outcome) -> None:
    for rank in range(2):
        kind, message = pairs.of("nan", rank)["error"]
        assert kind == "Diverged"
        assert "epoch 2 at step 6" in message
    assert json.loads((pairs.root / "nan" / "checkpoint.json").read_text())["state"]["step"] == 5


def test_who_loses_another_says_so(pairs: Outcome) -> None:
    assert pairs.codes["fail"] == [0, 1]
    kind, message = pairs.of("fail")["error"]
    assert kind == "TidesError"
    assert message.startswith("process 0 of 2 lost another one")


@pytest.mark.slow
def test_three_forecasts_silence_dropout_and_disagreement(tmp_path: Path) -> None:
    found = Outcome(
        tmp_path,
        {"name": "one", "size": 1},
        {"name": "three", "size": 3},
        {"name": "forecast", "size": 1, "forecast": True},
        {"name": "forecast in two", "size": 2, "forecast": True},
        {"name": "weighed", "size": 1, "weighed": True},
        {"name": "weighed in two", "size": 2, "weighed": True},
        {"name": "sleep", "size": 2, "deed": "sleep", "step": 5, "rank": 1, "patience": 5.0},
        {"name": "differ", "size": 2, "disagree": True},
        {"name": "dropout", "size": 2, "dropout": 0.2, "folder": "whole"},
        {"name": "half", "size": 2, "dropout": 0.2, "folder": "half", "deed": "stop", "step": 6},
        {"name": "continued", "size": 2, "dropout": 0.2, "folder": "half"},
    )
    found.assert_same("three", "one")
    found.assert_same("forecast in two", "forecast")
    found.assert_same("weighed in two", "weighed")
    assert found.of("weighed")["history"][0] != found.of("one")["history"][0]
    assert "not answered for 5 s" in found.of("sleep")["error"][1]
    for rank in range(2):
        assert found.of("differ", rank)["error"] == [
            "ConfigError",
            "lr: process 0 has 0.003, process 1 has 0.006; wanted one run",
        ]
    # Masks are drawn by seed, step and process: the same number of processes gives the same bits.
    assert found.of("continued") == found.of("dropout")
    assert found.of("dropout")["weights"] != found.of("one")["weights"]


@pytest.mark.slow
def test_the_connection_is_closed_before_python_ends() -> None:
    """Its threads would abort a process that is done. What was registered first runs last."""
    script = """
import atexit, torch
atexit.register(lambda: print("open" if torch.distributed.is_initialized() else "closed"))
from tides.training.processes import Processes
Processes(torch.device("cpu"))
assert torch.distributed.is_initialized()
"""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env=os.environ | place | {"RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    assert [one.communicate(timeout=120)[0].strip() for one in started] == ["closed", "closed"]
