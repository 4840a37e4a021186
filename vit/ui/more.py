"""Real photos as further examples, out of the data set of the course; downloaded when asked for.

`$VIT_PHOTOS_URL` is the address of the folder to take the zip from, instead of the course's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import gradio as gr

from vit.download import CLASSES, COURSE, download_pizza_steak_sushi
from vit.fetch import DownloadError, Progress
from vit.home import home
from vit.speed import TimeLeft
from vit.ui.downloads import SharedDownload, progress_html
from vit.ui.examples import ON_CLICK, copy_of_clicked, thumbnail_button
from vit.ui.page import QUIET, Page, follow
from vit.ui.stop import Stop
from vit.ui.words import trouble_html

EACH = 2  # photos of every dish


def real_photos(page: Page) -> None:
    """A quiet button that becomes a row of photos. A click on one makes it the page's photo."""
    with gr.Row(elem_id="more"):
        button = gr.Button(
            "More: real photos of pizza, steak and sushi", size="sm", visible=False, scale=0
        )
        stop = Stop(lambda: look("Stopped."), scale=0)
        status = gr.HTML(visible=False, elem_id="more-status")
        row = gr.HTML(js_on_load=ON_CLICK, visible=False, elem_classes="pictures")
    parts = [button, status, row]
    follow([page.checkpoint.change], look, None, parts, queue=False, **QUIET)  # at every page load
    stop.ends(
        button.click, fetch, None, parts, concurrency_id="photos", concurrency_limit=32, **QUIET
    )
    row.click(photo_file, None, page.photo, **QUIET)


def photos() -> list[Path]:
    """Some test photos of every dish when the data set is there, else none."""
    folder = home() / "data" / "pizza_steak_sushi" / "test"
    return [path for dish in CLASSES for path in sorted((folder / dish).glob("*.jpg"))[:EACH]]


def photo_file(click: gr.EventData) -> str:
    """A copy of the photo clicked, where uploads lie."""
    return copy_of_clicked(click, photos())


def look(said: str = "") -> tuple[dict, ...]:
    """Button, status and row while nothing is downloaded: the photos or the way to them."""
    there = photos()
    buttons = "".join(
        thumbnail_button(index, path, f"Real photo: {path.parent.name}")
        for index, path in enumerate(there)
    )
    return (
        gr.update(visible=not there),
        gr.update(value=said, visible=bool(said) and not there),
        gr.update(
            value="<div><p>Real photos, out of the data set Food-101</p>"
            f'<div class="examples">{buttons}</div></div>',
            visible=bool(there),
        ),
    )


def fetch() -> Iterator[tuple[dict, ...]]:
    """The same three while the photos come, then `look`, with a sentence when they did not."""
    clock = TimeLeft(None)  # another visitor may have begun it
    try:
        for done, total in _shared.follow():
            yield (
                gr.update(visible=False),
                gr.update(value=progress_html(done, total, clock), visible=True),
                gr.skip(),
            )
    except Exception as error:
        yield look(trouble_html(error))
    else:
        yield look()


def _download(progress: Progress) -> None:
    base = os.environ.get("VIT_PHOTOS_URL", "").strip() or COURSE
    download_pizza_steak_sushi(progress=progress, base=base)
    if not photos():
        raise DownloadError("The photos did not arrive; try again.")


_shared = SharedDownload(_download)


def download_shared() -> Iterator[tuple[int, int | None]]:
    """(bytes done, bytes in all or None) until the course's photos lie in the user's folder; ends
    at once when they do. Raises DownloadError."""
    return _shared.follow()
