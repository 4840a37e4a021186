"""What every tab shares: one checkpoint and one photo for the whole page."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypedDict

import gradio as gr
from gradio.events import Dependency

from vit.images import Fit
from vit.inside import insides
from vit.looking import looks


class Queue(TypedDict):
    concurrency_id: str
    concurrency_limit: int


class Quiet(TypedDict):
    api_visibility: Literal["private"]
    show_progress: Literal["hidden"]


QUIET = Quiet(api_visibility="private", show_progress="hidden")  # for what takes no time

# One group for everything that runs the model, so that visitors share the cores fairly.
MODEL_QUEUE = Queue(concurrency_id="model", concurrency_limit=2)


class Clicks(TypedDict):
    trigger_mode: Literal["multiple"]
    concurrency_id: str
    concurrency_limit: int


# For clicks that bring a place along: every one is answered, in order. With another trigger mode
# the browser asks once more with the place of the first click where it means the last.
CLICKS = Clicks(trigger_mode="multiple", concurrency_id="clicks", concurrency_limit=1)


@dataclass(frozen=True)
class Page:
    """Handed to every tab. Each value is a visitor's own; nothing is shared between visitors.

    checkpoint: its value is the name of a listed checkpoint, or None when there is none.
    chosen: its value is the path of the visitor's photo as it was sent, or None before the first
        photo and after a bad one.
    photo: the input that `chosen` comes from. The Classify tab places it; a path put into it is
        taken for a new photo.
    fit: what of the photo the model sees, "crop" or "letterbox". Placed by the Classify tab too.
    opened: its value is the id of the tab that is open; set in the browser, at once.
    version: its value is another one whenever that of `checkpoint`, `chosen` or `fit` is.
    visitor: its value is the visitor's key, kept in their browser.
    clock: ticks while the Fine-tune tab has something to look at. Like `visitor` it lies outside of
    """

    checkpoint: gr.Dropdown
    chosen: gr.State
    photo: gr.Image
    fit: gr.Radio
    opened: gr.Textbox
    version: gr.Textbox
    visitor: gr.BrowserState
    clock: gr.Timer


class Wanted(NamedTuple):
    """What a tab should show: values of the fields of `Page` with these names; and to whom."""

    checkpoint: str | None
    photo: str | None
    fit: Fit
    visitor: str | None = None


def follow(events: Sequence[Callable[..., Any]], *listener: Any, **settings: Any) -> Dependency:
    """A listener to all of these events: function, inputs, outputs, and what else an event takes.

    It runs once at a time, and at last with the values that are there then, so that a visitor in a
    hurry ends with what was chosen last. And it waits for no other listener: the browser runs
    those that hang on an event itself one by one, each to its end.
    """
    happened = gr.on(list(events), None, None, None, js="() => {}", **QUIET)
    return happened.then(*listener, trigger_mode="always_last", **settings)


def sent_with(event: gr.EventData, name: str) -> Any:
    """What the browser says of an event under this name, or None: it may say anything."""
    return getattr(event, name, None)


def wanted_in(page: Page, tab: gr.Tab) -> gr.State:
    """What `tab` should show, as `Wanted`, or None until it is opened for the first time.

    Follows the page only while the tab is open, so a listener to its `change` computes nothing
    that nobody looks at, and nothing again when the tab is opened again on the same photo: then
    the browser does not even ask.
    """
    seen = gr.Textbox(visible=False)  # the page's version that this tab has asked for
    gr.on(
        [page.opened.change, page.version.change],
        None,
        [page.opened, page.version],
        seen,
        js=f"(opened, version) => opened === {json.dumps(tab.id)} ? version : undefined",
        **QUIET,
    )

    def want(checkpoint: str, photo: str, fit: Fit, request: gr.Request) -> Wanted:
        return Wanted(checkpoint, photo, fit, request.session_hash)

    wanted = gr.State()
    # Through the queue: the browser hears of a changed State from nothing else.
    follow(
        [seen.change],
        want,
        [page.checkpoint, page.chosen, page.fit],
        wanted,
        concurrency_limit=None,
        **QUIET,
    )
    return wanted


def version_of(checkpoint: gr.Dropdown, chosen: gr.State, fit: gr.Radio) -> gr.Textbox:
    """Text that is another one whenever what all tabs look at is: counted in the browser."""
    version = gr.Textbox("1", visible=False)
    gr.on(
        [checkpoint.change, chosen.change, fit.change],
        None,
        version,
        version,
        js="(version) => String(Number(version) + 1)",
        **QUIET,
    )
    return version


_left: deque[str] = deque(maxlen=64)  # pages closed last


def forget(request: gr.Request) -> None:
    """A visitor has closed the page: frees what was kept of the photos that they looked at.

    An event that was still waiting for its turn may ask once more in the name of a closed page;
    what it asked for goes with the next page that closes.
    """
    _left.append(str(request.session_hash))
    for store in (looks, insides):
        for name in tuple(_left):
            store.leave(name)
