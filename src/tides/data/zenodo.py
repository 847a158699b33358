"""Files of a Zenodo record, with the sizes and checksums that Zenodo publishes."""

import json
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tides.atomic import atomic_write
from tides.data.download import Progress, download, read_text
from tides.errors import DataError

SITE = "https://zenodo.org"


class ZenodoFile(NamedTuple):
    """One file of a record."""

    name: str
    url: str
    size: int
    md5: str


def record_files(record: int, folder: Path, site: str = SITE) -> list[ZenodoFile]:
    """What a record holds; `folder` is where its files are meant to go."""
    url = f"{site}/api/records/{record}"
    text = read_text(url, f"download the files of {site}/records/{record} by hand into {folder}")
    try:
        entries = json.loads(text)["files"]
        files = [
            ZenodoFile(str(entry["key"]), str(entry["links"]["self"]), int(entry["size"]), _md5(str(entry["checksum"])))
            for entry in entries
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{url} did not describe a record as expected: {error!r}") from None
    for file in files:
        # The name becomes a path on this machine.
        if PurePosixPath(file.name).name != file.name or "\\" in file.name or file.name.startswith("."):
            raise DataError(f"{url}: refusing the file name {file.name!r}")
    return files


def fetch_record(record: int, folder: Path, *, site: str = SITE, progress: Progress | None = None) -> list[Path]:
    """Download every file of a record into `folder`, checked, with its checksum kept beside it."""
    paths = []
    for file in record_files(record, folder, site):
        path = folder / file.name
        folder.mkdir(parents=True, exist_ok=True)
        download(file.url, path, size=file.size, md5=file.md5, progress=progress)
        with atomic_write(path.with_name(f"{file.name}.md5")) as note:
            note.write(f"{file.md5}  {file.name}\n".encode())
        paths.append(path)
    return paths


def _md5(checksum: str) -> str:
    kind, _, digest = checksum.partition(":")
    if kind != "md5" or len(digest) != 32:
        raise ValueError(f"checksum {checksum!r} is not an MD5")
    return digest
