"""The app as a process of its own and a browser, started once for all tests that need them.

Test files name it in `pytest_plugins` and import from it too, before pytest can rewrite its
asserts; hence PYTEST_DONT_REWRITE.
"""

import io
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from struct import pack
from types import MappingProxyType
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from vit import checkpoint
from vit.card import Card
from vit.images import Fit, Preprocess
from vit.model import ViT, ViTConfig

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--use-fake-device-for-media-stream",  # a green camera picture
    "--use-fake-ui-for-media-stream",  # and the permission to take it
]
SECONDS = 300  # for the app to start on a busy machine


@dataclass(frozen=True)
class Server:
    url: str
    home: Path
    log: Path
    photos_port: int  # of 127.0.0.1: where this app would download photos and published models;
    # nobody listens there


@dataclass
class Visit:
    """A page and what went on behind it."""

    page: Page
    errors: list[str] = field(default_factory=list)  # on the console, or thrown
    foreign: list[str] = field(default_factory=list)  # requests to other machines


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`python app.py` on a free port, with a folder of its own for checkpoints and uploads.

    Fails when its log holds a traceback out of our own code.
    """
    folder = tmp_path_factory.mktemp("app")
    home = folder / "home"
    save_unsure(home)
    with serving(folder, home, "--mcp") as started:
        yield started
    ours = rf'File "{re.escape(str(ROOT))}/(app\.py|vit/)'  # a .venv may lie in the folder too
    assert not re.search(ours, log := started.log.read_text()), log[-3000:]


class serving:
    """Context manager: the app, serving checkpoints of `home`, from start to end."""

    def __init__(self, folder: Path, home: Path, *arguments: str) -> None:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            other.bind(("127.0.0.1", 0))
            port, photos_port = one.getsockname()[1], other.getsockname()[1]
        self.server = Server(f"http://127.0.0.1:{port}/", home, folder / "app.log", photos_port)
        self.command = [sys.executable, "app.py", "--port", str(port), *arguments]
        self.environment = os.environ | {
            "VIT_HOME": str(home),
            "GRADIO_TEMP_DIR": str(folder / "uploads"),
            "VIT_MAX_PHOTOS": "12",
            "VIT_PHOTOS_URL": f"http://127.0.0.1:{photos_port}/data",
            "VIT_MODELS_URL": f"http://127.0.0.1:{photos_port}/models",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        }

    def __enter__(self) -> Server:
        with self.server.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=self.environment, stdout=log, stderr=log
            )
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self.server

    def _wait(self) -> None:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                urllib.request.urlopen(self.server.url, timeout=5).close()
                return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.1)
        pytest.fail(f"app.py did not answer: {self.server.log.read_text()[-2000:]}")

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def find_chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Debian's chromium, or another one on the PATH, without a window."""
    found = find_chromium()
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("a chromium must be there on CI")
        pytest.skip("needs chromium on the PATH")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Browser, server: Server) -> Iterator[Callable[..., Visit]]:
    """Opens the page, `visit(width=390)`; afterwards nothing may have gone wrong behind it."""
    visits = []

    def open_page(
        width: int = 1280,
        query: str = "",
        url: str = server.url,
        before: Callable[[Page], None] = lambda page: None,
    ) -> Visit:
        page = chromium.new_page(viewport={"width": width, "height": 844}, accept_downloads=True)
        this = Visit(page)
        visits.append(this)
        page.on("pageerror", lambda error: this.errors.append(str(error)))
        page.on("console", lambda m: this.errors.append(m.text) if m.type == "error" else None)
        page.on("request", lambda request: note_foreign(this, request.url))
        before(page)
        page.goto(url + query)
        page.wait_for_selector("#facts p, #facts strong")
        return this

    yield open_page
    for this in visits:
        this.page.close()
        assert not this.errors, this.errors
        assert not this.foreign, this.foreign


def open_tab(page: Page, name: str) -> None:
    tab = page.get_by_role("tab", name=name, exact=True)
    if not tab.is_visible():  # on a narrow screen it may be in Gradio's menu
        page.locator(".overflow-menu > button").first.click()
        tab = page.locator(".overflow-dropdown button", has_text=name)
    tab.click()


LEFT = ("BodyStreamBuffer was aborted", "ERR_INCOMPLETE_CHUNKED_ENCODING", "network error")


def note_error(visit: Visit, text: str) -> None:
    """Of the errors all but those of a page that is left, which breaks off its stream."""
    if not any(words in text for words in LEFT):
        visit.errors.append(text)


def note_foreign(visit: Visit, url: str) -> None:
    if not url.startswith(("http://127.0.0.1:", "data:", "blob:")):
        visit.foreign.append(url)


def save_unsure(home: Path) -> None:
    """A tiny untrained checkpoint that is unsure of everything."""
    save_small(home / "checkpoints" / "sure-of-nothing.safetensors")


def save_small(
    path: Path,
    fit: Fit = "crop",
    classes: Sequence[str] = ("pad_thai", "=risotto"),
    training: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    config = ViTConfig(
        image_size=(32, 32),
        patch_size=(16, 16),
        width=8,
        depth=1,
        heads=1,
        mlp_width=8,
        classes=len(classes),
    )
    card = Card(
        config,
        Preprocess(size=(32, 32), fit=fit),
        tuple(classes),
        title="Sure of nothing",
        unsure_below=1.0,
        training=dict(training),
    )
    checkpoint.save(path, ViT(config), card)


def jpeg(width: int = 320, height: int = 240, colour: str = "peru") -> bytes:
    file = io.BytesIO()
    picture = Image.effect_noise((width, height), 60).convert("RGB")
    Image.blend(picture, Image.new("RGB", picture.size, colour), 0.7).save(file, "JPEG")
    return file.getvalue()


def png(width: int, height: int) -> bytes:
    """A black PNG, one bit a pixel, without ever holding its pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return pack(">I", len(data)) + kind + data + pack(">I", zlib.crc32(kind + data))

    pack_rows = zlib.compressobj(9)
    row = bytes(1 + (width + 7) // 8)
    pixels = b"".join(pack_rows.compress(row * 500) for _ in range(height // 500))
    pixels += pack_rows.compress(row * (height % 500)) + pack_rows.flush()
    header = pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )


SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><rect width="9" height="9"/></svg>'

# What people send that is no photo: (name, what the browser calls it, bytes).
BAD_PHOTOS: dict[str, tuple[str, str, Callable[[], bytes]]] = {
    "text": ("notes.txt", "text/plain", lambda: b"two eggs, flour, salt\n"),
    "text as jpg": ("notes.jpg", "image/jpeg", lambda: b"two eggs, flour, salt\n"),
    "svg": ("drawing.svg", "image/svg+xml", lambda: SVG),
    "svg as jpg": ("drawing.jpg", "image/jpeg", lambda: SVG),
    "empty": ("empty.jpg", "image/jpeg", lambda: b""),
    "truncated": ("half.jpg", "image/jpeg", lambda: jpeg()[:4000]),
    "huge": ("huge.png", "image/png", lambda: png(30_000, 30_000)),
    "strip": ("strip.png", "image/png", lambda: png(1, 2000)),
}
