"""The Attention tab: where the model looks, every head of it, on the photo chosen in Classify."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import gradio as gr
from gradio.components import Component

from vit import captions
from vit.looking import Look, Question, look_at
from vit.ui.attention_controls import (
    METHODS,
    Controls,
    Settings,
    head_name,
    heads_off,
    methods,
    question_of,
)
from vit.ui.examples import no_photo
from vit.ui.faithful import comparison_html, faithful_html
from vit.ui.faithful_curves import curves_html
from vit.ui.header import find
from vit.ui.insights import blocks_html, heads_off_html, numbers_file, picture_file
from vit.ui.page import CLICKS, MODEL_QUEUE, QUIET, Page, Queue, Wanted, sent_with, wanted_in
from vit.ui.seen import ahead_html, photo_html, wall_html
from vit.ui.words import kind, notice, trouble_html

# What only picks and draws does not wait for the model that runs for somebody else.
DRAWING_QUEUE = Queue(concurrency_id="drawing", concurrency_limit=4)

# The file is there; Gradio's own button fetches it.
FETCH = """() => setTimeout(() => {
  const button = document.querySelector("#look-file");
  (button.matches("a, button") ? button : button.querySelector("a, button")).click();
}, 100)"""

# A click on the wall switches a head off or on again, in the browser: so two clicks at once are two
# switches. The change of the list does the rest.
SWITCH = """(does, off) => {
  const name = document.getElementById("wall").dataset.clicked, was = off ?? [];
  if (does !== "off" || !name) return;
  return [was.includes(name) ? was.filter((other) => other !== name) : [...was, name]];
}"""

Asked = tuple[Look, Question, Settings]


def attention_tab(page: Page, tab: gr.Tab) -> dict[str, Component]:
    """Draw the tab; gives what of it stands in the page's address."""
    on = AttentionTab(page, tab).on
    return {"method": on.method, "layer": on.layer, "head": on.head}


def look_for(wanted: Wanted | None) -> Look | None:
    """The photo and the checkpoint that the page has chosen; None while there is no photo. Kept,
    or computed again when it has been forgotten meanwhile."""
    if wanted is None or wanted.photo is None:
        return None
    path = find(wanted.checkpoint).path
    return look_at(wanted.photo, path, wanted.fit, wanted.visitor)


def asked_of(wanted: Wanted | None, values: tuple) -> Asked | None:
    """What is asked of which photo; `values` are those of `Controls.all`."""
    settings = Settings(*values)
    look = look_for(wanted)
    return None if look is None else (look, question_of(look, settings), settings)


