"""Published models in the page: listed, fetched into the picker, used in every tab."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import timm
from homes import google_file, scatter
from playwright.sync_api import Page, expect
from serving import Server, Visit

pytest_plugins = ["serving"]
expect.set_options(timeout=15_000)  # milliseconds; the machine may be busy

Visiting = Callable[..., Visit]
PIZZA = Path(__file__).parents[1] / "examples" / "pizza_margherita.jpg"


class Mirror(ThreadingHTTPServer):
    """Has one file under any name that ends as r50-b16's does; its second half once `go_on` is
    set."""

    daemon_threads = True

    def __init__(self, port: int, body: bytes) -> None:
        super().__init__(("127.0.0.1", port), Files)
        self.body = body
        self.go_on = threading.Event()


class Files(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_error(404)

    def do_GET(self) -> None:
        assert isinstance(self.server, Mirror)
        if not self.path.endswith("/models/r50-b16.npz"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        half = len(self.server.body) // 2
        self.wfile.write(self.server.body[:half])
        self.server.go_on.wait(20)
        self.wfile.write(self.server.body[half:])

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def mirror(port: int, body: bytes) -> Iterator[Mirror]:
    with Mirror(port, body) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.go_on.set()
            server.shutdown()
            thread.join()


def fits_the_window(page: Page) -> bool:
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def choose(page: Page, box: str, option: str) -> None:
    page.locator(f"{box} input").click()
    page.get_by_role("option", name=option).click()


def test_without_a_network_it_is_said(visit: Visiting) -> None:
    page = visit(390).page
    page.get_by_role("button", name="More models").click()
    expect(page.locator("#published-status")).to_contain_text("cannot be reached from here now")
    expect(page.locator("#published-name")).to_be_hidden()
    assert fits_the_window(page)
    page.get_by_role("button", name="Fewer models").click()
    expect(page.locator("#published")).to_be_hidden()


def test_a_published_hybrid_is_fetched_and_looked_into(
    visit: Visiting, server: Server, tmp_path: Path
) -> None:
    theirs = timm.create_model(
        "vit_tiny_r_s16_p8_224", depth=2, num_classes=1000, img_size=96, embed_dim=64, num_heads=1
    )
    file = google_file(tmp_path / "a.npz", scatter(theirs))
    page = visit().page
    try:
        with mirror(server.photos_port, file.read_bytes()) as source:
            page.get_by_role("button", name="More models").click()
            choose(page, "#published-name", "ViT-Ti/16, AugReg")
            page.get_by_role("button", name="Get it").click()
            expect(page.locator("#published .trouble")).to_contain_text("answered 404")
            choose(page, "#published-name", "R50+ViT-B/16")
            get = page.get_by_role("button", name="Get it")
            get.click()
            expect(page.locator("#published-status")).to_contain_text("downloaded")
            page.locator("#published").get_by_role("button", name="Stop").click()
            expect(page.locator("#published-status")).to_have_text("Stopped.")
            page.wait_for_timeout(600)  # milliseconds: two looks at the download
            expect(page.locator("#published-status")).to_have_text("Stopped.")
            source.go_on.set()
            get.click()
            expect(page.locator("#published-status")).to_contain_text("is in the list of models")
        choose(page, "#checkpoint", "r50-b16")
        expect(page.locator("#facts")).to_contain_text("1,000 classes")
        page.locator("#photo input[type=file]").first.set_input_files(PIZZA)
        expect(page.locator("#result .dishes li")).to_have_count(5)
        page.get_by_role("tab", name="Attention").click()
        expect(page.get_by_text("through all 2 layers")).to_be_visible()
        page.get_by_role("tab", name="Patches").click()
        expect(page.get_by_text("3 × 3").first).to_be_visible()
        assert fits_the_window(page)
    finally:
        (server.home / "checkpoints" / "r50-b16.safetensors").unlink(missing_ok=True)
