"""Triton's kernels without a GPU: its interpreter runs them on small problems, in a process of their own."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_interpreted_kernels_equal_the_reference() -> None:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed (extra `gpu`)")
    result = subprocess.run(
        [sys.executable, "-m", "tests.kernels.interpreted_triton"],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "7 layers and the tail" in result.stdout
