"""Downloads against a server on this machine: whole, resumed, damaged, refused, away; and a Zenodo record."""

import functools
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tides.data import catalogue
from tides.data.download import download
from tides.data.verify import verify
from tides.data.zenodo import fetch_record, record_files
from tides.errors import DataError

BODY = bytes(range(256)) * 40
MD5 = hashlib.md5(BODY, usedforsecurity=False).hexdigest()


class Site:
    """What the server does, and what it saw."""

    def __init__(self) -> None:
        self.ranges: list[str | None] = []
        self.serve_ranges = True
        self.cut_after: int | None = None
        self.names = ["final.zip"]
        self.url = ""


class Handler(BaseHTTPRequestHandler):
    def __init__(self, site: Site, *args: object) -> None:
        self.site = site
        super().__init__(*args)  # type: ignore[arg-type]

    def log_message(self, *args: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        if self.path.startswith("/api/records/"):
            self._answer(200, self._record())
        elif self.path.startswith("/missing"):
            self.send_error(404)
        else:
            self._file()

    def _file(self) -> None:
        asked = self.headers.get("Range")
        self.site.ranges.append(asked)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.site.serve_ranges else 0
        if start >= len(BODY):
            self.send_error(416)
            return
        extra = {"Content-Range": f"bytes {start}-{len(BODY) - 1}/{len(BODY)}"} if start else {}
        self._answer(206 if start else 200, BODY[start:], extra)

    def _record(self) -> bytes:
        files = [
            {
                "key": name,
                "size": len(BODY),
                "checksum": f"md5:{MD5}",
                "links": {"self": f"{self.site.url}/file"},
            }
            for name in self.site.names
        ]
        return json.dumps({"files": files}).encode()

    def _answer(self, status: int, body: bytes, extra: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for key, value in (extra or {}).items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body if self.site.cut_after is None else body[: self.site.cut_after])


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, site))  # type: ignore[arg-type]
    site.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield site
    server.shutdown()
    server.server_close()
    thread.join()


def test_whole_file(site: Site, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    path = download(
        f"{site.url}/file", tmp_path / "f", size=len(BODY), md5=MD5, progress=lambda d, t: seen.append((d, t))
    )
    assert path.read_bytes() == BODY
    assert seen[-1] == (len(BODY), len(BODY))
    download(f"{site.url}/file", tmp_path / "f", md5=MD5)
    assert len(site.ranges) == 1  # the second call found the file


def test_goes_on_where_it_stopped(site: Site, tmp_path: Path) -> None:
    site.cut_after = 3000
    with pytest.raises(DataError, match="run the same command again"):
        download(f"{site.url}/file", tmp_path / "f", size=len(BODY), md5=MD5)
    assert not (tmp_path / "f").exists()
    assert (tmp_path / "f.part").stat().st_size == 3000
    site.cut_after = None
    assert download(f"{site.url}/file", tmp_path / "f", size=len(BODY), md5=MD5).read_bytes() == BODY
    assert site.ranges == [None, "bytes=3000-"]
    assert not (tmp_path / "f.part").exists()


def test_starts_over_where_ranges_are_not_served(site: Site, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(b"other bytes")
    site.serve_ranges = False
    assert download(f"{site.url}/file", tmp_path / "f", md5=MD5).read_bytes() == BODY


@pytest.mark.parametrize("size", [None, len(BODY)])
def test_a_part_that_is_too_long_is_fetched_again(site: Site, tmp_path: Path, size: int | None) -> None:
    (tmp_path / "f.part").write_bytes(BODY + b"more")
    assert download(f"{site.url}/file", tmp_path / "f", size=size, md5=MD5).read_bytes() == BODY


def test_wrong_checksum_never_counts(site: Site, tmp_path: Path) -> None:
    wrong = "0" * 32
    with pytest.raises(DataError, match="does not have the published checksum 000"):
        download(f"{site.url}/file", tmp_path / "f", md5=wrong)
    assert not list(tmp_path.glob("f*"))
    (tmp_path / "f").write_bytes(b"mine")
    with pytest.raises(DataError, match="delete it and fetch it again"):
        download(f"{site.url}/file", tmp_path / "f", md5=MD5)
    assert (tmp_path / "f").read_bytes() == b"mine"


def test_errors_are_one_line(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="answered 404"):
        download(f"{site.url}/missing", tmp_path / "f")
    with pytest.raises(DataError, match="is not a web address"):
        download("file:///etc/hostname", tmp_path / "f")
    with pytest.raises(DataError, match=r"cannot fetch http://127\.0\.0\.1:9/f .*go online") as error:
        download("http://127.0.0.1:9/f", tmp_path / "f")
    assert "\n" not in str(error.value)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_full_disk_is_no_missing_network(site: Site, tmp_path: Path) -> None:
    (tmp_path / "f.part").symlink_to("/dev/full")
    with pytest.raises(DataError, match=r"f\.part cannot be written: No space left on device; make room"):
        download(f"{site.url}/f", tmp_path / "f")


def test_two_threads_ask_for_one_file(site: Site, tmp_path: Path) -> None:
    get = functools.partial(download, f"{site.url}/file", tmp_path / "f", size=len(BODY), md5=MD5)
    threads = [threading.Thread(target=get) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "f").read_bytes() == BODY
    assert len(site.ranges) == 1


def test_zenodo_record(site: Site, tmp_path: Path) -> None:
    paths = catalogue.get("physiome", tmp_path, site=site.url)
    assert paths == [tmp_path / "physiome" / "final.zip"]
    assert paths[0].read_bytes() == BODY
    assert (tmp_path / "physiome" / "final.zip.md5").read_text() == f"{MD5}  final.zip\n"
    assert [file.size for file in record_files(1, tmp_path, site.url)] == [len(BODY)]


@pytest.mark.parametrize("note", [b"", b"\xff\xfe", b"0" * 32])
def test_a_damaged_note_of_the_checksum_vouches_for_nothing(site: Site, tmp_path: Path, note: bytes) -> None:
    (path,) = catalogue.get("physiome", tmp_path, site=site.url)
    path.with_name("final.zip.md5").write_bytes(note)
    (check,) = verify(catalogue.find("physiome"), tmp_path)
    assert not check.good
    assert "checksum" in check.detail


@pytest.mark.parametrize("name", ["../evil", "a/b", ".hidden", "c\\d"])
def test_zenodo_names_stay_in_the_folder(site: Site, tmp_path: Path, name: str) -> None:
    site.names = [name]
    with pytest.raises(DataError, match="refusing the file name"):
        fetch_record(1, tmp_path, site=site.url)


def test_zenodo_away(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot fetch .*download the files of .*records/7 by hand into"):
        record_files(7, tmp_path, "http://127.0.0.1:9")
