"""Joint gradient deviation, the search over spreads and the ranking of models."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.physiome.models import importing, oscillator
from tides.data import physiome
from tides.data.physiome import facts
from tides.data.physiome.integrate import Spread
from tides.data.physiome.jgd import channel_scores, dataset_score, score
from tides.data.physiome.problem import load_problem
from tides.data.physiome.search import find_models, spreads
from tides.errors import ConfigError, DataError, ShapeError

pytest.importorskip("libcellml", reason="libCellML is not installed")
pytest.importorskip("numba", reason="numba is not installed")


def random_walks(seed: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(6, 12, channels)).cumsum(axis=1)


def test_equals_the_definition_written_out() -> None:
    values = random_walks(0)
    for channel, found in enumerate(channel_scores(values)):
        x = values[..., channel]
        z = (x - x.mean()) / x.std()
        steps = z[:, 1:] - z[:, :-1]
        within = np.mean([np.std(row) for row in steps])
        across = np.mean([np.std(column) for column in steps.T])
        assert found == pytest.approx(within * across, rel=1e-12)


@given(seed=st.integers(0, 99), scale=st.floats(1e-6, 1e6), shift=st.floats(-10, 10))
def test_does_not_depend_on_units_or_order(seed: int, scale: float, shift: float) -> None:
    values = random_walks(seed)
    expected = channel_scores(values)
    np.testing.assert_allclose(channel_scores(-scale * (values + shift)), expected, rtol=1e-6)
    np.testing.assert_allclose(channel_scores(values[::-1]), expected, rtol=1e-9)


def test_constant_channels_score_zero_and_straight_lines_almost() -> None:
    values = random_walks(1)
    values[..., 0] = 0.1
    values[..., 1] = np.arange(12) * 0.25
    scores = channel_scores(values)
    assert scores[0] == 0.0
    assert scores[1] < 1e-12 < scores[2]


def test_dataset_score_is_the_mean_of_the_ten_best() -> None:
    assert dataset_score(np.arange(12.0)) == pytest.approx(np.arange(2.0, 12.0).mean())
    assert dataset_score(np.array([1.0, 3.0])) == 2.0


def test_shapes_are_checked() -> None:
    with pytest.raises(ShapeError, match=r"\(5, 3\)"):
        channel_scores(np.zeros((5, 3)))


def test_the_grid_of_the_paper() -> None:
    grid = spreads()
    assert len(set(grid)) == 5 * 3 * 3
    assert all(Spread(s.duration, s.d_states, s.d_constants) in grid for s in map(facts.system, facts.names()))


@pytest.mark.parametrize("short", ["HOD01", "LEN01"])
def test_published_score(shared: Path, short: str) -> None:
    system = facts.system(short)
    problem = load_problem(shared / "data" / "cellml", short)
    found = score(problem, Spread(system.duration, system.d_states, system.d_constants))
    assert found.jgd == pytest.approx(system.jgd, rel=1e-5)
    np.testing.assert_allclose(found.channels, [c.jgd for c in facts.channels(short)], rtol=1e-5)


def test_search_finds_the_published_spread_and_passes_over_outliers(shared: Path) -> None:
    wide = Spread(30.0, 0.5, 0.3)
    published = Spread(3.3, 0.1, 0.1)
    folder = shared / "data" / "cellml"
    problem = load_problem(folder, "KAR02")
    assert score(problem, wide).jgd > score(problem, published).jgd
    best = physiome.best_spread(folder, "KAR02", grid=[Spread(0.33, 0.1, 0.1), published, wide])
    assert best.spread == published


def test_ranks_a_folder_and_names_what_it_cannot_use(tmp_path: Path) -> None:
    (tmp_path / "slow.cellml").write_text(oscillator(k="0.01"))
    (tmp_path / "fast.cellml").write_text(oscillator(k="8.0"))
    (tmp_path / "broken.cellml").write_text("<model")
    (tmp_path / "with imports").mkdir()
    (tmp_path / "with imports" / "parent.cellml").write_text(importing("child.cellml"))
    (tmp_path / "with imports" / "child.cellml").write_text(oscillator())
    paths = find_models(tmp_path)
    assert [path.name for path in paths] == ["broken.cellml", "fast.cellml", "slow.cellml", "parent.cellml"]
    counts: list[int] = []
    grid = [Spread(1.0, 0.1, 0.05), Spread(3.3, 0.5, 0.3)]
    found = physiome.rank(paths, grid=grid, n=5, progress=counts.append)
    assert [row.name for row in found] == ["fast", "parent", "slow", "broken"]
    assert found[0].best is not None
    assert found[0].best.spread in grid
    assert "not well-formed" in found[3].reason
    assert sum(counts) == len(paths) * len(grid)


def test_a_score_needs_two_trajectories(tmp_path: Path) -> None:
    path = tmp_path / "spring.cellml"
    path.write_text(oscillator())
    for n in (0, 1, 2.5):
        for search in (lambda n: physiome.best_spread(path, n=n), lambda n: physiome.rank([str(path)], n=n)):
            with pytest.raises(ConfigError, match=f"n={n}; wanted a whole number of at least 2"):
                search(n)


def test_folders_without_models(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no \.cellml file"):
        find_models(tmp_path)
    with pytest.raises(DataError, match="not a folder"):
        find_models(tmp_path / "absent")
