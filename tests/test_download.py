"""The course's photos from a server on this machine that behaves well, badly, or not at all."""

import http.server
import io
import re
import threading
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from vit import fetch
from vit.data import open_data
from vit.download import CLASSES, DownloadError, download_pizza_steak_sushi


def course_zip(train: int = 225, test: int = 75, more: dict[str, bytes] | None = None) -> bytes:
    """A zip of tiny JPEGs with the course's folders, no two of them the same."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for split, count in (("train", train), ("test", test)):
            for number in range(count):
                name = f"{split}/{CLASSES[number % 3]}/{number}.jpg"
                photo = io.BytesIO()
                Image.new("RGB", (8, 8)).save(photo, "JPEG", comment=name.encode())
                archive.writestr(name, photo.getvalue())
        for name, content in (more or {}).items():
            archive.writestr(name, content)
    return packed.getvalue()


WHOLE = course_zip()


class Server(http.server.ThreadingHTTPServer):
    """Sends `body`, or the file of `files` whose path ends like the one asked for; `cuts` are the
    bytes after which the first connections break."""

    daemon_threads = True
    body = WHOLE
    files: dict[str, bytes] = {}
    headers: dict[str, str] = {}  # more of them
    moved = ""  # where each path leads at first, with those headers
    cuts: list[int] = []
    ranges = True
    status = 200
    kind = "application/zip"
    claim = 0  # bytes promised beyond those there are
    tag = '"one"'

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []  # Range header of each request

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: who has heard enough closes the connection, and stderr is what tests read."""

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/data"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        assert isinstance(self.server, Server)
        server, asked = self.server, self.headers.get("Range", "")
        if server.moved and not self.path.startswith(server.moved):
            self.send_response(302)
            self.send_header("Location", server.moved + self.path)
            self._more()
            return
        server.asked.append(asked)
        named = [name for name in server.files if self.path.endswith(name)]
        body = server.files[named[0]] if named else server.body
        if server.files and not named:
            self.send_error(404)
            return
        start = 0
        if asked and server.ranges and self.headers.get("If-Range", server.tag) == server.tag:
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1])  # type: ignore[index]
        rest = body[start:]
        self.send_response((206 if rest else 416) if start else server.status)
        self.send_header("Content-Type", server.kind)
        self.send_header("Content-Length", str(len(rest) + server.claim))
        self.send_header("ETag", server.tag)
        if start:
            part = f"{start}-{len(body) - 1}" if rest else "*"
            self.send_header("Content-Range", f"bytes {part}/{len(body)}")
        self._more()
        self.wfile.write(rest[: server.cuts.pop(0)] if server.cuts else rest)

    def _more(self):
        assert isinstance(self.server, Server)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format, *args):
        pass


@pytest.fixture(name="server")
def local_server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(fetch, "PAUSE", 0)
    with Server() as server:
        server.cuts = []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def refused(server: Server, folder: Path, match: str) -> None:
    """The download fails with one sentence and leaves nothing behind."""
    with pytest.raises(DownloadError, match=match) as error:
        download_pizza_steak_sushi(folder, base=server.base)
    assert "\n" not in str(error.value) and str(error.value).endswith(".")
    assert list(folder.iterdir()) == []


def test_complete_then_nothing_to_do(server, vit_home):
    seen = []
    folder = download_pizza_steak_sushi(
        base=server.base, progress=lambda done, total: seen.append((done, total))
    )
    assert folder == vit_home / "data" / "pizza_steak_sushi"
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]  # the zip is gone
    assert seen[-1] == (len(WHOLE), len(WHOLE)) and seen == sorted(seen)
    data = open_data(folder)
    assert data.classes == CLASSES and data.test is not None
    assert (len(data.train) + len(data.val), len(data.test)) == (225, 75)
    assert data.skipped == ()

    assert download_pizza_steak_sushi(base=server.base) == folder
    assert len(server.asked) == 1


def test_larger_variant(server, tmp_path):
    server.body = course_zip(450, 150)
    folder = download_pizza_steak_sushi(tmp_path / "new", "20_percent", base=server.base)
    assert folder == tmp_path / "new" / "pizza_steak_sushi_20_percent"
    assert len(list(folder.glob("*/*/*.jpg"))) == 600
    with pytest.raises(ValueError, match="10_percent and 20_percent"):
        download_pizza_steak_sushi(tmp_path, "all", base=server.base)  # type: ignore[arg-type]


