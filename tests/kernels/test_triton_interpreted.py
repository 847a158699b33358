"""Triton's kernels without a GPU: its interpreter runs them on small problems, in a process of their own."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _interpret(what: str) -> str:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed (extra `gpu`)")
    result = subprocess.run(
        [sys.executable, "-m", "tests.kernels.interpreted_triton", what],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def test_interpreted_kernels_equal_the_reference() -> None:
    assert "7 layers, the tail and rows" in _interpret("layers")


def test_an_interpreted_block_equals_its_parts() -> None:
    assert "1 blocks, stacked models and dropout" in _interpret("blocks")


def test_an_interpreted_batch_equals_its_parts() -> None:
    assert "parts of 1 batches" in _interpret("parts")


@pytest.mark.slow
def test_interpreted_batches_of_every_direction_equal_their_parts() -> None:
    assert "parts of 3 batches" in _interpret("all-parts")


def test_an_interpreted_wide_block_equals_its_parts() -> None:
    assert "1 wide blocks and a stack" in _interpret("wide-blocks")


@pytest.mark.slow
def test_interpreted_wide_blocks_of_every_kind_equal_their_parts() -> None:
    assert "8 wide blocks and a stack" in _interpret("all-wide-blocks")


def test_interpreted_passes_of_bilinear_forms_equal_torch() -> None:
    assert "6 shapes of every pass" in _interpret("passes")


def test_interpreted_products_of_halves_are_accurate_for_numbers_of_any_size() -> None:
    assert "products of halves, and blocks of 1 scales" in _interpret("halves")


@pytest.mark.slow
def test_interpreted_blocks_are_accurate_for_numbers_of_any_size() -> None:
    assert "products of halves, and blocks of 5 scales" in _interpret("all-halves")


def test_kernels_touch_their_own_buffers_alone() -> None:
    assert "addresses of 1 blocks, 1 wide blocks and 0 scans" in _interpret("addresses")


@pytest.mark.slow
def test_kernels_of_every_kind_touch_their_own_buffers_alone() -> None:
    assert "addresses of 6 blocks, 3 wide blocks and 28 scans" in _interpret("all-addresses")


@pytest.mark.slow
def test_interpreted_blocks_of_every_kind_equal_their_parts() -> None:
    assert "9 blocks, stacked models and dropout" in _interpret("all-blocks")
