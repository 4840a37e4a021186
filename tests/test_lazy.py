"""Tabs do no work before they are opened, and none when they are opened again."""

import json
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, Request, expect
from serving import Server, Visit

pytest_plugins = ["serving"]
pytestmark = pytest.mark.browser
expect.set_options(timeout=30_000)  # milliseconds; the machine may be busy

CLOSED = ("Patches", "Attention", "Model")
SHOWN = {"Patches": "#patch-about svg", "Attention": "#look-photo figcaption", "Model": "#tour h3"}


class Calls:
    """What a page asks of the app's functions; `own` are those that only write into one of the
    closed tabs, by the tab."""

    def __init__(self, server: Server, page: Page) -> None:
        with urllib.request.urlopen(f"{server.url}config") as answer:
            config = json.load(answer)
        props = {each["id"]: each["props"] for each in config["components"]}
        lies_in = {}
        for tab in walk(config["layout"]):
            if (name := props.get(tab["id"], {}).get("label")) in CLOSED:
                lies_in |= {each["id"]: name for each in walk(tab)}
        examples = {key for key, each in props.items() if "examples" in str(each.get("elem_id"))}
        self.own: dict[int, str] = {}
        for each in config["dependencies"]:
            tabs = {lies_in.get(output) for output in each["outputs"]}
            if len(tabs) == 1 and tabs != {None} and not set(each["outputs"]) & examples:
                self.own[each["id"]] = str(tabs.pop())
        self.names = {each["id"]: each["api_name"] for each in config["dependencies"]}
        self.seen: list[int] = []
        page.on("request", self._note)

    def _note(self, request: Request) -> None:
        if request.method == "POST" and "/queue/join" in request.url:
            self.seen.append((request.post_data_json or {})["fn_index"])

    def of_closed_tabs(self) -> list[tuple[str, str]]:
        return [(self.own[call], self.names[call]) for call in self.seen if call in self.own]


def walk(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield tree
    for child in tree.get("children") or ():
        yield from walk(child)


def test_closed_tabs_wait_and_opened_ones_are_kept(
    visit: Callable[..., Visit], server: Server
) -> None:
    calls: list[Calls] = []
    page = visit(before=lambda page: calls.append(Calls(server, page))).page
    (made,) = calls
    assert {"Patches", "Attention", "Model"} == set(made.own.values())
    page.locator("#examples button").first.click()
    expect(page.locator("#result .note")).to_be_visible()
    page.wait_for_timeout(1500)  # milliseconds; for what should not come
    assert made.of_closed_tabs() == []
    assert len(made.seen) < 25
    for tab in CLOSED:
        page.get_by_role("tab", name=tab, exact=True).click()
        expect(page.locator(SHOWN[tab]).first).to_be_visible()
        assert {name for name, _ in made.of_closed_tabs()} == {tab}
        page.wait_for_timeout(1500)  # milliseconds; what follows on the first look
        made.seen.clear()
    for tab in (*CLOSED, "Classify"):
        page.get_by_role("tab", name=tab, exact=True).click()
        expect(page.locator(SHOWN.get(tab, "#result .note")).first).to_be_visible()
    page.wait_for_timeout(500)
    assert made.seen == []
