"""The whole page in a real browser, tab after tab: by keyboard alone, what can be read in the light
and in the dark, two windows of one visitor, and the browser's own buttons."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from serving import Server, Visit, open_tab
from test_browser import first_dish, send, shown_picture

pytest_plugins = ["serving"]
pytestmark = pytest.mark.browser
expect.set_options(timeout=60_000)  # milliseconds; the machine may be busy

Visiting = Callable[..., Visit]
TABS = ("Classify", "Patches", "Attention", "Fine-tune", "Model")
PIZZA = Path(__file__).parents[1] / "examples" / "pizza_margherita.jpg"
DRAWN = {"Patches": "#patch-about h3", "Attention": "#wall button", "Model": "#tour-words h3"}
SUSHI = next(PIZZA.parent.glob("sushi*.jpg"))


LEFT = ("AbortError", "Connection errored out")  # what Gradio says of a page that is left


def chosen_photo(page: Page) -> None:
    send(page, PIZZA)
    expect(first_dish(page)).to_contain_text("%")


def tab_to(page: Page, wanted: Locator, most: int = 120) -> None:
    """Press Tab until this has the focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if wanted.evaluate("e => e.contains(document.activeElement)"):  # itself, too
            return
    pytest.fail(f"{most} times Tab do not lead to {wanted}")


def test_lists_and_cards_close_by_keyboard_and_mouse(visit: Visiting) -> None:
    page = visit().page
    tab_to(page, page.locator("#checkpoint input"))
    choices = page.locator("[role=option]")
    expect(choices.first).to_be_visible()
    page.keyboard.press("Tab")
    expect(choices).to_have_count(0)
    card = page.locator("#facts .why > dl")
    page.keyboard.press("Enter")
    expect(card).to_be_visible()
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    page.keyboard.press("Enter")
    expect(card).to_be_visible()
    page.locator("#name").click()
    expect(card).to_be_hidden()


