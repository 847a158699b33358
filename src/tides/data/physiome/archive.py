"""The published Physiome-ODE archive, read without running anything that is in it.

The archive stores pickled objects of the authors' own dataset class. They are read by torch's restricted unpickler,
which rebuilds tensors and plain containers; beyond these it is told about two classes, the published dataset and
torch's `Subset`, and both are replaced by inert stand-ins. Any other name in a file is refused.
"""

import io
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from tides.data.physiome.fold import Part, Window
from tides.errors import DataError

_PARTS = ("train.pt", "valid.pt", "test.pt")
_DATASET_CLASS = "IMTS_dataset"
_SUBSET_CLASS = "torch.utils.data.dataset.Subset"
# One part of the largest system is some 100 MB; a member beyond this is not one of the published files.
_MAX_BYTES = 4 << 30


class PublishedDataset:
    """Stand-in for the authors' dataset: tensors T, X (times and values of the inputs) and TY, Y (targets)."""


class PublishedSubset:
    """Stand-in for torch's Subset: `dataset` and `indices`."""


@dataclass(frozen=True)
class ArchiveFold:
    """Where one fold lies: in a folder, or under a prefix inside a zip file."""

    path: Path
    prefix: str = ""

    def open(self, part: str) -> IO[bytes]:
        """One of the three parts as a seekable file."""
        if not self.path.is_file():
            return (self.path / part).open("rb")
        with zipfile.ZipFile(self.path) as archive:
            member = archive.getinfo(self.prefix + part)
            if member.file_size > _MAX_BYTES:
                raise DataError(f"{self.path}: {member.filename} claims {member.file_size} bytes; refusing to read it")
            try:
                return io.BytesIO(archive.read(member))
            except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                raise DataError(
                    f"{self.path}: {member.filename} is damaged ({error}); fetch the archive again"
                ) from None


def find_archive_fold(model: str, fold: int, root: Path) -> ArchiveFold | None:
    """The fold `<model>/<fold>/` under `root`, unpacked or in a zip file, or None."""
    inside = f"{model}/{fold}"
    for folder in (root, root / "final", root / "archive", root / "physiome", root / "physiome" / "final"):
        if all((folder / inside / part).is_file() for part in _PARTS):
            return ArchiveFold(folder / inside)
    for path in sorted(root.glob("*.zip")):
        try:
            with zipfile.ZipFile(path) as archive:
                members = set(archive.namelist())
        except zipfile.BadZipFile:
            raise DataError(f"{path} is not a complete zip file; fetch it again") from None
        for prefix in (f"{inside}/", f"final/{inside}/"):
            if all(prefix + part in members for part in _PARTS):
                return ArchiveFold(path, prefix)
    return None


def read_archive_fold(fold: ArchiveFold, channels: tuple[str, ...]) -> tuple[Part, Part, Part]:
    """Training, validation and test instances as published."""
    train, val, test = (_read_part(fold, part, channels) for part in _PARTS)
    return train, val, test


def _read_part(fold: ArchiveFold, part: str, channels: tuple[str, ...]) -> Part:
    where = f"{fold.path}: {fold.prefix}{part}"
    with fold.open(part) as file:
        published = restricted_load(file, where)
    if isinstance(published, PublishedSubset):
        dataset, indices = getattr(published, "dataset", None), getattr(published, "indices", None)
    else:
        dataset, indices = published, None
    if not isinstance(dataset, PublishedDataset):
        raise DataError(f"{where} holds a {type(dataset).__name__}; wanted the published dataset class")
    tensors = {name: getattr(dataset, name, None) for name in ("T", "X", "TY", "Y")}
    t, x, ty, y = (v if isinstance(v, Tensor) else torch.empty(0) for v in tensors.values())
    if not (_is_window(t, x) and _is_window(ty, y) and len(x) == len(y)):
        shapes = [tuple(v.shape) if isinstance(v, Tensor) else type(v).__name__ for v in tensors.values()]
        raise DataError(f"{where}: T, X, TY, Y are {shapes}; wanted (n, l), (n, l, c), (n, q), (n, q, c)")
    rows = torch.arange(len(x)) if indices is None else _indices(indices, len(x), where)
    if not x.shape[-1] == y.shape[-1] == len(channels):
        raise DataError(f"{where} has {x.shape[-1]} channels; this system has {len(channels)}")
    return Part(_window(t[rows], x[rows], where), _window(ty[rows], y[rows], where), channels)


def restricted_load(file: IO[bytes], where: str) -> Any:
    """Unpickle tensors, containers and the two published classes; refuse everything else."""
    try:
        unknown = torch.serialization.get_unsafe_globals_in_checkpoint(file)
        allowed: list[Any] = []
        for name in unknown:
            # The class was pickled from a script, so its module is __main__ or whatever imported it.
            if name.rpartition(".")[2] == _DATASET_CLASS:
                allowed.append((PublishedDataset, name))
            elif name == _SUBSET_CLASS:
                allowed.append((PublishedSubset, name))
            else:
                raise DataError(f"{where} wants to load {name}, which is no part of the published format; refused")
        file.seek(0)
        with torch.serialization.safe_globals(allowed):
            return torch.load(file, map_location="cpu", weights_only=True)
    except DataError:
        raise
    except Exception as error:  # torch raises many kinds of errors on damaged files
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(f"{where} cannot be read: {reason}") from error


def _is_window(times: Tensor, values: Tensor) -> bool:
    return values.ndim == 3 and times.shape == values.shape[:2]


def _indices(indices: Any, size: int, where: str) -> Tensor:
    rows = torch.as_tensor(indices)
    whole = rows.dtype == torch.int64 and rows.ndim == 1
    if not whole or not bool(((rows >= 0) & (rows < size)).all()):
        raise DataError(f"{where}: the subset's indices do not point into its {size} instances")
    return rows


def _window(times: Tensor, values: Tensor, where: str) -> Window:
    """Published rows are padded with time 0 and NaN; a row counts when anything in it was observed."""
    observed = ~values.isnan()
    rows = observed.any(dim=-1)
    lengths = rows.sum(dim=1)
    longest = int(lengths.max()) if len(rows) else 0
    valid = torch.arange(longest) < lengths[:, None]
    times, observed, values = times[:, :longest].double(), observed[:, :longest], values[:, :longest]
    if not torch.equal(valid, rows[:, :longest]):
        raise DataError(f"{where}: rows have holes: an empty time step stands before an observed one")
    last = times.gather(1, (lengths - 1).clamp(min=0)[:, None])
    return Window(values.float().nan_to_num(0.0), torch.where(valid, times, last), observed, valid)
