"""Nothing on the page moves by itself: the browser's own count of what shifted, step by step."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect
from serving import Visit, open_tab
from test_browser import first_dish, send

pytest_plugins = ["serving"]
pytestmark = pytest.mark.browser

EXAMPLES = Path(__file__).parents[1] / "examples"
# Each shift is the part of the screen that moved times how far, as a share of the screen's larger
# side; web.dev calls 0.1 good for all of a visit.
LOAD, STEP = 0.1, 0.05
WATCH = """
window.moved = [];
new PerformanceObserver((list) => moved.push(...list.getEntries().map((entry) => [entry.value,
  entry.sources.map(({ node }) => node?.id || node?.className || node?.nodeName)])))
  .observe({ type: "layout-shift", buffered: true });
"""


def noise() -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(1).integers(0, 255, (300, 400, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


class Watched:
    def __init__(self, page: Page) -> None:
        self.page = page

    def stands(self, what: str, most: float = STEP) -> None:
        """All that moved since the last call, once the page has come to rest."""
        self.page.wait_for_timeout(500)
        moved = self.page.evaluate("moved.splice(0)")
        assert sum(value for value, _ in moved) <= most, (what, moved)


@pytest.fixture(params=[390, 1280])
def watched(visit: Callable[..., Visit], request: pytest.FixtureRequest) -> Iterator[Watched]:
    yield Watched(visit(request.param, before=lambda page: page.add_init_script(WATCH)).page)


def test_nothing_jumps(watched: Watched) -> None:
    page = watched.page
    watched.stands("load", LOAD)
    send(page, EXAMPLES / "pizza_margherita.jpg")
    expect(first_dish(page)).to_contain_text("%")
    watched.stands("the first photo")
    page.locator("#examples button").nth(1).click()
    watched.stands("an example")
    page.locator("#photo input[type=file]").first.set_input_files(
        {"name": "noise.png", "mimeType": "image/png", "buffer": noise()}
    )
    expect(page.locator("#result")).to_contain_text("None of my")
    watched.stands("an unsure answer")
    for tab, drawn in (
        ("Patches", "#patch-about h3"),
        ("Attention", "#wall button"),
        ("Fine-tune", "#photos-way"),
        ("Model", "#tour-words h3"),
        ("Classify", "#result"),
    ):
        open_tab(page, tab)
        expect(page.locator(drawn).first).to_be_visible()
        watched.stands(f"opening {tab}")
    open_tab(page, "Attention")
    watched.stands("Attention again")
    for method in ("Mean of a layer", "Rollout", "Relevance"):
        page.locator("label:visible", has_text=method).first.click()
        watched.stands(method)
    page.evaluate("document.querySelector('#facts').style.marginTop = '200px'")
    with pytest.raises(AssertionError, match="pushed"):  # or the watch sees nothing
        watched.stands("pushed")
