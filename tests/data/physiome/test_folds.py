"""The fold protocol: draws in the published order, parity, split, and numbers known from elsewhere."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from tides.data import collate, physiome
from tides.data.physiome import facts
from tides.data.physiome.fold import Part
from tides.data.physiome.trajectories import read_trajectories
from tides.errors import ConfigError, DataError

REAL = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "physiome"


@pytest.fixture(scope="module")
def trajectories() -> physiome.Trajectories:
    """Waves with random phases in the shape of HOD01: four channels, all of them targets."""
    rng = np.random.default_rng(0)
    phase = rng.uniform(0, 2 * np.pi, (60, 1, 4))
    raw = 3.0 + 0.1 * np.sin(np.arange(100)[None, :, None] / 9 + phase)
    raw[7, 20, 1] = 40.0  # one instance far beyond ten standard deviations
    return physiome.standardise("HOD01", raw, t_step=0.5)


def parts(fold: physiome.Fold) -> tuple[Part, Part, Part]:
    return fold.train, fold.val, fold.test


def rows(fold: physiome.Fold) -> torch.Tensor:
    """Observed channels of every kept time step, inputs and targets together."""
    windows = [window for part in parts(fold) for window in (part.inputs, part.targets)]
    return torch.cat([w.observed.sum(-1)[w.valid] for w in windows])


def test_parity_keeps_odd_rows_only(trajectories: physiome.Trajectories) -> None:
    odd = rows(physiome.make_fold(trajectories, 0, parity=True))
    every = rows(physiome.make_fold(trajectories, 0, parity=False))
    assert (odd % 2 == 1).all()
    assert (every >= 1).all()
    assert (every % 2 == 0).any()
    # The same draws with and without the rule: what parity drops is exactly the rows with an even count.
    assert len(odd) == int((every % 2 == 1).sum())


def test_split_and_outliers(trajectories: physiome.Trajectories) -> None:
    fold = physiome.make_fold(trajectories, 3)
    # 59 instances remain of 60: floor(0.7·59), floor(0.2·59), floor(0.1·59) and two left over, dealt from the front.
    assert [len(p) for p in parts(fold)] == [42, 12, 5]


def test_windows_are_well_formed(trajectories: physiome.Trajectories) -> None:
    fold = physiome.make_fold(trajectories, 1)
    for part in parts(fold):
        for window, low, high in ((part.inputs, 0.0, 49 / 99), (part.targets, 50 / 99, 98 / 99)):
            assert window.times.dtype == torch.float64
            assert window.values.dtype == torch.float32
            inside = window.times[window.valid]
            assert low <= float(inside.min())
            assert float(inside.max()) <= high
            assert (window.times.diff(dim=1) >= 0).all()
            assert not window.observed[~window.valid].any()
            assert (window.values[~window.observed] == 0).all()
            # Padding stands at the end.
            assert (window.valid.long().diff(dim=1) <= 0).all()


def test_noise_is_all_that_is_added(trajectories: physiome.Trajectories) -> None:
    fold = physiome.make_fold(trajectories, 2, parity=False)
    clean = trajectories.values
    step = (fold.train.inputs.times * 99).round().long()
    residuals = []
    for i in range(len(fold.train)):
        kept = fold.train.inputs.valid[i]
        candidate = torch.from_numpy(clean)[:, step[i][kept]]  # (instances, rows, c)
        error = (candidate - fold.train.inputs.values[i][kept]) * fold.train.inputs.observed[i][kept]
        residuals.append(error[error.square().sum(dim=(1, 2)).argmin()][fold.train.inputs.observed[i][kept]])
    assert float(torch.cat(residuals).std()) == pytest.approx(0.05, rel=0.05)


def test_is_deterministic_and_leaves_global_generators_alone(trajectories: physiome.Trajectories) -> None:
    before = torch.random.get_rng_state()
    one, two = physiome.make_fold(trajectories, 4), physiome.make_fold(trajectories, 4)
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(one.test.targets.values, two.test.targets.values)
    other = physiome.make_fold(trajectories, 0)
    assert not torch.equal(one.test.inputs.values[:2, :8], other.test.inputs.values[:2, :8])


def test_follows_the_global_seed_of_the_protocol(trajectories: physiome.Trajectories) -> None:
    # The protocol seeds torch globally; a private generator must give the same stream.
    import random

    random.seed(1)
    order = list(range(60))
    random.shuffle(order)
    torch.manual_seed(1)
    values = torch.from_numpy(trajectories.values[order])[:, :99]
    values = values[(values.abs() <= 10).all(dim=2).all(dim=1)]
    noisy = values[:, :50] + torch.randn(59, 50, 4) * 0.05
    torch.randn(59, 49, 4)
    seen = torch.rand(59, 50, 4) > 0.8
    torch.rand(59, 49, 4), torch.rand(59, 50), torch.rand(59, 49)
    train = torch.utils.data.random_split(range(59), [0.7, 0.2, 0.1])[0].indices
    first = train[0]
    odd = seen[first].sum(-1) % 2 == 1
    window = physiome.make_fold(trajectories, 1).train.inputs
    count = int(window.valid[0].sum())
    assert torch.equal(window.values[0, :count], (noisy[first] * seen[first])[odd])
    assert torch.equal(window.observed[0, :count], seen[first][odd])


def test_round_trip_through_the_compact_file(trajectories: physiome.Trajectories, tmp_path: Path) -> None:
    (tmp_path / "trajectories").mkdir()
    physiome.save_trajectories(tmp_path / "trajectories" / "HOD01.npz", trajectories)
    back = read_trajectories(tmp_path / "trajectories" / "HOD01.npz")
    assert np.abs(back.values - np.clip(trajectories.values, -32.767, 32.767)).max() <= 5.1e-4
    fold = physiome.load_fold("HOD01", 0, root=tmp_path)
    assert fold.source == "trajectories"
    assert torch.equal(fold.train.inputs.observed, physiome.make_fold(trajectories, 0).train.inputs.observed)


def test_series_batch_and_dataset_agree(trajectories: physiome.Trajectories) -> None:
    part = physiome.make_fold(trajectories, 0).train
    fast = part.batch(torch.tensor([4, 0, 9]), first_gap=0.25)
    slow = collate([part[4], part[0], part[9]], first_gap=0.25)
    for name in ("values", "times", "gaps", "observed", "valid", "targets", "target_observed", "query_valid"):
        assert torch.equal(getattr(fast, name), getattr(slow, name)), name
    assert torch.equal(fast.query_times[fast.query_valid], slow.query_times[slow.query_valid])
    dataset = part.to_dataset()
    assert len(dataset) == len(part)
    assert dataset.channels == ("V", "m", "h", "n")
    assert dataset.median_gap() == pytest.approx(part.median_gap())
    assert len(part[:8]) == 8


def test_a_system_of_your_own(tmp_path: Path) -> None:
    raw = np.random.default_rng(0).normal(size=(40, 100, 12))
    raw[..., 3] = np.cumsum(raw[..., 3], axis=1)  # smooth channels have the lowest scores
    raw[..., 7] = np.cumsum(raw[..., 7], axis=1)
    physiome.save_trajectories(tmp_path / "mine_2024.npz", physiome.standardise("mine_2024", raw, 1.0))
    fold = physiome.load_fold("mine_2024", 1, root=tmp_path)
    assert fold.target_channels == (0, 1, 2, 4, 5, 6, 8, 9, 10, 11)
    assert not fold.train.targets.observed[..., [3, 7]].any()
    assert fold.train.inputs.observed[..., [3, 7]].any()
    with pytest.raises(DataError, match="no Physiome-ODE system is called 'other'"):
        physiome.load_fold("other", 1, root=tmp_path)


def test_errors_name_what_is_wrong(tmp_path: Path, trajectories: physiome.Trajectories) -> None:
    with pytest.raises(DataError, match="tides data get physiome"):
        physiome.load_fold("HOD01", 0, root=tmp_path)
    with pytest.raises(ConfigError, match="fold=5"):
        physiome.load_fold("HOD01", 5, root=tmp_path)
    with pytest.raises(ConfigError, match="source='zip'"):
        physiome.load_fold("HOD01", 0, root=tmp_path, source="zip")
    with pytest.raises(DataError, match="not a folder"):
        physiome.load_fold("HOD01", 0, root=tmp_path / "absent")
    (tmp_path / "HOD01.npz").write_bytes(b"no zip")
    with pytest.raises(DataError, match=r"HOD01\.npz is not a file of trajectories"):
        physiome.load_fold("HOD01", 0, root=tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"step": np.float64("nan")}, r"step is .*nan.*; wanted a number above 0"),
        ({"step": np.ones(100)}, "step is"),
        ({"t_step": np.array("soon")}, "t_step is .*soon"),
        ({"std": np.ones(3)}, "one std for each channel"),
        ({"mean": np.ones(2), "std": np.ones(2), "dq": np.zeros((2, 30, 100), np.int16)}, "have 2 channels; .* has 4"),
    ],
)
def test_arrays_that_do_not_fit_are_named(
    tmp_path: Path, trajectories: physiome.Trajectories, change: dict[str, np.ndarray], words: str
) -> None:
    path = tmp_path / "HOD01.npz"
    physiome.save_trajectories(path, trajectories)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **(arrays | change))
    with pytest.raises(DataError, match=words):
        physiome.load_fold("HOD01", 0, root=tmp_path)


def test_too_few_trajectories_make_no_fold() -> None:
    raw = np.random.default_rng(0).normal(size=(10, 100, 2))
    assert [len(part) for part in parts(physiome.make_fold(physiome.standardise("mine", raw, 1.0), 0))] == [7, 2, 1]
    with pytest.raises(DataError, match=r"mine: 9 of 9 trajectories stay within 10 .*; wanted at least 10"):
        physiome.make_fold(physiome.standardise("mine", raw[:9], 1.0), 0)
    with pytest.raises(DataError, match="mine: holds no trajectory"):
        physiome.standardise("mine", raw[:0], 1.0)


@pytest.mark.parametrize("level", [0.0, 0.1, 1e9 / 3])
def test_a_constant_channel_has_no_spread(level: float) -> None:
    raw = np.random.default_rng(0).normal(size=(10, 100, 2))
    raw[..., 1] = level
    with pytest.raises(DataError, match="mine: channel 1 is constant"):
        physiome.standardise("mine", raw, 1.0)


def test_numbers_of_numpy_are_indices(tmp_path: Path, trajectories: physiome.Trajectories) -> None:
    physiome.save_trajectories(str(tmp_path / "HOD01.npz"), trajectories)
    fold = physiome.load_fold("HOD01", np.int64(2), root=tmp_path)  # type: ignore[arg-type]
    assert fold.fold == 2
    assert fold.train[np.int64(-1)].id == len(fold.train) - 1  # type: ignore[call-overload]


def _scores(fold: physiome.Fold) -> tuple[float, float]:
    """Pooled test MSE of answering zero, and of repeating the last observed value (zero if there is none)."""
    seen, asked = fold.test.inputs, fold.test.targets
    step = torch.where(seen.observed, torch.arange(seen.values.shape[1])[:, None], -1).amax(dim=1)
    last = seen.values.gather(1, step.clamp(min=0)[:, None])[:, 0] * (step >= 0)
    target = asked.values.double()
    return (
        float(target[asked.observed].square().mean()),
        float((target - last[:, None])[asked.observed].square().mean()),
    )


def _check_against_published(short: str) -> None:
    table = REAL / "trivial_baselines.csv"
    if not table.exists():
        pytest.skip("the trajectories of Physiome-ODE are not at hand")
    with table.open() as file:
        row = next(r for r in csv.DictReader(file) if r["short"] == short)
    trajectories = read_trajectories(REAL / "trajectories" / f"{short}.npz")
    folds = [physiome.make_fold(trajectories, f) for f in range(5)]
    assert sum(len(p) for p in parts(folds[0])) == int(float(row["n"]))
    scores = np.array([_scores(fold) for fold in folds])
    assert scores[:, 0].mean() == pytest.approx(float(row["zero"]), rel=5e-4)
    assert scores[:, 1].mean() == pytest.approx(float(row["last"]), rel=5e-4)
    assert scores[:, 0].std(ddof=1) == pytest.approx(float(row["zero_sd"]), rel=2e-2)
    asked = {c for p in parts(folds[0]) for c in p.targets.observed.any(1).any(0).nonzero()[:, 0].tolist()}
    assert asked == set(facts.system(short).target_channels)


@pytest.mark.parametrize("short", ["DUP01", "HOD01", "MIT01", "BER01"])
def test_trivial_forecasts_score_as_known(short: str) -> None:
    _check_against_published(short)


@pytest.mark.slow
@pytest.mark.parametrize("short", facts.names())
def test_trivial_forecasts_of_all_systems(short: str) -> None:
    _check_against_published(short)
