"""Launch shapes of a block's passes."""

import pytest

pytest.importorskip("triton", reason="the triton backend needs triton")

from tides.kernels.triton import block_tiles
from tides.kernels.triton.block_tiles import TILES, Tile, share, tile_of


@pytest.mark.parametrize(
    ("rank", "width", "wanted"), [(8, 32, 2), (8, 16, 4), (3, 16, 4), (2, 16, 2), (1, 16, 2), (16, 128, 1)]
)
def test_products_hold_as_many_matrices_as_fit_and_as_there_are(rank: int, width: int, wanted: int) -> None:
    assert Tile(64, 4, 1, 64).matrices(rank, width) == wanted


def test_states_of_many_planes_have_their_own_tiles() -> None:
    assert tile_of("leave", 64) == TILES["leave_wide"]
    assert tile_of("leave", 32) == TILES["leave"]
    assert tile_of("enter", 64) == TILES["enter"]


@pytest.mark.parametrize("name", [name for name in TILES if TILES[name].warps >= 4])
def test_no_rows_are_multiplied_twice(name: str) -> None:
    # Four warps share the 64 rows of a product; more would repeat each other's.
    assert TILES[name].warps == 4 * max(1, TILES[name].rows // 64)


@pytest.mark.parametrize(
    ("count", "size", "wanted"),
    [(9, 1024, 3), (17, 1024, 3), (9, 2048, 1), (3, 256, 3), (5, 512, 5), (18, 256, 9), (1, 8192, 1)],
)
def test_the_sums_of_a_program_fit_its_registers(count: int, size: int, wanted: int) -> None:
    assert share(count, size, 3072) == wanted


def test_registers_are_bounded_where_a_tile_says_so() -> None:
    assert Tile(64, 4, 1, 64, registers=128).flags == {"BM": 64, "num_warps": 4, "maxnreg": 128}
    assert "maxnreg" not in Tile(64, 4, 1, 64).flags


def test_matrices_stay_where_two_programs_have_room_and_every_device_has(monkeypatch: pytest.MonkeyPatch) -> None:
    tile = Tile(64, 4, 1, 64, registers=128)
    assert tile.fitting(70 << 10) == 3
    assert tile.keeps(100 << 10)
    assert not tile.keeps(120 << 10)
    assert not tile._replace(resident=False).keeps(1 << 10)
    monkeypatch.setattr(block_tiles, "least_shared", lambda: 99 << 10)
    assert tile.keeps(98 << 10)
    assert not tile.keeps(99 << 10)


def test_without_a_gpu_plans_are_those_for_an_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    block_tiles.least_shared.cache_clear()
    assert block_tiles.least_shared() == 227 << 10
    block_tiles.least_shared.cache_clear()
