"""One file from a server that is fine, breaks off, or sends something else than it should."""

import base64
import hashlib
import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from test_download import Server, local_server  # noqa: F401  (a fixture)

from vit import fetch as module
from vit.fetch import DownloadError, fetch

BODY = np.random.default_rng(0).bytes(200_000)
SHA = hashlib.sha256(BODY).hexdigest()
MD5 = hashlib.md5(BODY).digest()


@pytest.fixture(autouse=True)
def filled(server: Server) -> None:
    server.body, server.kind, server.headers = BODY, "application/octet-stream", {}


def get(server: Server, folder: Path, **more) -> str:
    return fetch(f"{server.base}/a.bin", folder / "a.bin", "weights", 10**6, **more)


def refused(server: Server, folder: Path, match: str, **more) -> None:
    """One sentence, and no file under the wanted name."""
    with pytest.raises(DownloadError, match=match) as error:
        get(server, folder, **more)
    assert "\n" not in str(error.value) and str(error.value).endswith(".")
    assert not (folder / "a.bin").exists()


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("headers", "more", "checked"),
    [
        ({}, {}, "size as told by its server"),
        ({}, {"sha256": SHA}, "size and SHA-256 as published"),
        ({}, {"sha256": SHA[:8], "size": len(BODY)}, "size and SHA-256 as published"),
        ({"X-Linked-ETag": f'"{SHA}"'}, {}, "size and SHA-256 as told by its server"),
        (
            {"x-goog-hash": f"crc32c=AAAAAA==,md5={base64.b64encode(MD5).decode()}"},
            {},
            "size and MD5 as told by its server",
        ),
    ],
)
def test_whole_and_checked(server, tmp_path, headers, more, checked):
    server.headers = headers
    seen: list[tuple[int, int | None]] = []
    told = get(server, tmp_path, progress=lambda *step: seen.append(step), **more)
    assert told == checked
    assert (tmp_path / "a.bin").read_bytes() == BODY
    assert leftovers(tmp_path) == ["a.bin"]
    assert seen[-1] == (len(BODY), len(BODY))


def test_what_a_hub_tells_before_it_leads_elsewhere_counts(server, tmp_path):
    server.moved, server.headers = "/elsewhere", {"X-Linked-ETag": f'"{SHA}"'}
    assert get(server, tmp_path) == "size and SHA-256 as told by its server"


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_call_is_taken_up_by_the_next(server, tmp_path, stop):
    def interrupt(done: int, total: int | None) -> None:
        if done > len(BODY) / 2:
            raise stop

    with pytest.raises(stop):
        get(server, tmp_path, progress=interrupt)
    assert not (tmp_path / "a.bin").exists()
    get(server, tmp_path, sha256=SHA)
    assert (tmp_path / "a.bin").read_bytes() == BODY
    assert int(server.asked[-1][6:-1]) >= len(BODY) / 2


def test_all_there_but_the_name(server, tmp_path):
    (tmp_path / "a.bin.part").write_bytes(BODY)
    (tmp_path / "a.bin.tag").write_text(server.tag)
    get(server, tmp_path, sha256=SHA)
    assert leftovers(tmp_path) == ["a.bin"]
    assert server.asked == [f"bytes={len(BODY)}-"]


def test_another_file_under_the_same_address_is_fetched_from_its_start(server, tmp_path):
    (tmp_path / "a.bin.part").write_bytes(b"older" * 1000)
    (tmp_path / "a.bin.tag").write_text('"older"')
    get(server, tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == BODY


def test_broken_off_for_good_keeps_what_came(server, tmp_path):
    server.cuts = [module.PIECE + 100] * 20
    refused(server, tmp_path, r"broke off after 0\.1 of 0\.2 MB, 6 times")
    server.cuts = []
    get(server, tmp_path, sha256=SHA)
    assert int(server.asked[-1][6:-1]) > 0


def test_promises_more_than_there_is(server, tmp_path):
    server.claim = 500
    refused(server, tmp_path, "broke off")


def test_promises_less_than_there_is(server, tmp_path):
    server.claim, server.headers = -500, {"X-Linked-ETag": f'"{SHA}"'}
    refused(server, tmp_path, f"and {SHA[:8]} is told by its server; try again")
    assert leftovers(tmp_path) == []
    refused(server, tmp_path, "199,500 bytes instead of the 200,000 published", size=len(BODY))


def test_another_file_than_published(server, tmp_path):
    refused(server, tmp_path, "SHA-256 starts with .* and 00000000 is published", sha256="0" * 64)
    assert leftovers(tmp_path) == []


def test_a_web_page_instead(server, tmp_path):
    server.kind = "text/html; charset=utf-8"
    refused(server, tmp_path, "sent a web page instead of weights")
    server.kind, server.body = "application/octet-stream", b"\n<!DOCTYPE html><p>Sign in</p>"
    refused(server, tmp_path, "sent a web page instead of weights")
    assert leftovers(tmp_path) == []


def test_too_large(server, tmp_path):
    with pytest.raises(DownloadError, match="far too large to be weights"):
        fetch(f"{server.base}/a.bin", tmp_path / "a.bin", "weights", 10**5)


def test_a_full_disk_is_noticed_before_it_is_full(server, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**6, 10**6, 1000))
    refused(server, tmp_path, "but only 0 are free in .*; make room there")


@pytest.mark.parametrize("url", ["ftp://a/b", "http://", "nonsense"])
def test_no_address(tmp_path, url):
    with pytest.raises(DownloadError, match=r"is no address on the web; check it\."):
        fetch(url, tmp_path / "a.bin", "weights", 10**6)
    assert leftovers(tmp_path) == []


def test_no_network(server, tmp_path):
    server.server_close()
    refused(server, tmp_path, "cannot be reached, or is overloaded; check the network")
    assert leftovers(tmp_path) == []
