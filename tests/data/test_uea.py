"""UEA files of every kind, both split protocols, and the arrays at hand."""

import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from tides.data import collate, load_uea, uea, uea_split
from tides.data.uea_splits import RFORMER_SEEDS, sorted_unique_rows
from tides.data.walker import WALKER_SEEDS, walker_permutation
from tides.errors import ConfigError, DataError

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "uea"


def real(file: str) -> Path:
    if not (REAL / file).exists():
        pytest.skip(f"{file} is not at hand")
    return REAL


def write(folder: Path, name: str = "Toy", n_train: int = 13, n_test: int = 10, **extra: Any) -> NDArray[Any]:
    """A small complete file; case 4 of the test half repeats case 2 of the training half."""
    rng = np.random.default_rng(0)
    x = rng.normal(5.0, 3.0, (n_train + n_test, 2, 7)).astype(np.float32)
    x[n_train + 4] = x[2]
    y = np.array(["b", "a"])[rng.integers(0, 2, len(x))]
    halves = {"X_train": x[:n_train], "y_train": y[:n_train], "X_test": x[n_train:], "y_test": y[n_train:]}
    np.savez(folder / f"{name}.npz", **(halves | extra))
    return x


def test_series_carry_the_archive_values(tmp_path: Path) -> None:
    x = write(tmp_path)
    dataset = load_uea("Toy", root=tmp_path)
    assert (len(dataset), dataset.train_size, dataset.missing) == (23, 13, None)
    assert dataset.class_names == ("a", "b")
    np.testing.assert_array_equal(dataset[15].values, x[15].T)
    np.testing.assert_array_equal(dataset[15].times, np.arange(7.0))
    assert collate(dataset[:3]).values.shape == (3, 7, 2)


def test_walker_deals_out_sorted_unique_cases(tmp_path: Path) -> None:
    x = write(tmp_path)
    parts = uea_split(load_uea("Toy", root=tmp_path), "walker", 3456, scaling="raw")
    assert [len(p) for p in parts] == [15, 3, 4]
    expected = np.unique(x.transpose(0, 2, 1), axis=0)[walker_permutation(3456, 22)]
    np.testing.assert_array_equal(np.concatenate([uea.stack(p)[0] for p in parts]), expected)


def test_rformer_equals_two_sklearn_splits(tmp_path: Path) -> None:
    model_selection = pytest.importorskip("sklearn.model_selection")
    x = write(tmp_path)
    dataset = load_uea("Toy", root=tmp_path)
    rows = [i for i in range(len(x)) if i != 17]  # without the duplicate, in the original order
    for seed in RFORMER_SEEDS:
        train, rest = model_selection.train_test_split(rows, test_size=0.3, random_state=seed)
        test, val = model_selection.train_test_split(rest, test_size=0.5, random_state=seed)
        got = uea_split(dataset, "rformer", seed)
        assert [p.ids for p in got] == [train, val, test]
        labels = dataset.labels
        assert labels is not None
        assert got[0].labels.tolist() == labels[train].tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize("protocol", ["walker", "rformer"])
def test_zscore_uses_training_cases_only(tmp_path: Path, protocol: Any) -> None:
    write(tmp_path)
    dataset = load_uea("Toy", root=tmp_path)
    raw = uea_split(dataset, protocol, 42, scaling="raw")
    scaled = uea_split(dataset, protocol, 42)
    train = uea.stack(raw[0])[0].astype(np.float64)
    mean, std = train.mean(axis=(0, 1)), train.std(axis=(0, 1))
    for before, after in zip(raw, scaled, strict=True):
        np.testing.assert_allclose(uea.stack(after)[0], (uea.stack(before)[0] - mean) / std, atol=2e-6)


