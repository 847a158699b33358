"""The published archive is read, and anything else inside its files is refused."""

import os
import pickle
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Subset

from tides.data import physiome
from tides.data.physiome import facts
from tides.errors import DataError

MODEL = facts.system("HOD01").model
PUBLISHED_NAMES = ("train.pt", "valid.pt", "test.pt")


class IMTS_dataset:  # the published class is called this
    """What the authors pickled: padded times and values, NaN where nothing was observed."""

    def __init__(self, n: int = 10) -> None:
        generator = torch.Generator().manual_seed(0)
        self.X, self.T = _published_window(n, 6, 0.0, generator)
        self.Y, self.TY = _published_window(n, 5, 0.5, generator)


def _published_window(n: int, rows: int, start: float, generator: torch.Generator) -> tuple[Any, Any]:
    values = torch.randn(n, rows, 4, generator=generator)
    times = (start + torch.rand(n, rows, generator=generator) / 2).sort(dim=1).values
    seen = torch.rand(n, rows, 4, generator=generator) > 0.6
    seen[..., 0] |= ~seen.any(-1)
    lengths = torch.randint(1, rows + 1, (n,), generator=generator)
    valid = torch.arange(rows) < lengths[:, None]
    values[~(seen & valid[..., None])] = torch.nan
    return values, times * valid


def _write(folder: Path, content: list[Any]) -> None:
    folder.mkdir(parents=True)
    for name, part in zip(PUBLISHED_NAMES, content, strict=True):
        torch.save(part, folder / name)


def _write_fold(folder: Path, monkeypatch: pytest.MonkeyPatch, module: str = "__main__") -> IMTS_dataset:
    """Save under the module name that the published script had; the name must resolve while pickling."""
    home = sys.modules.get(module) or types.ModuleType(module)
    monkeypatch.setitem(sys.modules, module, home)
    monkeypatch.setattr(home, "IMTS_dataset", IMTS_dataset, raising=False)
    monkeypatch.setattr(IMTS_dataset, "__module__", module)
    dataset = IMTS_dataset()
    _write(folder, [Subset(dataset, [3, 1, 4, 5, 9, 2, 6]), Subset(dataset, [0, 7]), Subset(dataset, [8])])  # type: ignore[arg-type]
    return dataset


@pytest.mark.parametrize("module", ["__main__", "generate_imts"])
@pytest.mark.parametrize("layout", ["folder", "final", "zip"])
def test_reads_the_published_layouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, layout: str) -> None:
    base = tmp_path / "final" if layout != "folder" else tmp_path
    dataset = _write_fold(base / MODEL / "2", monkeypatch, module)
    root = tmp_path
    if layout == "zip":
        root = tmp_path / "zipped"
        root.mkdir()
        with zipfile.ZipFile(root / "final.zip", "w") as archive:
            for name in PUBLISHED_NAMES:
                archive.write(base / MODEL / "2" / name, f"final/{MODEL}/2/{name}")
    fold = physiome.load_fold("HOD01", 2, root=root)
    assert fold.source == "archive"
    assert [len(fold.train), len(fold.val), len(fold.test)] == [7, 2, 1]
    series = fold.train[0]  # instance 3 of the published data
    count = len(series)
    assert torch.equal(torch.from_numpy(series.times), dataset.T[3, :count].double())
    published = dataset.X[3, :count]
    assert torch.equal(torch.from_numpy(series.observed), ~published.isnan())
    assert torch.equal(torch.from_numpy(series.values), published.nan_to_num(0.0))
    assert dataset.X[3, count:].isnan().all()


def test_parity_cannot_be_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_fold(tmp_path / MODEL / "0", monkeypatch)
    with pytest.raises(DataError, match="parity=False needs the trajectories"):
        physiome.load_fold("HOD01", 0, root=tmp_path, parity=False)


class Bomb:
    """Runs a command when unpickled by anything that is not restricted."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def test_code_in_a_file_is_refused_and_not_run(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    _write(tmp_path / MODEL / "0", [Bomb(f"touch {witness}")] * 3)
    with pytest.raises(DataError, match=r"wants to load \w+\.system.*refused"):
        physiome.load_fold("HOD01", 0, root=tmp_path)
    assert not witness.exists()


def test_code_inside_the_known_class_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    witness = tmp_path / "witness"
    monkeypatch.setattr(sys.modules["__main__"], "IMTS_dataset", IMTS_dataset, raising=False)
    monkeypatch.setattr(IMTS_dataset, "__module__", "__main__")
    dataset = IMTS_dataset()
    dataset.T = Bomb(f"touch {witness}")
    _write(tmp_path / MODEL / "0", [dataset] * 3)
    with pytest.raises(DataError, match="refused"):
        physiome.load_fold("HOD01", 0, root=tmp_path)
    assert not witness.exists()


@pytest.mark.parametrize("content", [{"x": torch.ones(2)}, torch.zeros(3), [1, 2]])
def test_other_objects_are_named(tmp_path: Path, content: Any) -> None:
    _write(tmp_path / MODEL / "0", [content] * 3)
    with pytest.raises(DataError, match="wanted the published dataset class"):
        physiome.load_fold("HOD01", 0, root=tmp_path)


def test_damaged_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_fold(tmp_path / MODEL / "0", monkeypatch)
    target = tmp_path / MODEL / "0" / "valid.pt"
    target.write_bytes(target.read_bytes()[:200])
    with pytest.raises(DataError, match=r"valid\.pt cannot be read"):
        physiome.load_fold("HOD01", 0, root=tmp_path)
    # A plain pickle is not in torch's format and never reaches an unpickler.
    target.write_bytes(pickle.dumps(Bomb(f"touch {tmp_path / 'witness'}")))
    with pytest.raises(DataError, match=r"valid\.pt cannot be read"):
        physiome.load_fold("HOD01", 0, root=tmp_path)
    assert not (tmp_path / "witness").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "final.zip").write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(DataError, match="not a complete zip file"):
        physiome.load_fold("HOD01", 0, root=tmp_path / "other")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_damaged_member_of_the_zip_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: int
) -> None:
    _write_fold(tmp_path / "unpacked" / "0", monkeypatch)
    path = tmp_path / "final.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        for name in PUBLISHED_NAMES:
            archive.write(tmp_path / "unpacked" / "0" / name, f"final/{MODEL}/0/{name}")
    content = bytearray(path.read_bytes())
    for at in range(300, 340):
        content[at] ^= 255
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"final\.zip: .*train\.pt is damaged .*; fetch the archive again"):
        physiome.load_fold("HOD01", 0, root=tmp_path)


def test_rows_with_holes_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = _write_fold(tmp_path / MODEL / "0", monkeypatch)
    dataset.X[0] = torch.tensor([[0.0], [torch.nan], [0.0], [torch.nan], [torch.nan], [torch.nan]])
    torch.save(Subset(dataset, [0]), tmp_path / MODEL / "0" / "test.pt")  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"test\.pt: rows have holes"):
        physiome.load_fold("HOD01", 0, root=tmp_path)


def test_indices_and_channels_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = _write_fold(tmp_path / MODEL / "0", monkeypatch)
    torch.save(Subset(dataset, [0, 99]), tmp_path / MODEL / "0" / "test.pt")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="do not point into its 10 instances"):
        physiome.load_fold("HOD01", 0, root=tmp_path)
    dataset.X = dataset.X[..., :3]
    dataset.Y = dataset.Y[..., :3]
    torch.save(Subset(dataset, [0]), tmp_path / MODEL / "0" / "train.pt")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="has 3 channels; this system has 4"):
        physiome.load_fold("HOD01", 0, root=tmp_path)
