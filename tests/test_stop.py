"""Stop, in a real browser: what was stopped stays stopped, and nothing else is."""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, BrowserContext, Page, expect
from serving import Server, Visit, jpeg, serving
from test_browser import choose, payload

from vit import checkpoint
from vit.card import Card
from vit.images import Preprocess
from vit.model import ViT, ViTConfig

pytest_plugins = ["serving"]
pytestmark = pytest.mark.browser
expect.set_options(timeout=30_000)  # milliseconds; the machine may be busy

Visiting = Callable[..., Visit]


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("notes")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, notes: Path) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("stop")
    start = serving(folder, folder / "home")
    start.command[1:2] = ["-m", "tests.stop_page"]
    start.environment["STOP_NOTES"] = str(notes)
    with start as server:
        yield server
    assert "Traceback" not in (log := server.log.read_text()), log[-3000:]


@pytest.fixture
def page(chromium: Browser, alone: Server, notes: Path) -> Iterator[Page]:
    for note in notes.iterdir():
        note.unlink()
    context = chromium.new_context()
    yield opened(context, alone)
    context.close()


def opened(context: BrowserContext, server: Server) -> Page:
    page = context.new_page()
    page.goto(server.url)
    expect(page.get_by_role("button", name="One")).to_be_visible()
    return page


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def answer(page: Page) -> str:
    return page.locator("#answer textarea, #answer input").first.input_value()


def expect_answer(page: Page, text: str) -> None:
    expect(page.locator("#answer textarea, #answer input").first).to_have_value(text)


def expect_stopped(page: Page) -> None:
    """When all answers have come; a busy browser shows them one by one, whose ever they are."""
    since, end = time.monotonic(), time.monotonic() + 15
    while time.monotonic() - since < 0.7:
        if answer(page) != "Stopped." or page.get_by_role("button", name="Stop").count():
            since = time.monotonic()
        assert time.monotonic() < end, answer(page)
        page.wait_for_timeout(20)  # milliseconds


def counting(page: Page, what: str) -> None:
    page.wait_for_function(
        "what => document.querySelector('#answer textarea, #answer input').value.startsWith(what)",
        arg=what,
    )


def ended(notes: Path, what: str) -> int:
    return len(list(notes.glob(f"{what}-*")))


def test_stopped_is_the_last_word(page: Page, notes: Path) -> None:
    """Whenever it is pressed; and what was stopped can be had again."""
    stop = page.get_by_role("button", name="Stop", exact=True)
    for attempt in range(12):
        press(page, "One")
        counting(page, "one: ")
        page.wait_for_timeout(7 * attempt)  # milliseconds
        stop.click()
        expect_answer(page, "Stopped.")
        expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    expect_stopped(page)
    assert ended(notes, "one-closed") == 12
    (notes / "finish").touch()
    press(page, "One")  # a press when all had ended means nothing
    expect_answer(page, "one: done")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)


def test_what_waits_is_stopped_and_what_is_asked_later_is_not(page: Page, notes: Path) -> None:
    press(page, "One")
    counting(page, "one: ")
    press(page, "Other")  # waits for its turn
    page.get_by_label("Said").fill(" again")
    press(page, "One")  # waits for the first
    press(page, "Stop")
    expect_stopped(page)
    assert ended(notes, "other") == 0 and ended(notes, "one") == 1
    press(page, "One")
    counting(page, "one again: ")
    page.get_by_label("Said").fill(" at last")
    press(page, "One")
    (notes / "finish").touch()
    expect_answer(page, "one at last: done")  # afterwards, with what was there then
    assert ended(notes, "one-done") == 2


def test_only_this_page_and_only_what_can_be_stopped(
    page: Page, alone: Server, notes: Path
) -> None:
    """Of two pages of one visitor. And answers to other questions come all the same."""
    twin = opened(page.context, alone)
    press(page, "One")
    press(twin, "Third")
    counting(page, "one: ")
    counting(twin, "third: ")
    page.get_by_label("Said").fill("you")
    press(page, "Echo")
    press(page, "Stop")
    expect_answer(page, "Stopped.")
    expect(page.locator("#heard textarea, #heard input").first).to_have_value("heard you")
    assert ended(notes, "one") == 1
    (notes / "finish").touch()
    expect_answer(twin, "third: done")


def test_a_closed_page_ends_what_it_had_running(page: Page, alone: Server, notes: Path) -> None:
    other = opened(page.context, alone)
    press(other, "One")
    counting(other, "one: ")
    other.close()
    press(page, "Other")
    counting(page, "other: ")  # the line is free
    end = time.monotonic() + 10
    while not ended(notes, "one") and time.monotonic() < end:
        time.sleep(0.05)
    assert ended(notes, "one-closed") == 1


# --- In its places ----------------------------------------------------------------------------


def test_nothing_is_cancelled_the_other_way(server: Server) -> None:
    with urllib.request.urlopen(f"{server.url}config", timeout=30) as answer:
        listeners = json.load(answer)["dependencies"]
    assert len(listeners) > 50 and not [each for each in listeners if each["cancels"]]


@pytest.fixture
def slow(server: Server) -> Iterator[str]:
    """A model that takes a good while for a photo: its patches are many."""
    config = ViTConfig(patch_size=(8, 8), width=96, depth=8, heads=3, mlp_width=192, classes=2)
    path = server.home / "checkpoints" / "slow.safetensors"
    torch.manual_seed(0)
    model = ViT(config)
    for parameter in model.head.parameters():
        torch.nn.init.normal_(parameter)
    checkpoint.save(path, model, Card(config, Preprocess(), ("pad_thai", "risotto")))
    yield "slow"
    path.unlink()


# At once when it is there: on a fast machine it soon goes again.
PRESS_STOP = """() => {
  const seen = (each) => each.checkVisibility() && each.textContent.trim() === "Stop";
  const button = [...document.querySelectorAll("button.ends")].find(seen);
  button?.click();
  return Boolean(button);
}"""


def test_many_photos_and_tests_of_a_map(visit: Visiting, slow: str) -> None:
    page = visit().page
    # Stop is seen at once, not only after a second.
    page.add_style_tag(content=".ends { animation: none !important; }")
    choose(page, slow)
    page.get_by_text("Many photos at once").click()
    page.locator("#many input[type=file]").set_input_files(
        [payload(f"{n}.jpg", "image/jpeg", jpeg()) for n in range(12)]
    )
    page.wait_for_function(PRESS_STOP)
    expect(page.locator("#many-status")).to_have_text("Stopped; what was done so far is below.")
    expect(page.locator("#many .ends")).to_have_count(0)
    page.locator("#photo input[type=file]").set_input_files(
        payload("photo.jpg", "image/jpeg", jpeg())
    )
    page.wait_for_selector("#result .note")
    page.get_by_role("tab", name="Attention").click()
    expect(page.locator("#wall button")).to_have_count(24)
    for opens, asks, result in (
        (None, "Is this map faithful? Test it", "#faithful"),
        ("Compare the ways of looking", "Compare them on this photo", "#compared"),
        ("Deletion and insertion curves", "Take patches away, and add them", "#curves"),
    ):
        if opens:
            page.get_by_role("button", name=opens).click()
        page.get_by_role("button", name=asks).click()
        page.wait_for_function(PRESS_STOP)
        expect(page.locator(result)).to_have_text("Stopped.")
        expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    page.wait_for_timeout(600)  # milliseconds: longer than a step
    for result in ("#faithful", "#compared", "#curves"):
        expect(page.locator(result)).to_have_text("Stopped.")