def test_zscore_of_constant_and_distant_channels(tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(size=(10, 2, 30))
    x[:, 0], x[:, 1] = 4.0, 1e4 + x[:, 1]
    np.savez(tmp_path / "Toy.npz", X_train=x, y_train=np.arange(10), X_test=x[:2] + 1, y_test=np.arange(2))
    train, _, _ = uea_split(load_uea("Toy", root=tmp_path))
    values, _ = uea.stack(train)
    assert np.isfinite(values).all()
    assert values[..., 1].std() == pytest.approx(1.0, abs=1e-3)


@settings(max_examples=60, deadline=None)
@given(arrays(np.float32, (6, 2, 3), elements=st.sampled_from([-2.0, -0.0, 0.0, 1e-30, 3.0, -1e30])))
def test_order_is_that_of_numpy_unique(x: NDArray[np.float32]) -> None:
    cases = list(x)
    schema = uea.Schema(("a", "b", "c"), class_names=("k",))
    store = uea.make_store(cases, np.zeros(6, np.int64), np.arange(6))
    rows = sorted_unique_rows(uea.UEADataset(store, schema, "Toy", 6))
    _, first = np.unique(x, axis=0, return_index=True)
    assert rows.tolist() == first.tolist()


def test_unequal_lengths_load_but_do_not_split(tmp_path: Path) -> None:
    flat = np.arange(24.0).reshape(2, 12)
    half = {"y": np.array(["u", "v"]), "lengths": np.array([5, 7])}
    parts = {f"{key}_{part}": value for part in ("train", "test") for key, value in half.items()}
    np.savez(tmp_path / "Ragged.npz", X_train=flat, X_test=flat, **parts)  # type: ignore[arg-type]
    dataset = load_uea("Ragged", root=tmp_path)
    assert dataset.lengths.tolist() == [5, 7, 5, 7]
    np.testing.assert_array_equal(dataset[1].values, flat[:, 5:].T)
    with pytest.raises(DataError, match=r"one length; found \[5, 7\]"):
        uea_split(dataset)


def test_through_aeon_into_a_plain_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def load_classification(name: str, split: str, extract_path: str) -> tuple[Any, Any]:
        calls.append((name, split))
        ragged = [np.ones((2, 3)), np.zeros((2, 4))]
        return ragged if name == "Ragged" else np.stack([np.ones((2, 3))] * 2), np.array(["x", "y"])

    aeon = types.ModuleType("aeon.datasets")
    aeon.load_classification = load_classification  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "aeon", types.ModuleType("aeon"))
    monkeypatch.setitem(sys.modules, "aeon.datasets", aeon)
    monkeypatch.setenv("TIDES_DATA", str(tmp_path))
    assert load_uea("scp1").name == "SelfRegulationSCP1"
    assert calls == [("SelfRegulationSCP1", "train"), ("SelfRegulationSCP1", "test")]
    load_uea("SCP1")
    assert len(calls) == 2  # the second time from the cache
    assert load_uea("Ragged").lengths.tolist() == [3, 4, 3, 4]
    with np.load(tmp_path / "uea" / "SelfRegulationSCP1.npz", allow_pickle=False) as file:
        assert file["X_train"].dtype == np.float32


def test_offline_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aeon.datasets", None)
    with pytest.raises(DataError, match=r"no EigenWorms\.npz in .*tides-ssm\[uea\]"):
        load_uea("EW", root=tmp_path)

    def load_classification(name: str, **_: Any) -> Any:
        raise OSError("no route\nto host")

    aeon = types.ModuleType("aeon.datasets")
    aeon.load_classification = load_classification  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "aeon", types.ModuleType("aeon"))
    monkeypatch.setitem(sys.modules, "aeon.datasets", aeon)
    with pytest.raises(DataError, match=r"no route to host\); go online, or put EigenWorms\.npz"):
        load_uea("EW", root=tmp_path)
    assert not list(tmp_path.glob("*.npz"))