def test_arrow_keys_go_from_tab_to_tab(visit: Visiting) -> None:
    page = visit().page
    tab_to(page, page.get_by_role("tab", name="Classify", exact=True))
    for key, name in (("Right", "Patches"), ("Right", "Attention"), ("Left", "Patches")):
        page.keyboard.press(f"Arrow{key}")
        expect(page.get_by_role("tab", name=name, exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#patches-empty h3")).to_have_text("No photo yet")


def test_a_link_to_the_api(chromium: Browser, server: Server) -> None:
    page = chromium.new_page()  # Gradio's own page looks for files that are not there
    page.goto(f"{server.url}?view=api")
    expect(page.locator(".api-docs")).to_contain_text("attention")
    page.close()


def test_a_tab_that_is_opened_never_says_that_there_is_no_photo(visit: Visiting) -> None:
    page = visit().page
    page.evaluate(
        """new MutationObserver(() => {
          for (const said of document.querySelectorAll(".no-photo h3"))
            if (said.checkVisibility()) window.denied = true;
        }).observe(document.body, { subtree: true, childList: true, attributes: true })"""
    )
    chosen_photo(page)
    for name, drawn in DRAWN.items():
        open_tab(page, name)
        expect(page.locator(drawn).first).to_be_visible()
    assert not page.evaluate("window.denied")
    expect(page.get_by_text("common.")).to_have_count(0)  # what Gradio has no words for


def test_by_keyboard_alone(visit: Visiting) -> None:
    """From the top of the page through every tab: nothing is clicked, nothing given the focus."""
    page = visit().page

    def to_tab(name: str) -> None:
        """Backwards from wherever the focus is, then along the tabs."""
        page.evaluate("document.activeElement.blur()")
        tab_to(page, page.get_by_role("tab", name=name, exact=True))
        page.keyboard.press("Enter")
        expect(page.get_by_role("tab", name=name, exact=True)).to_have_attribute(
            "aria-selected", "true"
        )

    tab_to(page, page.locator("#checkpoint input"))
    page.keyboard.type("pizza-steak-sushi")
    page.keyboard.press("Enter")
    expect(page.locator("#facts")).to_contain_text("3 dishes")
    tab_to(page, page.get_by_role("button", name="Example: Pizza margherita"))
    page.keyboard.press("Enter")
    expect(first_dish(page)).to_contain_text("Pizza")
    to_tab("Patches")
    expect(page.locator("#patch-about h3")).to_have_text("Row 8, column 8")
    tab_to(page, page.locator("#patch-grid [role=group]"))
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#patch-about h3")).to_have_text("Row 8, column 7")
    to_tab("Attention")
    expect(page.locator("#wall button").first).to_be_visible()
    tab_to(page, page.locator("#wall button").first)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator("#look-photo figcaption p").first).to_contain_text("Layer 1, head 2")
    to_tab("Fine-tune")
    tab_to(page, page.get_by_label("Name of the new model"))
    page.keyboard.type("soups")
    expect(page.get_by_label("Name of the new model")).to_have_value("soups")
    to_tab("Model")
    expect(page.locator("#tour-words h3")).to_be_visible()
    title = page.locator("#tour-words h3").inner_text()
    tab_to(page, page.locator("#tour-next"))
    page.keyboard.press("Enter")
    expect(page.locator("#tour-words h3")).not_to_have_text(title)


# Of every piece of text that is seen: its colour against what lies under it, as WCAG counts it.
CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
  };
  const over = (top, under) => under.map((c, i) => i < 3 ? top[i] * top[3] + c * (1 - top[3]) : 1);
  const bright = (c) => [0, 1, 2].map((i) => c[i] / 255).map((v) =>
    v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce(
    (sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const found = [];
  for (const element of document.querySelectorAll(".gradio-container *")) {
    const text = [...element.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data.trim())
      .join("");
    const box = element.getBoundingClientRect();
    if (!text || !box.width || !box.height || !element.checkVisibility({ opacityProperty: true,
      visibilityProperty: true }) || element.closest("svg, math, [disabled], [aria-disabled=true]"))
      continue;
    const layers = []; let picture = false;
    for (let at = element; at; at = at.parentElement) {
      const style = getComputedStyle(at);
      picture ||= style.backgroundImage.includes("url(") || Number(style.opacity) < 1;
      layers.unshift(rgba(style.backgroundColor));
    }
    if (picture) continue;
    const under = layers.reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
    const ink = over(rgba(getComputedStyle(element).color), under);
    const [high, low] = [bright(ink), bright(under)].sort((a, b) => b - a);
    found.push([(high + 0.05) / (low + 0.05), text.slice(0, 40)]);
  }
  return found.sort((a, b) => a[0] - b[0]);
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_tab_can_be_read(visit: Visiting, theme: str) -> None:
    page = visit(1280, f"?__theme={theme}").page
    chosen_photo(page)
    for name in TABS:
        open_tab(page, name)
        if name in DRAWN:
            expect(page.locator(DRAWN[name]).first).to_be_visible()
        page.wait_for_timeout(400)  # milliseconds; colours fade
        contrasts = page.evaluate(CONTRASTS)
        assert len(contrasts) > 20, name
        assert contrasts[0][0] >= 3, (name, [each for each in contrasts if each[0] < 3])


@pytest.fixture
def windows(chromium: Browser, server: Server) -> Iterator[Callable[[], Page]]:
    """Opens windows of one browser, of one visitor."""
    context, errors = chromium.new_context(viewport={"width": 1280, "height": 844}), list[str]()

    def window() -> Page:
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
        page.goto(server.url)
        page.wait_for_selector("#facts p, #facts strong")
        return page

    yield window
    context.close()
    assert not [said for said in errors if not any(word in said for word in LEFT)], errors


def test_back_and_forward(windows: Callable[[], Page]) -> None:
    page = windows()
    chosen_photo(page)
    open_tab(page, "Attention")
    expect(page.locator("#wall button").first).to_be_visible()
    page.goto("about:blank")
    for _ in range(2):
        page.go_back()
        page.wait_for_selector("#facts p, #facts strong")
        page.go_forward()
    page.go_back()
    page.wait_for_selector("#facts p, #facts strong")
    open_tab(page, "Classify")
    chosen_photo(page)


def test_the_photo_chosen_last_wins_over_that_before_a_reload(windows: Callable[[], Page]) -> None:
    page = windows()
    chosen_photo(page)
    before = shown_picture(page)
    page.reload(wait_until="commit")
    send(page, SUSHI)
    assert shown_picture(page, but_not=before) != before
    page.wait_for_timeout(2000)
    assert shown_picture(page) != before
    expect(page.locator("#photo img")).to_have_count(1)


def test_two_windows_of_one_visitor(windows: Callable[[], Page]) -> None:
    one, other = windows(), windows()
    send(one, PIZZA)
    first = shown_picture(one)
    expect(other.locator("#result")).to_contain_text("Which dish is it?")
    send(other, SUSHI)
    assert shown_picture(other) != first and shown_picture(one) == first
    open_tab(other, "Patches")
    expect(other.locator("#patch-about h3")).to_be_visible()
    # what is collected in one is there in the other
    open_tab(one, "Fine-tune")
    one.get_by_label("collect them here").check()
    one.get_by_label("New class").fill("ramen")
    one.keyboard.press("Enter")
    expect(one.locator(".classes button")).to_contain_text("Ramen")
    other.reload()
    other.wait_for_selector("#facts p, #facts strong")
    open_tab(other, "Fine-tune")
    other.get_by_label("collect them here").check()
    expect(other.locator(".classes button")).to_contain_text("Ramen")
