"""The guided tour in the Model tab: a stop at a time, each with something to play with."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import gradio as gr
from gradio.components import Component

from vit.guide import Choice, Guided, TourError, first_choice, guide
from vit.lesson import Lesson
from vit.tour import STOPS, Stop, stop
from vit.ui.examples import no_photo
from vit.ui.grid import ON_LOAD, photo_style
from vit.ui.header import find
from vit.ui.page import QUIET, Page, Queue, Wanted, sent_with
from vit.ui.tour_pictures import company, picture_html, stage_html
from vit.ui.tour_words import nav_html, numbers_html, words_html
from vit.ui.words import trouble_html

DRAWING_QUEUE = Queue(concurrency_id="drawing", concurrency_limit=4)
ON_NAV = Path(__file__).with_name("tour.js").read_text(encoding="utf-8")
FIRST = STOPS[0].key
TOKENS = [("the class token", False), ("the patch", True)]


class Settings(NamedTuple):
    """The values of the controls, in the order of `Tour.settings`. patch: None until the tour has
    begun."""

    stop: str
    patch: int | None
    batch: int | None
    block: int | None
    asks: bool | None
    head: int | None
    number: int | None
    neuron: int | None
    dish: int | None
    softness: float | None
    temperature: float | None


def choice_of(this: Guided, settings: Settings) -> Choice:
    """What the controls choose, made to fit this model."""
    if settings.patch is None:
        return first_choice(this)
    return Choice(
        patch=int(settings.patch),
        patch_asks=bool(settings.asks),
        block=int(settings.block or 1) - 1,
        head=int(settings.head or 1) - 1,
        number=int(settings.number or 0),
        neuron=int(settings.neuron or 0),
        dish=settings.dish,
        softness=settings.softness or 1.0,
        temperature=settings.temperature,
        batch=int(settings.batch or 8),
    ).fitted(this)


class Tour:
    """Draws the tour; its methods are what happens in it, each returns new values by component."""

    def __init__(self, page: Page, wanted: gr.State) -> None:
        self.empty = no_photo(page, "take it through the model, step by step", "tour-empty")
        self.problem = gr.HTML(visible=False, elem_id="tour-problem")
        with gr.Column(visible=False, elem_id="tour") as self.body:
            self._draw()
        self._connect(wanted)

    def _draw(self) -> None:
        # the browser has to know the stop: it stands in the page's address
        self.stop, self.patch = gr.Textbox(FIRST, visible=False), gr.State()
        self.photo = gr.HTML(elem_classes="hidden-style")
        self.nav = gr.HTML(nav_html(STOPS[0]), js_on_load=ON_NAV, elem_id="tour-nav")
        with gr.Row(elem_id="tour-row"):
            self.words = gr.HTML(elem_id="tour-words")
            with gr.Column(elem_id="tour-look", min_width=200):
                with gr.Row(elem_id="tour-controls"):
                    self._draw_controls()
                self.stage = gr.HTML(js_on_load=ON_LOAD, elem_id="tour-stage")
                self.picture = gr.HTML(elem_id="tour-picture")
            self.numbers = gr.HTML(elem_id="tour-numbers")
        with gr.Row(elem_id="tour-steps"):
            self.previous = gr.Button("‹ Previous", size="sm", elem_id="tour-previous")
            self.next = gr.Button("Next ›", size="sm", variant="primary", elem_id="tour-next")
        gr.HTML(
            '<p class="note">The arrow keys ← and → go from stop to stop as well.</p>',
            elem_id="tour-keys",
        )

    def _draw_controls(self) -> None:
        def slider(label: str, low: float, high: float, value: float, step: float = 1):
            return gr.Slider(
                low,
                high,
                value=value,
                step=step,
                label=label,
                min_width=200,
                buttons=[],
                visible=False,
            )

        self.batch = slider("Photos in the batch", 1, 1 + max(1, min(24, len(company()))), 8)
        self.block = slider("Block", 1, 12, 12)
        self.asks = gr.Radio(TOKENS, value=False, label="Which token", min_width=220, visible=False)
        self.head = slider("Head", 1, 12, 1)
        self.number = slider("Which number of the token", 0, 1, 0)
        self.neuron = slider("Which hidden number", 0, 1, 0)
        self.dish = gr.Dropdown(label="Dish", min_width=200, visible=False)
        self.softness = slider("Divide the scores by", 0.1, 4, 1, 0.1)
        self.temperature = slider("Temperature T", 0.1, 4, 1, 0.05)
        self.controls: dict[str, Component] = {
            "batch": self.batch,
            "block": self.block,
            "patch_asks": self.asks,
            "head": self.head,
            "number": self.number,
            "neuron": self.neuron,
            "dish": self.dish,
            "softness": self.softness,
            "temperature": self.temperature,
        }
        self.settings: list[Component] = [self.stop, self.patch, *self.controls.values()]
        assert len(self.settings) == len(Settings._fields)

    def _connect(self, wanted: gr.State) -> None:
        quick = {"trigger_mode": "always_last", **QUIET, **DRAWING_QUEUE}
        drawn = [self.stage, self.picture, self.numbers, self.words]
        at_stop = [self.nav, self.previous, self.next, *self.settings[1:], *drawn]
        self.outputs = [self.empty, self.problem, self.body, self.photo, *at_stop]
        asked = [wanted, *self.settings]
        # "multiple": the others forget what a second event brought along
        self.nav.click(
            self.choose_stop,
            None,
            self.stop,
            trigger_mode="multiple",
            concurrency_limit=None,
            **QUIET,
        )
        self.stop.change(self.go, asked, at_stop, **quick)
        self.stage.click(
            self.choose_patch,
            asked,
            [self.patch, self.asks, *drawn],
            trigger_mode="multiple",
            **QUIET,
            **DRAWING_QUEUE,
        )
        gr.on(
            [control.input for control in self.controls.values()],  # pyright: ignore[reportAttributeAccessIssue]
            self.redraw,
            asked,
            drawn,
            **quick,
        )

    def open(self, wanted: Wanted, *values: object) -> dict:
        """The stop where one is, with another photo or checkpoint, or for the first time."""
        hidden, shown = gr.update(visible=False), gr.update(visible=True)
        if wanted.photo is None:
            return {self.empty: shown, self.problem: hidden, self.body: hidden}
        try:
            this = guided(wanted)
            settings = Settings._make(values)._replace(dish=None, temperature=None)
            at, here = choice_of(this, settings), stop(settings.stop)
            return {
                self.empty: hidden,
                self.problem: hidden,
                self.body: shown,
                self.photo: photo_style(this.inside.photo, "tour"),
                self.patch: at.patch,
            } | self._at(this, at, here)
        except Exception as error:
            said = gr.update(value=trouble_html(error), visible=True)
            return {self.empty: hidden, self.problem: said, self.body: hidden}

    def choose_stop(self, click: gr.EventData) -> str:
        return stop(str(sent_with(click, "stop"))).key

    def go(self, wanted: Wanted | None, *values: object) -> dict:
        """Another stop: other controls. Nothing before there is a photo: `open` comes later."""
        if wanted is None or wanted.photo is None:
            return {self.numbers: gr.skip()}
        try:
            settings, this = Settings._make(values), guided(wanted)
            at = choice_of(this, settings)
            return {self.patch: at.patch} | self._at(this, at, stop(settings.stop))
        except Exception as error:
            return {self.numbers: trouble_html(error)}

    def choose_patch(self, click: gr.EventData, wanted: Wanted | None, *values: object) -> dict:
        """A click on the photo. Where one token is looked at, it becomes that patch."""
        try:
            settings, this = Settings._make(values), guided(wanted)
            patch = click.patch
            if isinstance(patch, bool) or not isinstance(patch, int):
                raise TourError("That is no patch; click one on the photo.")
            here = stop(settings.stop)
            asks = settings.asks or ("patch_asks" in here.controls and here.key != "scores")
            settings = settings._replace(patch=patch, asks=asks)
            at = choice_of(this, settings)
            return {self.patch: at.patch, self.asks: at.patch_asks} | self._drawn(this, at, here)
        except Exception as error:
            return {self.numbers: trouble_html(error)}

    def redraw(self, wanted: Wanted | None, *values: object) -> dict:
        try:
            settings, this = Settings._make(values), guided(wanted)
            return self._drawn(this, choice_of(this, settings), stop(settings.stop))
        except Exception as error:
            return {self.numbers: trouble_html(error)}

    def _at(self, this: Guided, at: Choice, here: Stop) -> dict:
        """A stop with its controls, as this model needs them."""
        config = this.inside.card.config
        count = config.width // config.heads if here.per_head else config.width
        who = "Who asks" if here.key in ("scores", "softmax", "weighted") else "Which token"
        of = "the head" if here.per_head else "the token"
        settings = {
            "batch": {"value": at.batch},
            "block": {"value": at.block + 1, "maximum": max(2, this.walk.depth)},
            "patch_asks": {"value": at.patch_asks, "label": who},
            "head": {"value": at.head + 1, "maximum": max(2, config.heads)},
            "number": {
                "value": at.number % count,
                "maximum": max(1, count - 1),
                "label": f"Which number of {of} (0 to {count - 1:,})",
            },
            "neuron": {
                "value": at.neuron,
                "maximum": max(1, config.mlp_width - 1),
                "label": f"Which hidden number (0 to {config.mlp_width - 1:,})",
            },
            "dish": {
                "value": at.dish,
                "choices": [(name, index) for index, name in enumerate(this.dishes)],
            },
            "softness": {"value": at.softness},
            "temperature": {"value": at.temperature},
        }
        useless = {
            name
            for name, many in (
                ("block", this.walk.depth),
                ("head", config.heads),
                ("number", count),
                ("neuron", config.mlp_width),
                ("temperature", 2 if this.inside.card.trained_head else 1),
            )
            if many == 1
        }
        updates = {
            control: gr.update(
                visible=name in here.controls and name not in useless, **settings[name]
            )
            for name, control in self.controls.items()
        }
        steps = {
            self.nav: nav_html(here),
            self.previous: gr.update(interactive=here is not STOPS[0]),
            self.next: gr.update(interactive=here is not STOPS[-1]),
        }
        return steps | updates | self._drawn(this, at, here)

    def _drawn(self, this: Guided, at: Choice, here: Stop) -> dict:
        lesson: Lesson = here.lesson(this, at)
        stage, picture = stage_html(this, at, here), picture_html(this, at, here)
        return {
            self.stage: gr.update(value=stage, visible=bool(stage)),
            self.picture: gr.update(value=picture, visible=bool(picture)),
            self.numbers: numbers_html(lesson),
            self.words: words_html(here, lesson),
        }


def guided(wanted: Wanted | None) -> Guided:
    if wanted is None or wanted.photo is None:
        raise TourError("There is no photo any more; choose one in Classify.")
    return guide(wanted.photo, find(wanted.checkpoint).path, wanted.fit)
