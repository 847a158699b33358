"""What can be loaded: where each data set comes from, under which licence, and whether it is here."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tides.data import cache, uea
from tides.data.download import Progress
from tides.data.physiome import facts
from tides.data.zenodo import SITE, fetch_record
from tides.errors import DataError

PHYSIOME_RECORD = 11492058


@dataclass(frozen=True)
class Entry:
    """One data set, or one family that is fetched together."""

    name: str
    what: str
    room: str
    """Folder under the data root."""
    size_mb: int | None
    """As loaded, in megabytes; None where the source knows better."""
    source: str
    licence: str
    how: Literal["aeon", "zenodo", "by hand"]


def entries() -> tuple[Entry, ...]:
    """Every data set that `tides data get` knows."""
    archive = [
        Entry(
            f.name,
            f"classification, {f.cases} cases, {f.channels} × {f.length}, {f.classes} classes ({f.short})",
            "uea",
            round(4e-6 * f.cases * f.channels * f.length) or 1,
            "https://www.timeseriesclassification.com",
            "see the archive",
            "aeon",
        )
        for f in uea.PAPER_DATASETS
    ]
    return (
        *archive,
        Entry(
            "physiome",
            f"forecasting, {len(facts.names())} systems × 5 folds, published archive",
            "physiome",
            None,
            f"{SITE}/records/{PHYSIOME_RECORD}",
            "see the record",
            "zenodo",
        ),
        Entry(
            "cellml",
            "models to simulate Physiome-ODE from",
            "cellml",
            None,
            "https://models.physiomeproject.org",
            "CC BY 3.0",
            "by hand",
        ),
        Entry(
            "physionet2012",
            "classification, 4,000 stays per set, 41 channels, in-hospital death",
            "physionet2012",
            40,
            "https://physionet.org/content/challenge-2012/",
            "ODC-By 1.0",
            "by hand",
        ),
    )


def find(name: str) -> Entry:
    """An entry by name; UEA data sets also by the paper's abbreviation, and any other archive data set by name."""
    known = {entry.name.lower(): entry for entry in entries()}
    if name.lower() in known:
        return known[name.lower()]
    long = uea.archive_name(name)
    if long.lower() in known:
        return known[long.lower()]
    source = "https://www.timeseriesclassification.com"
    return Entry(long, "a data set of the UEA archive", "uea", None, source, "see the archive", "aeon")


def get(name: str, root: Path | None = None, *, site: str = SITE, progress: Progress | None = None) -> list[Path]:
    """Fetch a data set into its room under `root` (None: the data root); returns the files."""
    entry = find(name)
    folder = room(entry, root)
    match entry.how:
        case "aeon":
            path = folder / f"{entry.name}.npz"
            return [path if path.is_file() else uea.fetch_uea(entry.name, folder)]
        case "zenodo":
            return fetch_record(PHYSIOME_RECORD, folder, site=site, progress=progress)
        case "by hand":
            raise DataError(f"{entry.name} is not fetched for you; download it from {entry.source} into {folder}")


def room(entry: Entry, root: Path | None) -> Path:
    """The folder of an entry."""
    return (cache.cache_root() if root is None else root) / entry.room


def state(entry: Entry, root: Path | None = None) -> str:
    """In a few words, whether the data is on this machine; nothing is opened."""
    folder = room(entry, root)
    if entry.room == "uea":
        if (folder / f"{entry.name}.npz").is_file():
            return "here"
        incomplete = [folder / f"{entry.name}{suffix}.npz" for suffix in ("_TRAIN_only", "_partial")]
        return "incomplete" if any(path.is_file() for path in incomplete) else "absent"
    if entry.room == "physiome":
        made = sum((folder / "trajectories" / f"{short}.npz").is_file() for short in facts.names())
        parts = [f"{made} of {len(facts.names())} systems as trajectories"] if made else []
        if (folder / "final.zip").is_file() or (folder / "final").is_dir():
            parts.append("published archive")
        return ", ".join(parts) or "absent"
    return "here" if folder.is_dir() and any(folder.iterdir()) else "absent"


def table(root: Path | None = None) -> list[dict[str, Any]]:
    """The catalogue with the state of this machine, as plain rows."""
    return [asdict(entry) | {"state": state(entry, root), "folder": str(room(entry, root))} for entry in entries()]
