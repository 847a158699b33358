"""Campaigns: resumed where they stopped, complete files or none, one bad model among good ones."""

from pathlib import Path

import numpy as np
import pytest

from tests.data.physiome.models import oscillator
from tides.data import physiome
from tides.data.physiome import campaign
from tides.data.physiome.campaign import Model, published_models, run_campaign
from tides.data.physiome.comparison import compare
from tides.data.physiome.integrate import Spread
from tides.data.physiome.trajectories import read_trajectories
from tides.errors import ConfigError, DataError

pytest.importorskip("libcellml", reason="libCellML is not installed")
pytest.importorskip("numba", reason="numba is not installed")

SPREAD = Spread(duration=5.0, d_states=0.2, d_constants=0.1)


@pytest.fixture
def spring(tmp_path: Path) -> Model:
    path = tmp_path / "spring.cellml"
    path.write_text(oscillator())
    return Model("spring", path, None, SPREAD)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "CHUNK", 4)


def test_writes_what_simulate_returns(tmp_path: Path, spring: Model) -> None:
    (outcome,) = run_campaign([spring], tmp_path / "out", n=10)
    assert outcome.done
    assert not outcome.reused
    stored = read_trajectories(tmp_path / "out" / "spring.npz")
    values, times = physiome.simulate(spring.path, n=10, duration=5.0, d_states=0.2, d_constants=0.1)
    np.testing.assert_allclose(stored.raw(), values, atol=1e-3 * stored.std.max())
    assert stored.t_step == pytest.approx(times[1])
    assert not any((tmp_path / "out" / ".parts").iterdir())


def test_goes_on_after_a_stop(tmp_path: Path, spring: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    told: list[int] = []

    def stop_after_two_parts(name: str, k: int) -> None:
        told.append(k)
        if len(told) == 3:  # the first call tells of earlier runs
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_campaign([spring], out, n=10, progress=stop_after_two_parts)
    assert told == [0, 4, 4]
    assert not (out / "spring.npz").exists()

    firsts: list[int] = []
    real = campaign.run_job
    monkeypatch.setattr(campaign, "run_job", lambda job: firsts.append(job.first) or real(job))
    told.clear()
    run_campaign([spring], out, n=10, progress=lambda name, k: told.append(k))
    assert firsts == [8]
    assert told == [8, 2]

    run_campaign([spring], tmp_path / "at once", n=10)
    resumed, at_once = (read_trajectories(folder / "spring.npz") for folder in (out, tmp_path / "at once"))
    np.testing.assert_array_equal(resumed.values, at_once.values)


def test_complete_systems_are_kept_and_others_not_replaced_by_accident(tmp_path: Path, spring: Model) -> None:
    out = tmp_path / "out"
    run_campaign([spring], out, n=6)
    before = (out / "spring.npz").stat().st_mtime_ns
    told: list[int] = []
    (kept,) = run_campaign([spring], out, n=6, progress=lambda name, k: told.append(k))
    assert kept.reused
    assert told == [6]
    (refused,) = run_campaign([spring], out, n=8)
    assert "made from another" in refused.error
    assert (out / "spring.npz").stat().st_mtime_ns == before
    (replaced,) = run_campaign([spring], out, n=8, overwrite=True)
    assert replaced.done
    assert len(read_trajectories(out / "spring.npz").values) == 8


def test_old_trajectories_stay_until_others_take_their_place(tmp_path: Path, spring: Model) -> None:
    out = tmp_path / "out"
    run_campaign([spring], out, n=6)
    before = (out / "spring.npz").read_bytes()
    good = spring.path.read_text()
    spring.path.write_text("<model")
    (broken,) = run_campaign([spring], out, n=8, overwrite=True)
    assert "not well-formed" in broken.error
    spring.path.write_text(good)
    told: list[int] = []

    def stop(name: str, k: int) -> None:
        told.append(k)
        if len(told) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_campaign([spring], out, n=8, overwrite=True, progress=stop)
    assert (out / "spring.npz").read_bytes() == before
    told.clear()
    # The same command goes on from there.
    (replaced,) = run_campaign([spring], out, n=8, overwrite=True, progress=lambda name, k: told.append(k))
    assert replaced.done
    assert told == [4, 4]
    assert len(read_trajectories(out / "spring.npz").values) == 8
    (again,) = run_campaign([spring], out, n=8, overwrite=True)
    assert not again.reused


def test_parts_of_another_model_text_are_not_reused(tmp_path: Path, spring: Model) -> None:
    def stop(name: str, k: int) -> None:
        if k:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_campaign([spring], tmp_path / "out", n=8, progress=stop)
    spring.path.write_text(oscillator(k="3.0"))
    told: list[int] = []
    run_campaign([spring], tmp_path / "out", n=8, progress=lambda name, k: told.append(k))
    assert told == [0, 4, 4]


def test_one_bad_model_does_not_stop_the_others(tmp_path: Path, spring: Model) -> None:
    (tmp_path / "bad.cellml").write_text("<model")
    bad = Model("bad", tmp_path / "bad.cellml", None, SPREAD)
    first, second = run_campaign([bad, spring], tmp_path / "out", n=4)
    assert "not well-formed" in first.error
    assert not first.done
    assert second.done


def test_no_trajectories_are_no_campaign(tmp_path: Path, spring: Model) -> None:
    with pytest.raises(ConfigError, match="n=0; wanted a whole number of at least 1"):
        run_campaign([spring], tmp_path / "out", n=0)


def test_published_models_of_a_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no model of PUL01; looked for PUL01\.cellml"):
        published_models(tmp_path, ["PUL01"])
    (tmp_path / "PUL01").mkdir()
    (tmp_path / "PUL01" / "pulmonary_O2_parent.cellml").touch()
    (model,) = published_models(tmp_path, ["PUL01"])
    assert model.path.name == "pulmonary_O2_parent.cellml"
    assert model.spread == Spread(30.0, 0.3, 0.05)


def test_comparison_with_the_reference(tmp_path: Path, shared: Path) -> None:
    models = published_models(shared / "data" / "cellml", ["LEN01"])
    run_campaign(models, tmp_path, n=12)
    (agreement,) = compare(models, tmp_path, shared / "data" / "physiome")
    assert agreement.fraction == 1.0
    assert agreement.good
    with pytest.raises(DataError, match="holds no trajectories of LEN01"):
        compare(models, tmp_path, shared / "data" / "cellml")
