"""The address of what is shown: opened as a link, and kept true while a visitor moves."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect
from serving import Visit, open_tab
from test_browser import choose

from vit.checkpoint import available
from vit.ui.links import note_html, read_link

pytest_plugins = ["serving"]
expect.set_options(timeout=30_000)  # milliseconds; the machine may be busy

Visiting = Callable[..., Visit]
TABS = ("Classify", "Patches", "Attention", "Fine-tune", "Model")
PARTS = ("tour", "calculator")


def words(page: Page) -> dict[str, str]:
    return page.evaluate("Object.fromEntries(new URL(location.href).searchParams)")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"model": "Food101", "tab": "ATTENTION"}, {"model": "food101", "tab": "Attention"}),
        ({"layer": "9", "head": "2"}, {"method": "head", "layer": 8, "head": 1}),
        ({"layer": "12"}, {"method": "mean", "layer": 11}),
        ({"method": "rollout", "layer": "1"}, {"method": "rollout", "layer": 0}),
        ({"part": "calculator", "stop": "softmax"}, {"part": "calculator", "stop": "softmax"}),
        ({"tab": " ", "owner": "x", "__theme": "dark"}, {}),
    ],
)
def test_what_an_address_asks_for(vit_home, query: dict, found: dict) -> None:
    link = read_link(query, TABS, PARTS, available())
    assert {
        name: value for name, value in link._asdict().items() if value not in (None, ())
    } == found


@pytest.mark.parametrize(
    "query",
    [
        {"model": "../food101"},
        {"layer": "0"},
        {"layer": "13"},
        {"head": "4"},
        {"head": "1e1"},
        {"method": "magic"},
        {"tab": "<b>"},
        {"stop": "lunch"},
        {"part": "compared"},
    ],
)
def test_what_is_not_here_is_left_as_usual_and_said(vit_home, query: dict) -> None:
    link = read_link(query, TABS, PARTS, available())
    assert link.unknown == tuple(query.items())
    assert not any(link[:-1])
    said = note_html(link.unknown)
    assert said.count(".") >= 1 and "<b>" not in said and "“" in said
    assert len(note_html((("tab", "x" * 9999),))) < 200


@pytest.mark.browser
def test_a_link_opens_what_it_names(visit: Visiting) -> None:
    query = "?__theme=dark&model=pizza-steak-sushi&tab=attention&method=head&layer=9&head=2"
    page = visit(query=query).page
    expect(page.locator("#facts")).to_contain_text("3 dishes")
    expect(page.get_by_role("tab", name="Attention")).to_have_attribute("aria-selected", "true")
    assert page.url.endswith(query)  # nobody has moved yet
    page.locator("#attention-empty-examples button").first.click()
    expect(page.locator("#look-photo")).to_contain_text("Layer 9, head 2")
    page.get_by_label("Mean of a layer").check()
    expect(page.locator("#look-photo")).to_contain_text("Layer 9")
    expect(page).to_have_url(re.compile("method=mean"))
    assert words(page) == {
        "__theme": "dark",
        "model": "pizza-steak-sushi",
        "tab": "attention",
        "method": "mean",
        "layer": "9",
    }
    assert page.evaluate("document.body.classList.contains('dark')")


@pytest.mark.browser
def test_the_address_follows_and_back_opens_the_tab_before(visit: Visiting) -> None:
    visits = visit(390, before=lambda page: page.goto("about:blank"))
    page = visits.page

    def is_open(name: str) -> None:
        expect(page.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")

    assert words(page) == {}
    page.get_by_role("tab", name="Patches").click()
    expect(page).to_have_url(re.compile("tab=patches"))
    open_tab(page, "Model")
    expect(page).to_have_url(re.compile("tab=model"))
    page.locator("#tour-empty button").first.click()
    page.locator("#tour-nav [data-stop=softmax]").click()
    expect(page).to_have_url(re.compile("stop=softmax"))
    choose(page, "pizza-steak-sushi")
    expect(page).to_have_url(re.compile("model=pizza-steak-sushi"))
    expected = {"model": "pizza-steak-sushi", "tab": "model", "part": "tour", "stop": "softmax"}
    assert words(page) == expected
    page.go_back()
    is_open("Patches")
    expect(page.locator("#patch-grid svg")).to_be_visible()
    page.go_back()
    is_open("Classify")
    page.go_forward()
    is_open("Patches")
    page.go_forward()
    is_open("Model")
    expect(page).to_have_url(re.compile("stop=softmax"))
    assert words(page) == expected
    for move in ("back", "back", "forward", "back", "forward", "forward", "back"):  # in a hurry
        page.evaluate(f"history.{move}()")
        page.wait_for_timeout(60)
    is_open("Patches")
    page.wait_for_timeout(1500)  # what comes late must not change it
    is_open("Patches")
    assert words(page)["tab"] == "patches"
    page.go_forward()
    is_open("Model")
    for _ in range(3):
        page.go_back()
    page.wait_for_url("about:blank")
    page.go_forward()
    page.wait_for_selector("#facts strong")
    visits.errors.clear()  # a page that is left breaks off its requests, and says so


@pytest.mark.browser
def test_a_bad_link_is_the_usual_page_and_a_sentence(visit: Visiting) -> None:
    page = visit(query="?model=nobody&tab=attention&layer=99&part=lunch").page
    note = page.locator("#link-note")
    expect(note).to_have_text(
        "This page has no model “nobody” or layer “99” or part “lunch”; "
        "it shows what it usually does."
    )
    expect(page.locator("#facts")).to_contain_text("101 dishes")
    expect(page.locator("#attention-empty")).to_be_visible()
    page.get_by_role("tab", name="Patches").click()
    expect(page).to_have_url(re.compile(r"\?model=food101&tab=patches$"))
    expect(note).to_have_count(0)