def test_goes_on_where_it_broke(server, tmp_path):
    server.cuts = [len(WHOLE) // 2, len(WHOLE) // 4]
    folder = download_pizza_steak_sushi(tmp_path, base=server.base)
    assert len(list(folder.glob("*/*/*.jpg"))) == 300
    starts = [int(asked[6:-1]) for asked in server.asked[1:]]
    expected = [len(WHOLE) / 2, len(WHOLE) * 3 / 4]
    assert all(0 <= e - s < 2 * fetch.PIECE for s, e in zip(starts, expected, strict=True))


def test_starts_again_where_the_server_cannot_go_on(server, tmp_path):
    server.cuts, server.ranges = [len(WHOLE) // 2], False
    folder = download_pizza_steak_sushi(tmp_path, base=server.base)
    assert len(list(folder.glob("*/*/*.jpg"))) == 300


def test_a_file_that_changed_meanwhile_is_not_patched_together(server, tmp_path):
    server.cuts = [len(WHOLE) // 2]

    def change(done: int, total: int | None) -> None:
        server.tag = '"two"'

    folder = download_pizza_steak_sushi(tmp_path, progress=change, base=server.base)
    assert len(list(folder.glob("*/*/*.jpg"))) == 300
    assert len(server.asked) == 2


def test_keeps_breaking(server, tmp_path):
    server.cuts = [fetch.PIECE + 100] * 20
    refused(server, tmp_path, r"broke off after 0\.1 of 0\.2 MB, 6 times")


def test_promises_more_than_there_is(server, tmp_path):
    server.claim = 500
    refused(server, tmp_path, "broke off")


def test_promises_less_than_there_is(server, tmp_path):
    server.claim = -500
    refused(server, tmp_path, "did not arrive as a whole zip")


def test_a_web_page_instead(server, tmp_path):
    server.kind = "text/html; charset=utf-8"
    refused(server, tmp_path, "sent a web page instead of a zip")
    server.kind, server.body = "application/zip", b"<html>Please sign in</html>"
    refused(server, tmp_path, "did not arrive as a whole zip")


def test_gone_or_overloaded(server, tmp_path):
    server.status = 404
    refused(server, tmp_path, "answered 404")
    assert len(server.asked) == 1
    server.status = 503
    refused(server, tmp_path, "overloaded")


def test_no_network(server, tmp_path):
    server.server_close()  # nobody listens any more
    refused(server, tmp_path, r"127\.0\.0\.1:\d+ cannot be reached")


def test_wrong_contents(server, tmp_path):
    server.body = course_zip(224)
    refused(server, tmp_path, "224 training and 75 test photos instead of 225 and 75")
    server.body = course_zip(224, more={"train/tacos/1.jpg": b"x"})
    refused(server, tmp_path, "224 training")
    damaged = bytearray(WHOLE)
    damaged[400] ^= 255  # inside the first photo, so its checksum no longer fits
    server.body = bytes(damaged)
    refused(server, tmp_path, "did not arrive as a whole zip")


def test_nothing_is_written_outside(server, tmp_path):
    folder = tmp_path / "data"
    server.body = course_zip(more={"../evil.jpg": b"x", "/train/pizza/evil.jpg": b"x"})
    target = download_pizza_steak_sushi(folder, base=server.base)
    assert len(list(target.rglob("*.*"))) == 300
    assert [p.name for p in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_an_interruption_leaves_nothing(server, tmp_path, stop):
    def interrupt(done: int, total: int | None) -> None:
        raise stop

    with pytest.raises(stop):
        download_pizza_steak_sushi(tmp_path, progress=interrupt, base=server.base)
    assert list(tmp_path.iterdir()) == []


def test_what_a_person_put_there_is_not_touched(server, tmp_path):
    target = tmp_path / "pizza_steak_sushi"
    target.mkdir()
    assert download_pizza_steak_sushi(tmp_path, base=server.base) == target  # it was empty
    (target / "train" / "pizza" / "0.jpg").unlink()
    with pytest.raises(DownloadError, match="224 training and 75 .* remove it"):
        download_pizza_steak_sushi(tmp_path, base=server.base)
    assert len(list(target.glob("*/*/*.jpg"))) == 299
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    with pytest.raises(DownloadError, match="cannot be written"):
        download_pizza_steak_sushi(blocked / "data", base=server.base)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "pizza_steak_sushi").write_bytes(b"")
    with pytest.raises(DownloadError, match="in the way"):
        download_pizza_steak_sushi(tmp_path / "other", base=server.base)