class AttentionTab:
    """Its methods are what happens in the tab; each returns new values by component."""

    def __init__(self, page: Page, tab: gr.Tab) -> None:
        self.empty = no_photo(page, "see where the model looks", elem_id="attention-empty")
        with gr.Column(visible=False, elem_id="attention") as self.body:
            self.on = Controls()
        self._connect(wanted_in(page, tab))

    def _connect(self, wanted: gr.State) -> None:
        on = self.on
        asked = [wanted, *on.all]
        shown = [on.photo, on.wall, on.faithful, on.curves, on.layer, on.head, on.row, on.column]
        chosen = [on.method, on.dish, on.asks, on.aside, on.sinks, on.off, on.off_result]
        model = {"api_visibility": "private", "trigger_mode": "always_last", **MODEL_QUEUE}
        draw = {"trigger_mode": "always_last", **QUIET, **DRAWING_QUEUE}
        busy = {"show_progress": "minimal", "show_progress_on": on.photo}
        self.drawn = gr.State()  # the question that was answered when the tab opened on this photo
        wanted.change(
            self.open,
            asked,
            [self.empty, self.body, *shown, *chosen, on.compared],
            **model,
            **busy,
        ).then(  # after the wall: relevance runs the model once more
            self.first, asked, [on.photo, self.drawn], **model, **busy
        ).then(self.catch_up, [self.drawn, *asked], shown, **draw).then(
            self.show_blocks, wanted, on.blocks, **QUIET, **MODEL_QUEUE
        )
        on_photo = (on.opacity, on.smooth)
        gr.on([each.input for each in on_photo], self.redraw_photo, asked, on.photo, **draw)
        quick = [each for each in on.all if each not in (on.dish, on.off, *on_photo)]
        gr.on([each.input for each in quick], self.redraw, asked, shown, **draw)  # pyright: ignore[reportAttributeAccessIssue]
        on.dish.input(self.redraw, asked, shown, **model, **busy)  # may run the model backwards
        on.photo.click(self.ask_patch, asked, [on.asks, *shown], **QUIET, **CLICKS)
        on.wall.click(None, [on.click_does, on.off], on.off, js=SWITCH, **QUIET)
        on.wall.click(
            self.choose_head, [on.click_does, *asked], [on.method, *shown], **QUIET, **CLICKS
        )
        on.click_does.input(
            lambda does, off: gr.update(visible=does == "off" or bool(off)),
            [on.click_does, on.off],
            on.off,
            queue=False,
            **QUIET,
        )
        on.off.change(
            self.switch_off, asked, [on.wall, on.off_result], show_progress="hidden", **model
        )
        for button, make, result, stop in (
            (on.test, self.test_map, on.faithful, on.stop_test),
            (on.compare, self.compare, on.compared, on.stop_compare),
            (on.draw_curves, self.curves, on.curves, on.stop_curves),
        ):
            stop.ends(button.click, make, asked, [result], **QUIET, **MODEL_QUEUE)
        another = [each.input for each in quick] + [on.dish.input, on.photo.click, on.wall.click]  # pyright: ignore[reportAttributeAccessIssue]
        for stop in (on.stop_test, on.stop_curves):  # what is under way is about the map before
            stop.also(partial(gr.on, another))
        for button, make in (
            (on.save_picture, self.picture),
            (on.save_numbers, self.numbers),
        ):
            button.click(make, asked, on.file, **QUIET, **DRAWING_QUEUE).success(
                None, None, None, js=FETCH, **QUIET
            )

    def open(self, wanted: Wanted | None, *values: object) -> dict:
        """Another photo, checkpoint or fit, or the tab is opened for the first time: the wall."""
        settings = Settings._make(values)._replace(dish=None, asks="class", off=[])
        try:
            asked = asked_of(wanted, settings)
            if asked is None:
                return {self.empty: gr.update(visible=True), self.body: gr.update(visible=False)}
            look, question, settings = asked
            choices, around = self._choices(look, question), self._around(*asked)
            return (
                {self.on.photo: ahead_html(look)}
                | around
                | {
                    part: around.get(part, {}) | value if isinstance(value, dict) else value
                    for part, value in choices.items()
                }
            )
        except Exception as error:
            return {
                self.empty: gr.update(visible=False),
                self.body: gr.update(visible=True),
                self.on.photo: trouble_html(error),
                self.on.wall: "",
            }

    def first(self, wanted: Wanted | None, *values: object) -> dict:
        """The map that the tab opens with. Sets no control: a click may come before it is there."""
        try:
            asked = asked_of(wanted, values)
            if asked is None:
                return {self.on.photo: gr.skip()}
            return {self.on.photo: _photo(*asked), self.drawn: asked[1]}
        except Exception as error:
            return {self.on.photo: trouble_html(error), self.drawn: None}

    def catch_up(self, drawn: Question | None, wanted: Wanted | None, *values: object) -> dict:
        """What was asked for while the first map was on its way, and may lie under it."""
        try:
            asked = asked_of(wanted, values)
        except Exception:  # `first` has said it
            asked = None
        if asked is None or drawn is None or asked[1] == drawn:
            return {self.on.photo: gr.skip()}
        return self.redraw(wanted, *values)

    def _choices(self, look: Look, question: Question) -> dict:
        """What this model has to choose from."""
        on = self.on
        knows = look.card.trained_head
        dishes = [(name, index) for index, name in enumerate(look.card.labels)]
        heads = [
            (f"L{layer + 1} H{head + 1}", head_name(layer, head))
            for layer in range(look.depth)
            for head in range(look.heads)
        ]
        return {
            self.empty: gr.update(visible=False),
            self.body: gr.update(visible=True),
            on.method: gr.update(
                choices=methods(look.card) if knows else METHODS[1:], value=question.method
            ),
            on.dish: gr.update(
                label=f"For the {kind(look.card)}",
                choices=dishes,
                value=question.target,
                visible=knows,
            ),
            on.layer: gr.update(choices=_numbered(look.depth), value=question.layer),
            on.head: gr.update(choices=_numbered(look.heads), value=question.head),
            on.asks: "class",
            on.aside: gr.update(visible=bool(look.sinks.patches)),
            on.sinks: f"<p>{captions.sinks_found(look)}</p>",
            on.off: gr.update(choices=heads, value=[]),
            on.off_result: "",
            on.compared: "",
        }

    def _shown(self, look: Look, question: Question, settings: Settings) -> dict:
        """The photo and the wall, and the controls that belong to what is shown."""
        return {self.on.photo: _photo(look, question, settings)} | self._around(
            look, question, settings
        )

    def _around(self, look: Look, question: Question, settings: Settings) -> dict:
        """All of it but the photo."""
        on, method = self.on, question.method
        row, column = divmod(question.token or 0, look.grid[1])
        asks = question.token is not None
        off = heads_off(look, settings)
        return {
            on.wall: wall_html(look, question, settings.order, settings.colours, off),
            on.faithful: "",
            on.curves: "",
            on.layer: gr.update(visible=method in ("head", "mean", "max"), value=question.layer),
            on.head: gr.update(visible=method == "head", value=question.head),
            on.row: _place(asks, settings.row, row),
            on.column: _place(asks, settings.column, column),
        }

    def redraw(self, wanted: Wanted | None, *values: object, extra: dict | None = None) -> dict:
        try:
            asked = asked_of(wanted, values)
            return (
                {self.on.photo: gr.skip()} if asked is None else self._shown(*asked) | (extra or {})
            )
        except Exception as error:
            return {self.on.photo: trouble_html(error)}

    def redraw_photo(self, wanted: Wanted | None, *values: object) -> str | dict:
        """The same map in other dress; the wall stays."""
        try:
            asked = asked_of(wanted, values)
            return gr.skip() if asked is None else _photo(*asked)
        except Exception as error:
            return trouble_html(error)

    def ask_patch(self, click: gr.EventData, wanted: Wanted | None, *values: object) -> dict:
        """A click on the photo: that patch asks."""
        row, column = sent_with(click, "row"), sent_with(click, "column")
        if not isinstance(row, int) or not isinstance(column, int):
            return {self.on.photo: gr.skip()}
        settings = Settings._make(values)._replace(asks="patch", row=row + 1, column=column + 1)
        return self.redraw(wanted, *settings, extra={self.on.asks: "patch"})

    def choose_head(
        self, click: gr.EventData, click_does: str, wanted: Wanted | None, *values: object
    ) -> dict:
        """A click on the wall shows a head large, where it does not switch it."""
        layer, head = sent_with(click, "layer"), sent_with(click, "head")
        if click_does == "off" or not isinstance(layer, int) or not isinstance(head, int):
            return {self.on.photo: gr.skip()}
        settings = Settings._make(values)._replace(method="head", layer=layer, head=head)
        return self.redraw(wanted, *settings, extra={self.on.method: "head"})

    def switch_off(self, wanted: Wanted | None, *values: object) -> dict:
        """Other heads are switched off."""
        try:
            asked = asked_of(wanted, values)
            if asked is None:
                return {self.on.off_result: ""}
            look, question, settings = asked
            off = heads_off(look, settings)
            return {
                self.on.wall: wall_html(look, question, settings.order, settings.colours, off),
                self.on.off_result: heads_off_html(look, off),
            }
        except Exception as error:
            return {self.on.off_result: trouble_html(error)}

    def show_blocks(self, wanted: Wanted | None) -> str:
        try:
            look = look_for(wanted)
            return "" if look is None else blocks_html(look)
        except Exception as error:
            return trouble_html(error)

    def test_map(self, wanted: Wanted | None, *values: object) -> Iterator[tuple]:
        yield from _slow(wanted, values, _of_the_whole(faithful_html))

    def compare(self, wanted: Wanted | None, *values: object) -> Iterator[tuple]:
        yield from _slow(wanted, values, comparison_html)

    def curves(self, wanted: Wanted | None, *values: object) -> Iterator[tuple]:
        yield from _slow(wanted, values, _of_the_whole(curves_html))

    def picture(self, wanted: Wanted | None, *values: object) -> str:
        return self._file(wanted, values, picture_file)

    def numbers(self, wanted: Wanted | None, *values: object) -> str:
        return self._file(wanted, values, numbers_file)

    def _file(self, wanted: Wanted | None, values: tuple, make: Callable[..., str]) -> str:
        try:
            if asked := asked_of(wanted, values):
                return make(*asked)
            raise gr.Error("Choose a photo first.")
        except Exception as error:
            raise notice(error) from error


