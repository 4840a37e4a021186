"""Who looks: a random key kept in their browser, and the owner's token if they have it."""

from __future__ import annotations

import os
from dataclasses import dataclass

import gradio as gr

from vit.collect import is_key, new_key
from vit.runfolder import Visitor
from vit.ui.page import QUIET

# Gradio encrypts what it keeps in a browser. The default, a key drawn at each start of the app,
# would make every visitor a stranger after a restart; on its way it is as public as the page.
STORED = "food-vit-visitor"


@dataclass(frozen=True)
class Who:
    """The two values that make a `Visitor`, as inputs of a handler."""

    key: gr.BrowserState
    token: gr.Textbox

    @property
    def inputs(self) -> list:
        return [self.key, self.token]


def visitor_of(key: object, token: object) -> Visitor:
    """From what the two hold; a browser may send anything."""
    return Visitor(
        key if isinstance(key, str) else "", token.strip() if isinstance(token, str) else ""
    )


def browser_key(page: gr.Blocks) -> gr.BrowserState:
    """The visitor's key, made at their first visit. Not to be drawn inside a tab: the browser keeps
    nothing of a tab that has not been opened."""
    key = gr.BrowserState("", storage_key=STORED, secret=STORED)
    page.load(lambda key: key if is_key(key) else new_key(), key, key, **QUIET)
    return key


def owner_field() -> gr.Textbox:
    """Where whoever runs the app shows their token; drawn only where there is one to show."""
    return gr.Textbox(
        label="Owner's token",
        info="Whoever runs this app may stop and delete every run.",
        type="password",
        visible=bool(os.environ.get("VIT_OWNER_TOKEN", "").strip()),
        elem_id="owner-token",
    )


def token_of_address(request: gr.Request) -> str:
    """The owner's token in the page's address, `/?owner=TOKEN`; "" where there is none."""
    return str(request.query_params.get("owner", ""))
