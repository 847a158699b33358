"""torch.compile(fullgraph=True): same outputs, gradients and statistics, zero graph breaks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("compiled_models.py")
SOURCE = Path(__file__).resolve().parents[2] / "src"


def run(compiler: str, *kinds: str, cache: Path | None = None) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    if cache is not None:
        environment["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), compiler, *kinds], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("same result, one graph") == len(kinds)


def test_one_graph_forward_and_backward() -> None:
    """Traced and differentiated as one graph, run without code generation (which takes minutes)."""
    run("aot_eager", "classifier")


@pytest.mark.slow
def test_every_model_is_one_graph() -> None:
    run("aot_eager", "backbone", "steps", "readout")


@pytest.mark.slow
def test_inductor(tmp_path: Path) -> None:
    """With a cache of its own: torch's may hold a graph that calls operators of an older version."""
    run("inductor", "backbone", cache=tmp_path)
