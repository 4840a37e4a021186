"""More models: published ones, fetched into the picker when there is a network."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from html import escape

import gradio as gr

from vit import settings
from vit.checkpoint import available
from vit.sources import SOURCES, pull, reachable
from vit.speed import TimeLeft
from vit.ui.downloads import SharedDownload, progress_html
from vit.ui.page import QUIET
from vit.ui.stop import Stop
from vit.ui.visitor import token_of_address, visitor_of
from vit.ui.words import going_html, trouble_html

OFFLINE = (
    "Published models come from the web, and it cannot be reached from here now; open this list "
    "again when it can."
)
OWNER = (
    "Only whoever runs this page may add published models to it, opening it as /?owner=TOKEN; "
    "on a machine of yours everyone may."
)


def published_models(button: gr.Button, picker: gr.Dropdown) -> None:
    """What `button` opens: a list of published models, and the way to have one in the picker.

    Whether there is a network is found out when it is opened, not before.
    """
    is_open = gr.State(False)
    with gr.Column(visible=False, elem_id="published") as panel:
        with gr.Row(elem_id="published-choice") as row:
            choice = gr.Dropdown(
                [(f"{each.title} · {each.megabytes} MB", each.name) for each in SOURCES],
                label="Published models",
                elem_id="published-name",
                scale=1,
            )
            get = gr.Button("Get it", variant="primary", size="sm", scale=0, min_width=90)
            stop = Stop(lambda: idle("Stopped."), scale=0, min_width=90)
        status = gr.HTML(elem_id="published-status")
    button.click(toggled, is_open, [is_open, panel, row, status, button], **QUIET)
    parts = [get, status, picker]
    stop.ends(
        get.click, fetched, choice, parts, concurrency_id="published", concurrency_limit=32, **QUIET
    )


def may_pull(request: gr.Request) -> bool:
    """All models together take over a gigabyte, and stay, of the disk that runs share: on a Space
    that is for its owner to decide."""
    visitor = visitor_of("", token_of_address(request))
    return settings.choice("VIT_PULL") == "everyone" or visitor.is_owner


def toggled(is_open: bool, request: gr.Request) -> Iterator[tuple]:
    """Open the panel, with the list or with why there is none; or close it."""
    if is_open:
        yield False, gr.update(visible=False), gr.skip(), gr.skip(), gr.update(value="More models")
        return
    shown = gr.update(visible=True)
    yield (
        True,
        shown,
        gr.update(visible=False),
        '<p role="status">Looking for the network …</p>',
        gr.update(value="Fewer models"),
    )
    why_not = OWNER if not may_pull(request) else "" if reachable() else OFFLINE
    said = f'<p role="status">{escape(why_not)}</p>' if why_not else ""
    yield True, shown, gr.update(visible=not why_not), said, gr.skip()


def idle(said: str = "") -> tuple[dict, str, dict]:
    """Get it, status and picker while nothing is fetched; the picker keeps its choice."""
    return gr.update(visible=True), said, gr.skip()


def fetched(name: str | None, request: gr.Request) -> Iterator[tuple[dict, str, dict]]:
    """The same three while a model comes; afterwards it is one of the picker's choices."""
    if not may_pull(request):
        yield idle(trouble_html(OWNER))
        return
    if name not in _shared:
        yield idle(trouble_html("Choose one of the published models first."))
        return
    clock = TimeLeft(None)  # another visitor may have begun it
    try:
        for done, total in _shared[name].follow():
            ready = bool(total) and done == total
            said = going_html("Made ready …") if ready else progress_html(done, total, clock)
            yield gr.update(visible=False), said, gr.skip()
    except Exception as error:
        yield idle(trouble_html(error))
    else:
        said = f'<p role="status"><b>{escape(name)}</b> is in the list of models now.</p>'
        names = [entry.name for entry in available()]
        yield *idle(said)[:2], gr.update(choices=names)


_shared = {each.name: SharedDownload(partial(pull, each.name)) for each in SOURCES}