def test_names() -> None:
    names = {"EW", "SCP1", "SCP2", "MI", "ETC", "HB"}
    assert {facts.short for facts in uea.PAPER_DATASETS} == names
    assert uea.archive_name("motorimagery") == "MotorImagery"
    assert uea.archive_name("BasicMotions") == "BasicMotions"
    for bad in ("../SCP1", "a/b", ""):
        with pytest.raises(DataError, match="wanted the name of a data set"):
            uea.archive_name(bad)


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped"])
def test_damaged_files_are_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "Toy.npz"
    np.savez_compressed(path, X_train=np.random.default_rng(0).normal(size=(5, 2, 7)), y_train=np.arange(5))
    content = bytearray(path.read_bytes())
    for at in range(200, 240):
        content[at] ^= 255
    path.write_bytes({"cut": path.read_bytes()[:400], "empty": b"", "flipped": bytes(content)}[damage])
    with pytest.raises(DataError, match=r"Toy\.npz is not an npz file"):
        load_uea("Toy", root=tmp_path)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"X_train": np.ones((2, 12)), "y_train": np.ones(2), "lengths_train": np.array([5, 9])}, "lengths_train"),
        ({"X_train": np.ones((2, 12)), "y_train": np.ones(2), "lengths_train": np.array([0, 12])}, "lengths_train"),
        ({"X_train": np.ones((2, 12)), "y_train": np.ones(2), "lengths_train": np.array([5.0, 7.0])}, "lengths_train"),
        ({"X_train": np.ones((2, 12)), "y_train": np.ones(2), "lengths_train": np.array([[5], [7]])}, "lengths_train"),
        ({"X_train": np.ones((13, 2, 0))}, r"X_train has shape \(13, 2, 0\)"),
        ({"y_train": np.ones((13, 1))}, r"y_train is float64 \(13, 1\); wanted one label for each case"),
        ({"y_train": np.array(1)}, r"y_train is int64 \(\)"),
        ({"y_test": np.array([0.0, np.nan] * 5)}, "label 1 in y_test is nan"),
        ({"X_test": np.ones((10, 3, 7))}, r"\[2, 3\] channels"),
        ({"X_test": np.full((10, 2, 7), "a")}, "X_test holds <U1"),
        ({f"{axis}_{half}": np.ones((0, 2, 7))[:, 0, 0] if axis == "y" else np.ones((0, 2, 7)) for axis in "Xy"
          for half in ("train", "test")}, "at least one case"),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit_are_named(tmp_path: Path, extra: dict[str, Any], message: str) -> None:
    write(tmp_path, **extra)
    with pytest.raises(DataError, match=message):
        load_uea("Toy", root=tmp_path)


def test_a_number_is_one_class_in_both_halves(tmp_path: Path) -> None:
    write(tmp_path, y_train=np.arange(13) % 2, y_test=np.arange(10.0) % 2)
    assert load_uea("Toy", root=tmp_path).class_names == ("0", "1")


@pytest.mark.parametrize("protocol", ["walker", "rformer"])
def test_too_few_cases_are_not_split(tmp_path: Path, protocol: Any) -> None:
    write(tmp_path, X_train=np.ones((13, 2, 7)), X_test=np.ones((10, 2, 7)))
    with pytest.raises(DataError, match="Toy: 1 distinct cases are too few for training, validation and test"):
        uea_split(load_uea("Toy", root=tmp_path), protocol, 42)


