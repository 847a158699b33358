"""The fused block on a GPU, against the composed float64 block."""

from typing import Any

import pytest

from tests.kernels.block_contract import (
    CASES,
    check_block,
    check_dropout,
    check_parts,
    check_replays,
    check_stack,
    check_stacked,
    check_wide_block,
)
from tests.kernels.halves_contract import check_outer_sums

pytestmark = [pytest.mark.gpu]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("sizes", [(5, 2, 3), (32, 16, 8), (15, 12, 5)])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_block_equals_its_parts(case: dict[str, Any], sizes: tuple[int, int, int], padded: bool) -> None:
    if (case.get("rank") == "full" and sizes[0] > 16) or case.get("expand", 1.0) * sizes[0] > 32:
        pytest.skip("a code or a tail of this width is beyond the fused block")
    check_block(case, sizes, 700, padded, "cuda")


def test_a_block_of_many_planes_and_high_rank_equals_its_parts() -> None:
    check_block({"bidirectional": True, "compat": "release"}, (16, 16, 16), 700, True, "cuda")


def test_a_long_block_in_several_ranges_equals_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its states are made again, as those of still longer ones.
    monkeypatch.setattr("tides.kernels.triton.block_config._KEPT", 0)
    monkeypatch.setattr("tides.kernels.triton.block_gradients._RANGE", (1 << 16, 1 << 13))
    check_block({}, (8, 4, 2), 20_001, False, "cuda")


def test_sums_over_steps_of_any_size_are_accurate() -> None:
    check_outer_sums("cuda")


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("case", CASES[:3], ids=str)
def test_a_batch_in_several_parts_equals_its_parts(case: dict[str, Any], keeps: bool) -> None:
    check_parts("cuda", 501, (16, 16, 16), case, keeps=keeps)


@pytest.mark.parametrize("kept", [0, 1 << 20])
@pytest.mark.parametrize(("padded", "depth"), [(False, 2), (True, 3), (False, 1)])
def test_blocks_of_a_model_are_one_operator(
    padded: bool, depth: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tides.kernels.triton.block_config._KEPT", kept)
    check_stack("cuda", 300, (7, 3, 2), padded=padded, depth=depth)


def test_stacked_models_are_each_by_itself() -> None:
    check_stacked("cuda", 300)


def test_dropout_has_the_gradient_of_its_function() -> None:
    check_dropout("cuda", 300)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("sizes", [(33, 17, 3), (128, 128, 16), (72, 150, 5)])
@pytest.mark.parametrize("case", [case for case in CASES if case.get("rank") != "full"], ids=str)
def test_a_wide_block_equals_its_parts(case: dict[str, Any], sizes: tuple[int, int, int], padded: bool) -> None:
    if case.get("conjugate") and sizes[1] % 2:
        pytest.skip("an odd number of modes has no halves")
    check_wide_block(case, sizes, 100, padded, "cuda", training=not padded)


def test_a_wide_block_in_several_parts_equals_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tides.kernels.triton.wide_mix._PART", 1 << 17)
    check_wide_block({}, (65, 40, 7), 1001, True, "cuda")


def test_a_wide_block_drops_units_with_the_gradient_of_its_function() -> None:
    check_dropout("cuda", 300, (40, 24, 3))


@pytest.mark.parametrize(("padded", "depth"), [(False, 2), (True, 3)])
def test_wide_blocks_of_a_model_are_one_operator(padded: bool, depth: int) -> None:
    check_stack("cuda", 100, (40, 24, 3), padded=padded, depth=depth, function="WideFunction")


@pytest.mark.parametrize("sizes", [(32, 16, 8), (64, 64, 5)], ids=["fused", "wide"])
def test_replayed_launches_do_what_single_ones_did(sizes: tuple[int, int, int]) -> None:
    check_replays(sizes)
