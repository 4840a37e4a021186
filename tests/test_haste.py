"""Visitors in a hurry, in a real browser: whatever comes late, the last choice is what stays."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest
from playwright.sync_api import Page, Route, expect
from serving import Server, Visit, jpeg, save_small
from test_browser import choose, first_dish, payload, send, shown_picture

pytest_plugins = ["serving"]
pytestmark = pytest.mark.browser
expect.set_options(timeout=15_000)  # milliseconds; the machine may be busy

Visiting = Callable[..., Visit]
PIZZA = Path(__file__).parents[1] / "examples" / "pizza_margherita.jpg"
WHOLE, SQUARE = "whole photo", "square crop"


@pytest.fixture
def pizza(shared_data: Path) -> Path:
    return shared_data / "pizza_steak_sushi" / "test" / "pizza" / "1152100.jpg"


class Held:
    """Keeps back what the page asks the app, as a slow network does, from `start` to `release`."""

    def __init__(self, about: Callable[[list], object] = lambda data: True) -> None:
        self.about, self.routes, self.holding = about, list[Route](), True

    def start(self, page: Page) -> None:
        page.route("**/gradio_api/queue/join*", self._meet)

    def _meet(self, route: Route) -> None:
        asked = json.loads(route.request.post_data or "{}")
        # what asks without values is the load of the page, which `visit` waits for
        if self.holding and asked["data"] and self.about(asked["data"]):
            self.routes.append(route)
        else:
            route.continue_()

    def wait(self, page: Page) -> None:
        """Until something is held back."""
        end = monotonic() + 15
        while not self.routes:
            page.wait_for_timeout(20)  # milliseconds
            assert monotonic() < end, "the page asked nothing"

    def release(self) -> None:
        self.holding = False
        for route in self.routes:
            route.continue_()


def about_a_photo(data: list) -> bool:
    """Whether a question is about the photo that the visitor sent."""
    path = data[0].get("path") if data and isinstance(data[0], dict) else None
    return bool(path) and "/shown/" not in path


def slow_network(page: Page) -> None:
    page.context.new_cdp_session(page).send(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": 100, "downloadThroughput": -1, "uploadThroughput": -1},
    )


def settled(page: Page) -> str:
    """The picture that is there when all answers have come."""
    page.wait_for_timeout(1000)  # milliseconds
    return shown_picture(page)


def test_toggled_at_once_many_times(visit: Visiting, pizza: Path) -> None:
    page = visit().page
    send(page, pizza)
    pictures = {SQUARE: shown_picture(page)}
    page.get_by_label(WHOLE).check()
    pictures[WHOLE] = shown_picture(page, but_not=pictures[SQUARE])
    slow_network(page)
    for last in (SQUARE, WHOLE):
        for _ in range(4):
            page.get_by_label(WHOLE if last == SQUARE else SQUARE).check()
            page.get_by_label(last).check()
        now = "document.querySelector('#photo img')?.src"
        page.wait_for_function(f"s => {now} === s", arg=pictures[last])
        assert settled(page) == pictures[last]
        expect(page.get_by_label(last)).to_be_checked()


def test_toggled_while_the_photo_is_answered(visit: Visiting, pizza: Path) -> None:
    page = visit().page
    held = Held(about_a_photo)
    held.start(page)
    send(page, pizza)
    held.wait(page)
    page.get_by_label(WHOLE).check()
    held.release()
    whole = settled(page)
    page.get_by_label(SQUARE).check()
    square = shown_picture(page, but_not=whole)
    page.get_by_label(WHOLE).check()
    assert shown_picture(page, but_not=square) == whole


def test_toggled_while_the_page_loads(visit: Visiting, pizza: Path) -> None:
    held = Held()
    page = visit(before=held.start).page
    page.get_by_label(WHOLE).check()
    held.wait(page)
    held.release()
    send(page, pizza)
    whole = settled(page)
    expect(page.get_by_label(WHOLE)).to_be_checked()
    page.get_by_label(SQUARE).check()
    shown_picture(page, but_not=whole)


def test_the_next_photo_while_one_is_answered(visit: Visiting, pizza: Path) -> None:
    page = visit().page
    held = Held(about_a_photo)
    held.start(page)
    send(page, payload("first.jpg", "image/jpeg", jpeg()))
    held.wait(page)
    page.locator("#photo input[type=file]").set_input_files(pizza)
    page.wait_for_function("document.querySelector('#photo img')?.src.includes('1152100')")
    held.release()
    last = settled(page)
    expect(first_dish(page)).to_contain_text("Pizza")
    page.get_by_label("Remove Image").click()
    expect(page.locator("#result")).to_contain_text("Which dish is it?")
    send(page, pizza)
    assert shown_picture(page) == last


def test_removed_while_it_is_answered(visit: Visiting, pizza: Path) -> None:
    page = visit().page
    held = Held(about_a_photo)
    held.start(page)
    send(page, pizza)
    held.wait(page)
    page.get_by_label("Remove Image").click()
    held.release()
    page.wait_for_timeout(1000)  # milliseconds
    expect(page.locator("#result")).to_contain_text("Which dish is it?")
    expect(page.locator("#photo img")).to_have_count(0)


def test_another_model_and_count_while_a_photo_is_answered(visit: Visiting, pizza: Path) -> None:
    page = visit().page
    held = Held(about_a_photo)
    held.start(page)
    send(page, pizza)
    held.wait(page)
    choose(page, "Sure of nothing")
    for count in ("3", "2", "1"):
        page.get_by_label("Dishes to show").fill(count)
    held.release()
    settled(page)
    expect(page.locator("#result .unsure")).to_have_text("None of my 2 dishes looks right.")
    expect(page.locator("#result .dishes li")).to_have_count(1)


def test_models_chosen_one_after_another(visit: Visiting, pizza: Path) -> None:
    """In another tab, whose content has to follow as well."""
    page = visit().page
    send(page, pizza)
    shown_picture(page)
    slow_network(page)
    page.get_by_role("tab", name="Patches").click()
    for _ in range(3):
        choose(page, "Sure of nothing")
        choose(page, "pizza-steak-sushi")
    page.get_by_role("tab", name="Attention").click()
    choose(page, "Sure of nothing")
    page.get_by_role("tab", name="Patches").click()
    expect(page.locator("#patch-about")).to_contain_text("of 4 · token")
    page.get_by_role("tab", name="Classify").click()
    expect(page.locator("#result .unsure")).to_have_text("None of my 2 dishes looks right.")


def test_the_fit_follows_a_model_taught_otherwise(visit: Visiting, server: Server) -> None:
    new = server.home / "checkpoints" / "whole-photos.safetensors"
    save_small(new, fit="letterbox")
    try:
        page = visit().page
        page.get_by_label(WHOLE).check()
        choose(page, "Sure of nothing")  # taught like the one before, so the choice stays
        expect(page.locator("#facts")).to_contain_text("2 dishes")
        expect(page.get_by_label(WHOLE)).to_be_checked()
        page.get_by_label(SQUARE).check()
        choose(page, "whole-photos")
        expect(page.get_by_label(WHOLE)).to_be_checked()
        choose(page, "Sure of nothing")
        expect(page.get_by_label(SQUARE)).to_be_checked()
    finally:
        new.unlink(missing_ok=True)


def test_clicks_at_once_on_patches_and_heads(visit: Visiting, pizza: Path) -> None:
    page = visit().page
    send(page, pizza)
    shown_picture(page)
    page.get_by_role("tab", name="Attention").click()
    said = page.locator("#look-photo figcaption p").first
    expect(said).to_contain_text("Relevance")
    slow_network(page)
    for layer in (3, 7, 11):
        page.get_by_label(f"Layer {layer}, head 2").click()
    expect(said).to_contain_text("Layer 11, head 2")
    page.get_by_label("switches it off").check()
    for head in (1, 2, 3):
        page.get_by_label(f"Layer 12, head {head}").click()
    expect(page.locator("#heads-off-result")).to_contain_text("Without L12 H1, L12 H2, L12 H3 it ")
    frame = page.locator("#look-photo .frame")
    size = frame.bounding_box()
    assert size
    for share in (0.2, 0.8, 0.54):
        frame.click(position={"x": share * size["width"], "y": share * size["height"]})
    expect(said).to_contain_text("the patch in row 8, column 8")


def test_put_back_right_after_hiding(visit: Visiting, pizza: Path) -> None:
    """What the model trusts takes it long to say, that nothing is hidden no time at all."""
    page = visit().page
    send(page, pizza)
    shown_picture(page)
    page.get_by_role("tab", name="Patches").click()
    page.get_by_role("button", name="Take patches away").click()
    grid = page.locator("#away-grid svg")
    expect(grid).to_be_visible()
    press = """names => { for (const name of names)
      [...document.querySelectorAll("#away-buttons button")]
        .find(button => button.textContent.includes(name)).click(); }"""
    trusted, back = "trusts most", "Put all back"
    for names in ([trusted, back], [trusted, back, trusted, back]):
        page.evaluate(press, names)
        page.wait_for_timeout(1500)  # milliseconds: for all answers
        expect(grid).to_have_attribute("data-removed", "")
    page.evaluate(press, [trusted, back, trusted])
    expect(grid).to_have_attribute("data-removed", re.compile(r"(\d+ ){38}\d+"))
    page.wait_for_timeout(1500)  # milliseconds
    expect(grid).to_have_attribute("data-removed", re.compile(r"(\d+ ){38}\d+"))


def test_a_head_clicked_the_moment_it_appears_stays(visit: Visiting) -> None:
    """The map that the tab opens with was on its way, and took the clicked one's place."""
    page = visit().page
    page.locator("#photo input[type=file]").set_input_files(PIZZA)
    page.wait_for_selector("#result .note")
    head = page.get_by_role("button", name="Layer 9, head 3")
    page.get_by_role("tab", name="Attention").click()
    head.click()
    caption = page.locator("#look-photo figcaption p").first
    expect(caption).to_contain_text("Layer 9, head 3")
    page.wait_for_timeout(1500)  # milliseconds: for what comes late
    expect(caption).to_contain_text("Layer 9, head 3")
    expect(page.get_by_label("One head")).to_be_checked()
