"""The Model tab in a real browser: the tour, its controls, the calculator, at both widths."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect
from serving import Server, Visit, open_tab
from test_browser import choose, fits_the_window, send, shown_picture
from test_patches_tab import click_patch

from vit.tour import STOPS

pytest_plugins = ["serving"]
pytestmark = pytest.mark.browser
expect.set_options(timeout=30_000)  # milliseconds; the machine may be busy

Visiting = Callable[..., Visit]
WIDTHS = [1280, 390]


@pytest.fixture
def pizza(shared_data: Path) -> Path:
    return shared_data / "pizza_steak_sushi" / "test" / "pizza" / "1152100.jpg"


def take_the_tour(page: Page, photo: Path) -> None:
    choose(page, "pizza-steak-sushi")
    send(page, photo)
    shown_picture(page)
    open_tab(page, "Model")
    expect(page.locator("#tour-words h3")).to_have_text(STOPS[0].title)


def go_to(page: Page, key: str) -> Locator:
    page.locator(f"#tour-nav [data-stop={key}]").click()
    lesson = page.locator(f"#tour-words [data-at={key}]")
    expect(lesson).to_be_visible()
    expect(page.locator("#tour-nav [aria-current]")).to_have_attribute("data-stop", key)
    return lesson


def show(page: Page, part: str) -> None:
    page.locator("#model-part").get_by_text(part, exact=True).click()


def slide(page: Page, label: str, value: str) -> None:
    page.get_by_label(re.compile(f"number input for .*{label}")).fill(value)


@pytest.mark.parametrize("width", WIDTHS)
def test_from_stop_to_stop(visit: Visiting, pizza: Path, width: int) -> None:
    page = visit(width).page
    take_the_tour(page, pizza)
    title = page.locator("#tour-words h3")
    previous, after = page.locator("#tour-previous"), page.locator("#tour-next")
    expect(previous).to_be_disabled()
    after.click()
    expect(title).to_have_text(STOPS[1].title)
    previous.click()
    expect(title).to_have_text(STOPS[0].title)
    for stop in STOPS if width == 390 else STOPS[::3]:  # nothing wider than the window anywhere
        lesson = go_to(page, stop.key)
        expect(lesson.locator("math").first).to_be_visible()
        expect(page.locator("#tour-numbers .code mark").first).to_be_visible()
        assert fits_the_window(page), stop.key
    go_to(page, STOPS[-1].key)
    expect(after).to_be_disabled()
    page.locator("#tour-words h3").click()
    page.keyboard.press("ArrowLeft")
    expect(title).to_have_text(STOPS[-2].title)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowRight")
    expect(title).to_have_text(STOPS[-3].title)


@pytest.mark.parametrize("width", WIDTHS)
def test_controls_change_the_numbers(visit: Visiting, pizza: Path, width: int) -> None:
    page = visit(width).page
    take_the_tour(page, pizza)
    numbers = page.locator("#tour-numbers")
    go_to(page, "convolution")
    caption = numbers.locator("caption").first
    click_patch(page.locator("#tour-stage svg.stage"), 3, 5)
    expect(caption).to_contain_text("of patch 32")  # rows of 14, counted from 0
    slide(page, "number of the token", "7")
    expect(caption).to_have_text("Number 7 of the embedding of patch 32")
    rows = numbers.locator("table").first.locator("tbody tr td:last-child")
    assert rows.nth(0).inner_text()[:-1] == rows.nth(1).inner_text()[:-1]
    go_to(page, "softmax")
    share = numbers.locator("tbody tr").first.locator("td").last
    expect(share).to_have_text(re.compile(r"^\d+\.\d\d %$"))
    before = share.inner_text()
    slide(page, "Divide the scores by", "0.2")
    expect(share).not_to_have_text(before)
    sharp = float(share.inner_text().removesuffix(" %"))
    assert sharp > float(before.removesuffix(" %"))
    slide(page, "Head", "1")
    expect(numbers.locator("caption").first).to_contain_text("head 1")
    slide(page, "Block", "2")
    expect(numbers.locator("caption").first).to_contain_text("block 2, head 1")
    page.get_by_label("the patch", exact=True).check()
    expect(numbers.locator("caption").first).to_contain_text("Row 3, column 5 attends to")
    go_to(page, "probabilities")
    expect(numbers.locator("tbody tr").first).to_contain_text("Pizza")
    before = numbers.locator("tbody tr").first.inner_text()
    slide(page, "Temperature", "4")
    expect(numbers.locator("caption").first).to_have_text("At T = 4")
    assert numbers.locator("tbody tr").first.inner_text() != before


@pytest.mark.parametrize("width", WIDTHS)
def test_calculator(visit: Visiting, width: int) -> None:
    page = visit(width).page
    choose(page, "pizza-steak-sushi")
    open_tab(page, "Model")
    show(page, "Calculator")
    tiles = page.locator("#calculated .tiles li b")
    expect(tiles.first).to_have_text("5.53 million")
    memory = tiles.nth(2).inner_text()
    slide(page, "Picture", "448")
    expect(tiles.nth(2)).not_to_have_text(memory)
    expect(page.locator("#calculated")).to_contain_text("12 × 3 × 789 × 789 × 4")
    slide(page, "Heads", "5")
    expect(page.locator("#calculated .trouble")).to_contain_text("multiple of heads")
    page.get_by_label("Begin with").click()
    page.get_by_role("option", name="B/16", exact=True).click()
    expect(tiles.first).to_have_text("86.6 million")
    assert fits_the_window(page)
    show(page, "Compared")
    expect(page.locator("#compared-models li")).to_have_count(4)
    expect(page.locator("#compared-models")).to_contain_text("from scratch")
    assert fits_the_window(page)


@pytest.mark.parametrize("width", WIDTHS)
def test_architecture_and_what_was_learned(visit: Visiting, pizza: Path, width: int) -> None:
    page = visit(width).page
    choose(page, "pizza-steak-sushi")
    open_tab(page, "Model")
    expect(page.locator("#tour-empty")).to_contain_text("No photo yet")
    show(page, "Architecture")
    table = page.locator("#layers table")
    expect(table).to_contain_text("148,224")  # a block's attention
    expect(page.locator("#layers .total")).to_contain_text("5,525,763 parameters")
    page.get_by_label("the head alone").check()
    expect(page.locator("#layers .total")).to_contain_text("579 of them trained")
    assert fits_the_window(page)
    show(page, "What it learned")
    expect(page.locator("#places img")).to_be_visible()
    slide(page, "Rows", "7")
    expect(page.locator("#resized")).to_contain_text("1 + 7 × 24 = 169")
    expect(page.locator("#model-filters")).to_contain_text("All 192 filters")
    assert fits_the_window(page)
    choose(page, "Sure of nothing")
    expect(page.locator("#model-filters")).to_contain_text("All 8 filters")
    show(page, "Architecture")
    page.locator("#architecture [data-stop=mlp]").click()
    expect(page.locator("#tour-empty")).to_be_visible()
    page.locator("#tour-empty button").first.click()  # an example is enough
    expect(page.locator("#tour-words [data-at=mlp]")).to_be_visible()


def test_nothing_before_the_tab_is_opened(visit: Visiting, server: Server, pizza: Path) -> None:
    page = visit().page
    send(page, pizza)
    shown_picture(page)
    expect(page.locator("#tour-words h3")).to_have_count(0)
    expect(page.locator("#layers table")).to_have_count(0)


def test_dark(visit: Visiting, pizza: Path) -> None:
    page = visit(1280, "?__theme=dark").page
    take_the_tour(page, pizza)
    colour = page.locator("#tour-row").evaluate("e => getComputedStyle(e).backgroundColor")
    assert max(int(n) for n in re.findall(r"\d+", colour)[:3]) < 60
