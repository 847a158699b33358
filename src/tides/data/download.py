"""Downloads that resume where they stopped, and files that are checked before they are used."""

import errno
import hashlib
import http.client
import os
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from tides.data import cache
from tides.errors import DataError

Progress = Callable[[int, int | None], None]
_CHUNK = 1 << 20
_TIMEOUT = 60.0
# Errors of a full disk, as opposed to those of a network.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def download(
    url: str, path: Path, *, size: int | None = None, md5: str | None = None, progress: Progress | None = None
) -> Path:
    """Fetch `url` into `path`; returns at once if the file is there and has the right checksum.

    Data arrives in `<name>.part`, which a second call continues if the server can serve ranges. The file gets its name
    only when its size and checksum are right. If two processes ask for one file, the second one waits.
    """
    _open_only_web(url)
    with cache.lock(path):
        if path.is_file():
            if md5 is None or file_md5(path) == md5:
                return path
            raise DataError(f"{path} does not have the published checksum {md5}; delete it and fetch it again")
        part = path.with_name(f"{path.name}.part")
        try:
            _fetch(url, part, size, progress)
        except HTTPError as error:
            raise DataError(f"{urlsplit(url).netloc} answered {error.code} {error.reason} for {url}") from None
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and error.errno in _NO_ROOM:
                raise DataError(
                    f"{part} cannot be written: {error.strerror}; make room and run again to go on"
                ) from None
            advice = f"put the file into {path.parent} yourself"
            raise DataError(_offline(url, error, advice)) from None
        if size is not None and part.stat().st_size != size:
            raise DataError(
                f"{path.name}: {part.stat().st_size} of {size} bytes arrived; run the same command again to go on"
            )
        if md5 is not None and file_md5(part) != md5:
            part.unlink()
            raise DataError(f"{path.name}: the download does not have the published checksum {md5}; start it again")
        os.replace(part, path)
    return path


def read_text(url: str, advice: str) -> str:
    """A small text, such as a record's description; `advice` says what to do without a network."""
    _open_only_web(url)
    try:
        with urlopen(url, timeout=_TIMEOUT) as response:
            return str(response.read().decode("utf-8"))
    except HTTPError as error:
        raise DataError(f"{urlsplit(url).netloc} answered {error.code} {error.reason} for {url}") from None
    except (OSError, http.client.HTTPException) as error:
        raise DataError(_offline(url, error, advice)) from None


def file_md5(path: Path) -> str:
    """MD5 of a file, as the source publishes it: a check against damage, not against malice."""
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_CHUNK):
            digest.update(block)
    return digest.hexdigest()


def _fetch(url: str, part: Path, size: int | None, progress: Progress | None) -> None:
    """Append the missing rest to `part`."""
    done = part.stat().st_size if part.exists() else 0
    if size is not None and done == size:
        return
    if size is not None and done > size:
        done = 0
    request = Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        response = urlopen(request, timeout=_TIMEOUT)
    except HTTPError as error:
        # 416: the part is at least as long as the file, so it cannot be its beginning.
        if error.code != 416:
            raise
        done = 0
        response = urlopen(url, timeout=_TIMEOUT)
    with response:
        resumed = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {done}-")
        if not resumed:
            done = 0
        length = response.headers.get("Content-Length")
        total = size if size is not None else (done + int(length) if length else None)
        with part.open("ab" if resumed else "wb") as file:
            while block := response.read(_CHUNK):
                file.write(block)
                done += len(block)
                if progress is not None:
                    progress(done, total)
        if length is not None and total is not None and done < total:
            raise URLError("the connection ended early")


def _open_only_web(url: str) -> None:
    if urlsplit(url).scheme not in ("http", "https"):
        raise DataError(f"{url} is not a web address")


def _offline(url: str, error: BaseException, advice: str) -> str:
    reason = error.reason if isinstance(error, URLError) else error
    return f"cannot fetch {url} ({reason}); go online and run the same command again, or {advice}"
