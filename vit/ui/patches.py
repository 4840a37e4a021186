"""The Patches tab: the photo as the model reads it, patch by patch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import wraps

import gradio as gr
from gradio.blocks import Block

from vit.images import PhotoError
from vit.inside import TRUSTED, Inside, answer_without, inside, trusted
from vit.ui.examples import no_photo
from vit.ui.grid import ON_LOAD, photo_style
from vit.ui.header import find
from vit.ui.page import CLICKS, MODEL_QUEUE, QUIET, Page, Queue, Wanted, wanted_in
from vit.ui.patch_words import (
    STAGES,
    brush_html,
    change_html,
    filters_html,
    grid_html,
    ledger_html,
    patch_html,
)
from vit.ui.words import trouble_html

# One after another, in the order of the clicks: no answer comes after that to a later click, or
# after those for another photo.
IN_ORDER = Queue(concurrency_id="patches", concurrency_limit=1)

WHEN = [(name, key) for key, name in STAGES.items()]
SHARE = f"{100 * TRUSTED:.0f} %"

Handler = Callable[..., tuple]


def explained(outputs: int) -> Callable[[Handler], Handler]:
    """For a handler of so many outputs: when it raises, the last says why and the rest stay."""

    def wrap(handler: Handler) -> Handler:
        @wraps(handler)
        def wrapped(*values: object) -> tuple:
            try:
                return handler(*values)
            except Exception as error:
                return (gr.skip(),) * (outputs - 1) + (trouble_html(error),)

        return wrapped

    return wrap


def patches_tab(page: Page, tab: gr.Tab) -> None:
    wanted = wanted_in(page, tab)
    removed = gr.State([])  # patch numbers
    filters_open = gr.State(False)
    nothing = no_photo(page, "see it as the model reads it, patch by patch", "patches-empty")
    problem = gr.HTML(visible=False, elem_id="patches-problem")
    with gr.Column(visible=False, elem_id="patches") as shown:
        photo = gr.HTML(elem_classes="hidden-style")
        with gr.Row(elem_id="patch-row"):
            with gr.Column(elem_id="patch-choice"):
                grid = gr.HTML(js_on_load=ON_LOAD, elem_id="patch-grid")
                with gr.Row(elem_id="patch-numbers"):
                    row = gr.Number(label="Row", precision=0, min_width=90)
                    column = gr.Number(label="Column", precision=0, min_width=90)
                    when = gr.Radio(WHEN, value="encoded", label="Compare patches", min_width=240)
            about = gr.HTML(js_on_load=ON_LOAD, elem_id="patch-about")
        shapes = gr.HTML(elem_id="shapes")
        with (
            gr.Accordion("Take patches away", open=False, elem_id="away"),
            gr.Row(elem_id="away-row"),
        ):
            with gr.Column(elem_id="away-choice"):
                gr.HTML(
                    "<p>Click or drag over patches to take them away; over grey ones to give "
                    "them back.</p>"
                )
                brush = gr.HTML(js_on_load=ON_LOAD, elem_id="away-grid")
            with gr.Column(elem_id="away-answer"):
                answer = gr.HTML(elem_id="away-result")
                with gr.Row(elem_id="away-buttons"):
                    most = gr.Button(f"Hide the {SHARE} it trusts most", size="sm")
                    some = gr.Button(f"Hide {SHARE} by chance", size="sm")
                    chosen = gr.Button("Hide or show the patch chosen above", size="sm")
                    back = gr.Button("Put all back", size="sm")
        with gr.Accordion("What the first layer learned", open=False, elem_id="learned") as learned:
            pictures = gr.HTML(elem_id="filters")

    parts: list[Block] = [nothing, problem, shown, photo, row, column, grid, about, shapes]
    parts += [removed, brush, answer, pictures]
    wanted.change(
        show,
        [wanted, row, column, when, filters_open],
        parts,
        api_visibility="private",
        show_progress="minimal",
        show_progress_on=grid,
        trigger_mode="always_last",
        **IN_ORDER,
    )
    for picture in (grid, about):
        picture.click(
            choose,
            [wanted, when],
            [row, column, grid, about],
            **QUIET,
            **CLICKS,
        )
    gr.on(
        [row.input, column.input, when.change],
        by_numbers,
        [wanted, row, column, when],
        [grid, about],
        trigger_mode="always_last",
        **QUIET,
    )
    for trigger, way, more in (
        (brush.click, brushed, []),
        (most.click, without_trusted, []),
        (some.click, without_some, []),
        (chosen.click, chosen_too, [removed, row, column]),
        (back.click, all_back, []),
    ):
        trigger(
            way,
            [wanted, *more],
            [removed, brush, answer],
            api_visibility="private",
            show_progress="minimal",
            show_progress_on=answer,
            trigger_mode="multiple",
            **IN_ORDER,
        )
    learned.expand(look_at_filters, wanted, [filters_open, pictures], **QUIET, **MODEL_QUEUE)
    learned.collapse(lambda: False, None, filters_open, queue=False, **QUIET)


def read(wanted: Wanted | None) -> Inside:
    """What is shown, from what is kept; raises PhotoError when there is no photo."""
    if wanted is None or wanted.photo is None:
        raise PhotoError("There is no photo any more; choose one in Classify.")
    path = find(wanted.checkpoint).path
    return inside(wanted.photo, path, wanted.fit, wanted.visitor)


def show(
    wanted: Wanted | None,
    row: int | None,
    column: int | None,
    when: str,
    filters_open: bool,
) -> tuple:
    """Everything, for another photo, checkpoint or fit. Keeps the place where the grid has it."""
    hidden, visible = gr.update(visible=False), gr.update(visible=True)
    if wanted is None or wanted.photo is None:
        return visible, hidden, hidden, *(gr.skip(),) * 6, [], *(gr.skip(),) * 3
    try:
        this = read(wanted)
        rows, columns = this.grid
        patch = numbered(this, row, column)
        if patch is None:
            patch = rows // 2 * columns + columns // 2
        return (
            hidden,
            hidden,
            visible,
            photo_style(this.photo, "patches"),
            patch // columns + 1,
            patch % columns + 1,
            grid_html(this, patch),
            patch_html(this, patch, when),
            ledger_html(this.card.config, this.preprocess.size),
            *without(this, []),
            filters_html(this.path) if filters_open else "",
        )
    except Exception as error:
        said = gr.update(value=trouble_html(error), visible=True)
        return hidden, said, hidden, *(gr.skip(),) * 6, [], *(gr.skip(),) * 3


@explained(outputs=4)
def choose(click: gr.EventData, wanted: Wanted | None, when: str) -> tuple:
    """A click on a picture of the grid."""
    this = read(wanted)
    patch = checked(click.patch, this)
    row, column = divmod(patch, this.grid[1])
    return row + 1, column + 1, grid_html(this, patch), patch_html(this, patch, when)


@explained(outputs=2)
def by_numbers(wanted: Wanted | None, row: int | None, column: int | None, when: str) -> tuple:
    """The patch of this row and column, both from 1."""
    this = read(wanted)
    patch = numbered(this, row, column)
    if patch is None:
        rows, columns = this.grid
        raise gr.Error(f"Give a row from 1 to {rows} and a column from 1 to {columns}.")
    return grid_html(this, patch), patch_html(this, patch, when)


@explained(outputs=3)
def brushed(click: gr.EventData, wanted: Wanted | None) -> tuple:
    this, sent = read(wanted), click.removed
    if not isinstance(sent, list) or len(sent) > this.reading.patches:
        raise gr.Error("These are no patches.")
    return without(this, [checked(patch, this) for patch in sent])


@explained(outputs=3)
def without_trusted(wanted: Wanted | None) -> tuple:
    this = read(wanted)
    return without(this, trusted(this))


@explained(outputs=3)
def without_some(wanted: Wanted | None) -> tuple:
    """As many as `without_trusted` takes, others each time."""
    this = read(wanted)
    patches = range(this.reading.patches)
    return without(this, random.sample(patches, max(1, round(TRUSTED * len(patches)))))


@explained(outputs=3)
def chosen_too(
    wanted: Wanted | None, removed: list[int], row: int | None, column: int | None
) -> tuple:
    """The chosen patch is taken away, or given back when it was."""
    this = read(wanted)
    patch = numbered(this, row, column)
    if patch is None:
        raise gr.Error("Choose a patch first.")
    return without(this, {*removed} ^ {patch}, patch)


@explained(outputs=3)
def all_back(wanted: Wanted | None) -> tuple:
    return without(read(wanted), [])


@explained(outputs=2)
def look_at_filters(wanted: Wanted | None) -> tuple:
    return True, filters_html(find(wanted.checkpoint if wanted else None).path)


def without(this: Inside, removed: Iterable[int], patch: int = 0) -> tuple:
    """Removed patches, the picture to brush them on, and the answer before and after."""
    gone = sorted(set(removed))
    if not this.card.trained_head:
        said = "This model knows no dishes yet, so there is no answer to change; choose another."
        return [], brush_html(this, [], patch), trouble_html(said)
    before = this.probabilities
    after = answer_without(this, gone) if gone else before
    return gone, brush_html(this, gone, patch), change_html(this, before, after, gone)


def numbered(this: Inside, row: object, column: object) -> int | None:
    """The patch at this row and column, both from 1, or None where the grid has no such place."""
    rows, columns = this.grid
    if not isinstance(row, int) or not isinstance(column, int):
        return None
    there = 1 <= row <= rows and 1 <= column <= columns
    return (row - 1) * columns + column - 1 if there else None


def checked(patch: object, this: Inside) -> int:
    """A patch number that came from the browser."""
    if isinstance(patch, bool) or not isinstance(patch, int):
        raise gr.Error("That is no patch.")
    if not 0 <= patch < this.reading.patches:
        raise gr.Error("There is no such patch.")
    return patch