def _slow(
    wanted: Wanted | None,
    values: tuple,
    make: Callable[[Look, Question, Settings], Iterator[str]],
) -> Iterator[tuple]:
    """What `make` has to show, one HTML after another."""
    try:
        if asked := asked_of(wanted, values):
            for html in make(*asked):
                yield (html,)
    except Exception as error:
        yield (trouble_html(error),)


def _of_the_whole(
    make: Callable[[Look, Question], Iterator[str]],
) -> Callable[[Look, Question, Settings], Iterator[str]]:
    """The same, saying so where heads are switched off: the map is one of the whole model."""

    def said(look: Look, question: Question, settings: Settings) -> Iterator[str]:
        note = "<p>Map and test are of the model with every head on.</p>"
        for html in make(look, question):
            yield html + note * bool(heads_off(look, settings))

    return said


def _photo(look: Look, question: Question, settings: Settings) -> str:
    opacity = settings.opacity / 100
    return photo_html(look, question, settings.colours, opacity, bool(settings.smooth))


def _place(asks: bool, typed: float | None, place: int) -> dict:
    """The row or column of the patch that asks; a field being emptied is left alone."""
    return gr.update(visible=asks) if typed is None else gr.update(visible=asks, value=place + 1)


def _numbered(count: int) -> list[tuple[str, int]]:
    return [(str(index + 1), index) for index in range(count)]