@pytest.mark.parametrize("rows", [np.full(160, 7000), np.full(160, -1), np.full(160, 1.5)])
def test_partial_files_that_point_elsewhere(tmp_path: Path, rows: NDArray[Any]) -> None:
    name = "EthanolConcentration"
    held = 524 - int(0.7 * 524)
    arrays = {"X": np.ones((300, 3, 4)), "y": np.ones(300)}
    indices = {"idx_val_2345": rows[: held // 2], "idx_test_2345": rows[: held - held // 2]}
    np.savez(tmp_path / f"{name}_partial.npz", **arrays, **indices)
    with pytest.raises(DataError, match="idx_val_2345, idx_test_2345 do not point into the 300 cases"):
        load_uea(name, root=tmp_path)


def test_bad_files_and_arguments(tmp_path: Path) -> None:
    write(tmp_path)
    dataset = load_uea("Toy", root=tmp_path)
    with pytest.raises(ConfigError, match="protocol='official'"):
        uea_split(dataset, "official")  # type: ignore[arg-type]
    for protocol in ("walker", "rformer"):
        for seed in ("a", -1, 2**40, 1.5, True):
            with pytest.raises(ConfigError, match=rf"seed: found {seed!r}, wanted a whole number from 0 to 4294967295"):
                uea_split(dataset, protocol, seed)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="scaling='minmax'"):
        uea_split(dataset, scaling="minmax")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="wants what load_uea returns"):
        uea_split(dataset[:4])  # type: ignore[arg-type]
    np.savez(tmp_path / "Odd.npz", Z=np.ones(2))
    with pytest.raises(DataError, match=r"holds \['Z'\]"):
        load_uea("Odd", root=tmp_path)
    np.savez(tmp_path / "Hostile.npz", X_train=np.array([{}], dtype=object), y_train=np.ones(1))
    with pytest.raises(DataError, match="not an npz file of plain arrays"):
        load_uea("Hostile", root=tmp_path)
    np.savez(tmp_path / "Short.npz", X_train=np.ones((2, 1, 3)), y_train=np.ones(3))
    with pytest.raises(DataError, match="2 cases in X_train but 3 labels"):
        load_uea("Short", root=tmp_path)


@pytest.mark.parametrize("name", ["SCP1", "SCP2"])
def test_real_walker_splits(name: str) -> None:
    root = real(f"{uea.archive_name(name)}.npz")
    dataset = load_uea(name, root=root)
    facts = next(f for f in uea.PAPER_DATASETS if f.short == name)
    assert (len(dataset), len(dataset.channels)) == (facts.cases, facts.channels)
    assert set(dataset.lengths.tolist()) == {facts.length}
    published = json.loads((root / "walker_splits.json").read_text())["splits"][facts.name]
    values = np.stack([series.values for series in dataset])
    _, first = np.unique(values, axis=0, return_index=True)
    for seed in WALKER_SEEDS:
        parts = uea_split(dataset, "walker", seed, scaling="raw")
        assert [row for p in parts for row in p.ids] == first[published[str(seed)]].tolist()


def test_real_train_only_file_is_labelled() -> None:
    dataset = load_uea("HB", root=real("Heartbeat_TRAIN_only.npz"))
    assert len(dataset) == 204
    assert dataset.missing == "the official test cases"
    for protocol in ("walker", "rformer"):
        with pytest.raises(DataError, match=r"Heartbeat.*missing: the official test cases"):
            uea_split(dataset, protocol)  # type: ignore[arg-type]


def test_real_partial_file_is_labelled() -> None:
    root = real("EthanolConcentration_partial.npz")
    dataset = load_uea("ETC", root=root)
    assert dataset.missing == "76 of 524 cases and the official split"
    with pytest.raises(DataError, match="76 of 366 training cases"):
        uea_split(dataset)
    with pytest.raises(DataError, match="rformer protocol needs every case"):
        uea_split(dataset, "rformer", 42, allow_partial=True)
    with pytest.raises(DataError, match="validation cases of walker seed 1 are not in the file"):
        uea_split(dataset, seed=1, allow_partial=True)
    with np.load(root / "EthanolConcentration_partial.npz") as file:
        for seed in WALKER_SEEDS:
            train, val, test = uea_split(dataset, seed=seed, allow_partial=True)
            assert len(train) == 290
            assert val.ids == file[f"idx_val_{seed}"].tolist()
            assert test.ids == file[f"idx_test_{seed}"].tolist()


@pytest.mark.slow
def test_real_motor_imagery() -> None:
    dataset = load_uea("MI", root=real("MotorImagery.npz"))
    train, val, test = uea_split(dataset)
    assert [len(train), len(val), len(test)] == [264, 57, 57]
    # One channel and 63 copies of it, each 64 samples later.
    values = dataset[0].values
    np.testing.assert_array_equal(values[64:, 0], values[:-64, 1])
