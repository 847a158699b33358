"""Both commands of the page in two processes under torchrun: the script's line once, and one model from a table."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.cli.tables import ward
from tests.docs.blocks import ROOT, assert_same_output, blocks

pytest.importorskip("accelerate", reason="needs Accelerate: pip install 'tides-ssm[distributed]'")

PAGE = blocks(ROOT / "docs" / "guide" / "several-processes.md")


def torchrun(block: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a block of the page: lines that set variables, then the command."""
    *exports, command = (line.removeprefix("$ ") for line in block.split("\n"))
    variables = dict(line.removeprefix("export ").split("=") for line in exports)
    program = [sys.executable, "-m", "torch.distributed.run", *command.removeprefix("torchrun ").split()]
    surroundings = os.environ | {"OMP_NUM_THREADS": "1"} | variables
    # A session of their own, so that processes that hang do not outlive the test.
    started = subprocess.Popen(
        program,
        cwd=folder,
        env=surroundings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = started.communicate(timeout=400)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        raise
    return subprocess.CompletedProcess(program, started.returncode, output, errors)


def shown(text: str) -> str:
    return next(block.text.strip() for block in PAGE if block.language == "console" and text in block.text)


@pytest.mark.slow
def test_the_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(next(block.text for block in PAGE if block.language == "python"))
    done = torchrun(shown("2 train.py"), tmp_path)
    assert done.returncode == 0, done.stderr
    output = next(block for block in PAGE if block.order == "output")
    assert_same_output(done.stdout, output.text, output.note, "docs/guide/several-processes.md")
    assert (tmp_path / "runs" / "regimes" / "model" / "model.safetensors").is_file()


@pytest.mark.slow
def test_a_killed_process_is_started_again(tmp_path: Path) -> None:
    """At its eighth training step the second process kills itself, once."""
    script = next(block.text for block in PAGE if block.language == "python")
    deed = """
import os, pathlib, signal
from tides.training.processes import Processes

shared = Processes.begin_step

def begin_step(self, seed, step):
    if step == 7 and os.environ["RANK"] == "1" and not pathlib.Path("died").exists():
        pathlib.Path("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    shared(self, seed, step)

Processes.begin_step = begin_step
"""
    script = script.replace("lr=1e-2)", "lr=1e-2, checkpoint_seconds=0)")
    (tmp_path / "train.py").write_text(deed + script)
    done = torchrun(shown("--max-restarts"), tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "died").exists()
    output = next(block for block in PAGE if block.order == "output")
    assert_same_output(done.stdout, output.text, output.note, "docs/guide/several-processes.md")


@pytest.mark.slow
def test_a_table_and_a_table_that_is_wrong(tmp_path: Path) -> None:
    table = ward(tmp_path, 40)
    pd.read_csv(table).drop(columns="sex").to_csv(table, index=False)
    command = shown("tides train") + " --set epochs=2 --set hidden_size=8 --set depth=1"
    done = torchrun(command, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("TIDESClassifier") == 1
    assert len(json.loads((tmp_path / "runs" / "ward" / "record.json").read_text())["history"]) == 2
    wrong = torchrun(command.replace("--label died", "--label lived"), tmp_path)
    assert wrong.returncode != 0
    assert "tides: " in wrong.stderr
    assert "lived" in wrong.stderr
