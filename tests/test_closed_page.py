"""A page that is closed leaves nothing of its photo in the app's memory."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from serving import Server, serving

pytest_plugins = ["serving"]
pytestmark = pytest.mark.browser
expect.set_options(timeout=30_000)  # milliseconds; the machine may be busy

PIZZA = Path(__file__).parents[1] / "examples" / "pizza_margherita.jpg"
STEAK = PIZZA.with_name("steak_frites.jpg")
PATIENCE = 40  # seconds until a closed page is noticed


class Kept:
    """How many photos' looks and readings the app keeps."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes

    def now(self) -> tuple[int, ...]:
        return tuple(map(int, self.notes.read_text().split()))

    def become(self, looks: int, insides: int) -> None:
        end = time.monotonic() + PATIENCE
        while self.now() != (looks, insides) and time.monotonic() < end:
            time.sleep(0.05)
        assert self.now() == (looks, insides)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Kept]]:
    folder = tmp_path_factory.mktemp("kept")
    start = serving(folder, folder / "home")
    start.command[1:2] = ["-m", "tests.kept_page"]
    start.environment["KEPT_NOTES"] = str(folder / "notes")
    with start as server:
        yield server, Kept(folder / "notes")
    assert "Traceback" not in (log := server.log.read_text()), log[-3000:]


@pytest.fixture
def kept(app: tuple[Server, Kept]) -> Iterator[Kept]:
    app[1].become(0, 0)
    yield app[1]
    app[1].become(0, 0)  # all pages are closed by now


@pytest.fixture
def context(chromium: Browser, kept: Kept) -> Iterator[BrowserContext]:
    context = chromium.new_context()
    yield context
    context.close()


@pytest.fixture
def opened(app: tuple[Server, Kept], context: BrowserContext) -> Callable[..., Page]:
    """Opens a page on a photo, in both tabs that keep something of it."""

    def open_page(photo: Path = PIZZA) -> Page:
        page = context.new_page()
        page.goto(app[0].url)
        expect(page.locator("#facts strong").first).to_be_visible()
        page.locator("#photo input[type=file]").set_input_files(photo)
        expect(page.locator("#result .note")).to_contain_text("ms")
        look(page)
        return page

    return open_page


def look(page: Page) -> None:
    page.get_by_role("tab", name="Patches").click()
    expect(page.locator("#patch-grid svg")).to_be_visible()
    page.get_by_role("tab", name="Attention").click()
    expect(page.locator("#look-photo .frame img")).to_be_visible()


def test_the_last_who_looks_at_a_photo_takes_it_along(
    opened: Callable[..., Page], kept: Kept
) -> None:
    one, two = opened(), opened()
    kept.become(1, 1)
    three = opened(STEAK)
    kept.become(2, 2)
    one.close()
    time.sleep(1)
    assert kept.now() == (2, 2)
    two.close()
    kept.become(1, 1)
    three.goto("about:blank")
    kept.become(0, 0)


def test_a_reload_is_another_page(opened: Callable[..., Page], kept: Kept) -> None:
    page = opened()
    kept.become(1, 1)
    page.evaluate("sessionStorage.clear()")  # or it would look at its photo again
    page.reload()
    expect(page.locator("#facts strong").first).to_be_visible()
    kept.become(0, 0)


def test_closed_while_it_is_looked_at(opened: Callable[..., Page], kept: Kept) -> None:
    """What comes too late for a closed page goes at the latest with the next one."""
    for wait in (0, 30, 100):  # milliseconds
        page = opened()
        page.get_by_role("tab", name="Classify").click()
        page.locator("#photo input[type=file]").set_input_files(STEAK)
        page.get_by_role("tab", name="Attention").click()
        page.wait_for_timeout(wait)
        page.close()
    last = opened()
    last.close()
    kept.become(0, 0)
