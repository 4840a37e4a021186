"""Our own pictures to click, those of dishes that the model knows first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from html import escape
from pathlib import Path

import gradio as gr

from vit.card import CheckpointError
from vit.images import open_photo
from vit.names import dish_name
from vit.ui.files import data_url, keep_file
from vit.ui.header import find
from vit.ui.page import QUIET, Page, follow, sent_with

EXAMPLES = Path(__file__).parents[2] / "examples"
UNKNOWN = 3  # pictures of other dishes to try, at most
THUMBNAIL = 180  # pixels of the short side

# For an HTML component of `thumbnail_button`s: its click event carries the index.
ON_CLICK = """
element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-example]");
  if (!button) return;
  trigger("click", { example: Number(button.dataset.example) });
  const photo = document.querySelector("#photo");
  if (photo?.getBoundingClientRect().top < 0) photo.scrollIntoView(); // on a phone it lies far up
});
"""


def examples() -> list[Path]:
    """In order: no hidden file and nothing that is not named as a JPEG."""
    found = sorted(EXAMPLES.glob("*.jpg"))
    return [path for path in found if path.is_file() and not path.name.startswith(".")]


def examples_row(page: Page, elem_id: str) -> gr.HTML:
    """The pictures as buttons; a click makes one the photo of the whole page."""
    row = gr.HTML(
        examples_html(None),
        js_on_load=ON_CLICK,
        visible=bool(examples()),
        elem_id=elem_id,
        elem_classes="pictures",
    )
    row.click(example_file, None, page.photo, **QUIET)
    follow([page.checkpoint.change], examples_html, page.checkpoint, row, **QUIET)
    return row


def no_photo(page: Page, what: str, elem_id: str) -> gr.Column:
    """For a tab that shows nothing yet: what to do, and the examples. `what` ends the sentence
    "Choose one in Classify, or one of these, to ..."."""
    with gr.Column(elem_id=elem_id, elem_classes="no-photo") as column:
        gr.HTML(
            '<div class="empty"><h3>No photo yet</h3>'
            f"<p>Choose one in Classify, or one of these, to {escape(what)}.</p></div>"
        )
        examples_row(page, elem_id=f"{elem_id}-examples")
    return column


def examples_html(checkpoint: str | None) -> str:
    """Buttons; first the dishes that this checkpoint, or the first one, was taught."""
    try:
        return _for_classes(find(checkpoint).card.classes)
    except CheckpointError:
        return _for_classes(())


def _for_classes(classes: Sequence[str]) -> str:
    known, unknown = [], []
    for index, path in enumerate(examples()):
        row = known if any(shows(path.stem, name) for name in classes) else unknown
        row.append(thumbnail_button(index, path, f"Example: {dish_name(path.stem)}"))
    if not known:
        known, unknown = unknown, []
    parts = {"Or try one of these": known, "And some it was never taught": unknown[:UNKNOWN]}
    return "".join(
        f'<div><p>{title}</p><div class="examples">{"".join(row)}</div></div>'
        for title, row in parts.items()
        if row
    )


def shows(picture: str, dish: str) -> bool:
    """Whether a picture called "pizza_margherita" shows a "pizza", which may be written "Pizza"."""
    name = "_".join(dish.casefold().replace("_", " ").split())
    return f"{picture}_".startswith(f"{name}_")


def example_file(click: gr.EventData) -> str:
    """A copy of the picture clicked, where uploads lie."""
    return copy_of_clicked(click, examples())


def copy_of_clicked(click: gr.EventData, pictures: Sequence[Path]) -> str:
    index = sent_with(click, "example")
    if not isinstance(index, int) or not 0 <= index < len(pictures):
        raise gr.Error("There is no such example.", print_exception=False)
    path = pictures[index]
    return keep_file(path.read_bytes(), path.name)


def thumbnail_button(index: int, path: Path, name: str) -> str:
    return (
        f'<button type="button" data-example="{index}" aria-label="{escape(name)}" '
        f'title="{escape(name)}"><img src="{_small_copy(path)}" alt=""></button>'
    )


@lru_cache(maxsize=64)
def _small_copy(path: Path) -> str:
    """As a data URL, so that the page names no path of this machine."""
    small = open_photo(path, at_least=THUMBNAIL).image
    small.thumbnail((2 * THUMBNAIL, 2 * THUMBNAIL))
    return data_url(small, "JPEG", quality=80)
