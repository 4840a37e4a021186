"""What is shown, in the page's address: `?model=NAME&tab=attention&method=head&layer=9&head=2`.

It is read when the page is opened, and kept true in the browser while a visitor moves, without a
reload. Every tab opened is an entry in the browser's history, so that back opens the tab before.
Photos are never in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import gradio as gr
from gradio.components import Component

from vit.checkpoint import Entry, available
from vit.tour import STOPS
from vit.ui.attention_controls import METHODS
from vit.ui.page import QUIET, Page

LONGEST = 40  # letters of a bad value that are repeated

# The words of an address, in the order in which it has them.
WORDS = ("model", "tab", "method", "layer", "head", "part", "stop")

# For the page's head: a visitor who has touched nothing has not moved; the address that they came
# with stays. Back and forward open the tab that the address then has; until it is open, what the
# page still has to say of the tabs before it does not belong into this address.
MOVES = """
const here = document.documentElement.dataset;
for (const kind of ["pointerdown", "keydown", "drop", "paste"])
  addEventListener(kind, () => { here.moved = "yes"; delete here.going; }, true);
addEventListener("popstate", () => {
  const tabs = [...document.querySelectorAll('button[role="tab"]')];
  const called = (tab) => tab.textContent.trim().toLowerCase();
  const asked = new URL(location.href).searchParams.get("tab")?.toLowerCase();
  const tab = tabs.find((tab) => called(tab) === asked) ?? tabs[0];
  if (!tab) return;
  here.going = called(tab);
  tab.click();
});
"""

# Layers and heads are counted from 1 in an address, as on the page.
WRITE = """(model, tab, method, layer, head, part, stop) => {
  const here = document.documentElement.dataset, shown = { model, tab: tab.toLowerCase() };
  if (!here.moved || (here.going ?? shown.tab) !== shown.tab) return [];
  delete here.going;
  if (shown.tab === "attention") {
    shown.method = method;
    if (["head", "mean", "max"].includes(method) && layer !== null) shown.layer = layer + 1;
    if (method === "head" && head !== null) shown.head = head + 1;
  }
  if (shown.tab === "model") {
    shown.part = part;
    if (part === "tour") shown.stop = stop;
  }
  const address = new URL(location.href), before = address.searchParams.get("tab") ?? FIRST;
  for (const word of WORDS) {
    if (shown[word]) address.searchParams.set(word, shown[word]);
    else address.searchParams.delete(word);
  }
  const how = shown.tab === before.toLowerCase() ? "replaceState" : "pushState";
  history[how](history.state, "", address);
  document.querySelector("#link-note")?.remove();
  return [];
}""".replace("WORDS", json.dumps(WORDS))


class Link(NamedTuple):
    """What an address asks for; None where it is silent or asks for what is not here. layer, head:
    from 0. unknown: what is not here, as words of the address and their values."""

    model: str | None = None
    tab: str | None = None
    method: str | None = None
    layer: int | None = None
    head: int | None = None
    part: str | None = None
    stop: str | None = None
    unknown: tuple[tuple[str, str], ...] = ()


def read_link(
    query: Mapping[str, str], tabs: Sequence[str], parts: Sequence[str], models: Sequence[Entry]
) -> Link:
    """The address's query, read for the tabs of the page, the parts of its Model tab, and the
    models that are listed."""
    asked = {word: query[word].strip() for word in WORDS if query.get(word, "").strip()}
    names = {entry.name.casefold(): entry for entry in models}
    entry = names.get(asked.get("model", "").casefold(), models[0] if models else None)
    config = entry.card.config if entry else None
    known: dict[str, dict[str, Any]] = {
        "model": {name: entry.name for name, entry in names.items()},
        "tab": {tab.casefold(): tab for tab in tabs},
        "method": {method: method for _, method in METHODS},
        "layer": {str(layer + 1): layer for layer in range(config.depth if config else 0)},
        "head": {str(head + 1): head for head in range(config.heads if config else 0)},
        "part": {part: part for part in parts},
        "stop": {stop.key: stop.key for stop in STOPS},
    }
    found = {word: known[word].get(value.casefold()) for word, value in asked.items()}
    unknown = tuple((word, asked[word]) for word, value in found.items() if value is None)
    if found.get("method") is None and "method" not in asked:  # one head, or one layer, is meant
        if found.get("head") is not None:
            found["method"] = "head"
        elif found.get("layer") is not None:
            found["method"] = "mean"
    return Link(**found, unknown=unknown)


def note_html(unknown: Sequence[tuple[str, str]]) -> str:
    """One sentence about what an address asks for and is not here."""
    said = " or ".join(
        f"{word} “{value if len(value) <= LONGEST else value[:LONGEST] + '…'}”"
        for word, value in unknown
    )
    return (
        f'<p role="status">This page has no {escape(said)}; it shows what it usually does.</p>'
        if unknown
        else ""
    )


class Links:
    """Drawn where its note shall stand; connected when the tabs are there."""

    def __init__(self) -> None:
        self.note = gr.HTML(visible=False, elem_id="link-note")

    def connect(
        self,
        blocks: gr.Blocks,
        page: Page,
        tabs: gr.Tabs,
        names: Sequence[str],
        told: Mapping[str, Component],
    ) -> None:
        """names: of the tabs. told: the components whose values are in the address, by its words;
        those of `page` are known."""
        controls = {"model": page.checkpoint, "tab": page.opened, **told}
        inputs = [controls[word] for word in WORDS]
        part = told["part"]
        assert isinstance(part, gr.Radio)
        parts = [str(value) for _, value in part.choices]

        def arrive(request: gr.Request) -> dict:
            query = {word: str(value) for word, value in request.query_params.items()}
            if not query.keys() & set(WORDS):
                return {self.note: gr.skip()}
            link = read_link(query, names, parts, available())
            shown: dict = {
                told[word]: value
                for word in ("method", "part", "stop")
                if (value := getattr(link, word)) is not None
            }
            for word in ("layer", "head"):
                if (value := getattr(link, word)) is not None:
                    shown[told[word]] = gr.update(choices=[(str(value + 1), value)], value=value)
            if link.tab is not None:
                shown |= {tabs: gr.update(selected=link.tab), page.opened: link.tab}
            note = gr.update(value=note_html(link.unknown), visible=bool(link.unknown))
            return shown | {self.note: note}

        blocks.load(arrive, None, [self.note, tabs, page.opened, *told.values()], **QUIET)
        write = WRITE.replace("FIRST", json.dumps(names[0].lower()))
        gr.on([each.change for each in inputs], None, inputs, None, js=write, **QUIET)  # pyright: ignore[reportAttributeAccessIssue]
