"""Whether the files of a data set are what they should be."""

import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tides.data import uea
from tides.data.catalogue import Entry, room
from tides.data.download import file_md5
from tides.data.physiome import facts
from tides.data.physiome.trajectories import read_trajectories
from tides.data.uea_splits import sorted_unique_rows
from tides.errors import DataError


class Check(NamedTuple):
    """The verdict on one file."""

    file: str
    good: bool
    detail: str


def verify(entry: Entry, root: Path | None = None) -> list[Check]:
    """Open every file of an entry; an empty list means that there are none."""
    folder = room(entry, root)
    if entry.room == "uea":
        paths = [folder / f"{entry.name}{suffix}.npz" for suffix in ("", "_TRAIN_only", "_partial")]
        return [_check_uea(path, entry.name) for path in paths if path.is_file()]
    if entry.room == "physiome":
        made = [folder / "trajectories" / f"{short}.npz" for short in facts.names()]
        archives = sorted(folder.glob("*.zip"))
        return [_check_trajectories(p) for p in made if p.is_file()] + [_check_archive(p) for p in archives]
    if entry.room == "physionet2012":
        return [_check_stays(path) for path in sorted(folder.glob("set-?")) if path.is_dir()]
    return []


def _check_uea(path: Path, name: str) -> Check:
    try:
        dataset = uea.read_uea(path, name)
    except DataError as error:
        return Check(path.name, False, str(error))
    found = f"{len(dataset)} cases, {len(dataset.channels)} channels, {len(dataset.class_names or ())} classes"
    if dataset.missing:
        return Check(path.name, True, f"{found}; incomplete: {dataset.missing}")
    expected = next((f for f in uea.PAPER_DATASETS if f.name == name), None)
    if expected is None:
        return Check(path.name, True, found)
    shape = (len(dataset), len(dataset.channels), *np.unique(dataset.lengths), len(dataset.class_names or ()))
    wanted = (expected.cases, expected.channels, expected.length, expected.classes)
    if shape != wanted:
        plain = tuple(int(n) for n in shape)
        return Check(path.name, False, f"cases, channels, length, classes are {plain}; wanted {wanted}")
    unique = len(sorted_unique_rows(dataset))
    if unique != expected.unique:
        return Check(path.name, False, f"{unique} distinct cases; wanted {expected.unique}")
    return Check(path.name, True, f"{found}, {unique} distinct")


def _check_trajectories(path: Path) -> Check:
    system = facts.system(path.stem)
    try:
        values = read_trajectories(path).values
    except DataError as error:
        return Check(path.name, False, str(error))
    n, _, channels = values.shape
    if channels != system.channels:
        return Check(path.name, False, f"{channels} channels; wanted {system.channels}")
    if n != 2000:
        return Check(path.name, False, f"{n} trajectories; the benchmark has 2000")
    return Check(path.name, True, f"{n} trajectories, {channels} channels")


def _check_archive(path: Path) -> Check:
    note = path.with_name(f"{path.name}.md5")
    if note.is_file() and file_md5(path) not in note.read_text(encoding="ascii", errors="replace").split():
        return Check(path.name, False, "does not have the checksum that was published for it")
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except zipfile.BadZipFile as error:
        return Check(path.name, False, str(error))
    wanted = {f"{facts.system(s).model}/{fold}/train.pt" for s in facts.names() for fold in range(5)}
    found = {"/".join(member.split("/")[-3:]) for member in members} & wanted
    checked = "checksum right" if note.is_file() else "no checksum kept beside it"
    return Check(path.name, found == wanted, f"{len(found)} of {len(wanted)} folds; {checked}")


def _check_stays(folder: Path) -> Check:
    from tides.data.physionet import load_physionet2012

    try:
        dataset = load_physionet2012(folder.parent, sets=(folder.name[-1],))
    except DataError as error:
        return Check(folder.name, False, str(error))
    return Check(folder.name, True, f"{len(dataset)} stays")
