"""The Model tab: the guided tour, the architecture, the calculator, and what a model learned."""

from __future__ import annotations

import gradio as gr
from gradio.components import Component

from vit.card import Card
from vit.checkpoint import read_card
from vit.compared import ComparisonError, read_comparison
from vit.ui.architecture import ON_PICTURE, TRAINED, picture_html, table_html
from vit.ui.calculator import Calculator
from vit.ui.compared import compared_html
from vit.ui.header import find
from vit.ui.learned import Learned
from vit.ui.page import MODEL_QUEUE, QUIET, Page, Wanted, wanted_in
from vit.ui.tour import Tour
from vit.ui.words import kind, trouble_html

PARTS = {
    "tour": "Guided tour",
    "architecture": "Architecture",
    "calculator": "Calculator",
    "learned": "What it learned",
}
COMPARED = {"compared": "Compared"}


def model_tab(page: Page, tab: gr.Tab) -> dict[str, Component]:
    """Draw the tab; gives what of it stands in the page's address."""
    drawn = ModelTab(page, tab)
    return {"part": drawn.part, "stop": drawn.tour.stop}


class ModelTab:
    """What is shown is one part at a time, and no other is computed."""

    def __init__(self, page: Page, tab: gr.Tab) -> None:
        wanted = wanted_in(page, tab)
        compared = _compared()
        parts = PARTS | (COMPARED if compared else {})
        self.part = gr.Radio(
            [(name, key) for key, name in parts.items()],
            value="tour",
            show_label=False,
            label="What to show of the model",
            container=False,
            elem_id="model-part",
        )
        self.problem = gr.HTML(visible=False, elem_id="model-problem")
        self.places: dict[str, gr.Column] = {}
        with gr.Column(elem_id="part-tour") as self.places["tour"]:
            self.tour = Tour(page, wanted)
        with gr.Column(visible=False, elem_id="part-architecture") as self.places["architecture"]:
            self._draw_layers()
        with gr.Column(visible=False, elem_id="part-calculator") as self.places["calculator"]:
            self.calculator = Calculator()
        with gr.Column(visible=False, elem_id="part-learned") as self.places["learned"]:
            self.learned = Learned(page)
        if compared:
            with gr.Column(visible=False, elem_id="part-compared") as self.places["compared"]:
                gr.HTML(compared, elem_id="compared-models")
        self._connect(wanted)

    def _draw_layers(self) -> None:
        with gr.Row(elem_id="layers-row"):
            self.picture = gr.HTML(js_on_load=ON_PICTURE, elem_id="architecture")
            with gr.Column(elem_id="layers-table", min_width=240):
                self.trained = gr.Radio(TRAINED, value=False, label="Fine-tuning trains")
                self.table = gr.HTML(elem_id="layers")

    def _connect(self, wanted: gr.State) -> None:
        tour, learned = self.tour, self.learned
        places = list(self.places.values())
        self.part.change(self.turn, self.part, places, queue=False, **QUIET)
        outputs = [
            self.problem,
            self.picture,
            self.table,
            *tour.outputs,
            *self.calculator.outputs,
            *learned.outputs,
        ]
        gr.on(
            [wanted.change, self.part.input],
            self.show,
            [wanted, self.part, self.trained, *learned.inputs, *tour.settings],
            outputs,
            api_visibility="private",
            show_progress="minimal",
            show_progress_on=self.part,
            trigger_mode="always_last",
            **MODEL_QUEUE,
        )
        self.trained.input(self.count, [wanted, self.trained], self.table, **QUIET)
        self.picture.click(self.to_stop, None, [self.part, tour.stop], queue=False, **QUIET).then(
            self.show,
            [wanted, self.part, self.trained, *learned.inputs, *tour.settings],
            outputs,
            **QUIET,
            **MODEL_QUEUE,
        )

    def turn(self, part: str) -> list[dict]:
        return [gr.update(visible=key == part) for key in self.places]

    def to_stop(self, click: gr.EventData) -> tuple:
        """A click on the picture of the architecture opens the tour there."""
        return "tour", self.tour.choose_stop(click)

    def show(self, wanted: Wanted | None, part: str, head_only: bool, *values) -> dict:
        """The part that is open, for this photo and checkpoint."""
        if wanted is None:
            return {self.problem: gr.skip()}
        count = len(self.learned.inputs)
        try:
            path = find(wanted.checkpoint).path
            shown = {self.problem: gr.update(visible=False)}
            if part == "tour":
                return shown | self.tour.open(wanted, *values[count:])
            if part == "architecture":
                return shown | self.layers(read_card(path), head_only)
            if part == "calculator":
                return shown | self.calculator.open(read_card(path).config)
            if part == "learned":
                return shown | self.learned.open(path, *values[:count])
            return shown
        except Exception as error:
            return {self.problem: gr.update(value=trouble_html(error), visible=True)}

    def layers(self, card: Card, head_only: bool) -> dict:
        return {
            self.picture: f"<h3>From photo to {kind(card)}</h3>"
            f"<p>Click a part to see it in the tour.</p>{picture_html(card)}",
            self.table: table_html(card.config, bool(head_only)),
        }

    def count(self, wanted: Wanted | None, head_only: bool) -> str:
        try:
            card = read_card(find(wanted.checkpoint if wanted else None).path)
            return table_html(card.config, bool(head_only))
        except Exception as error:
            return trouble_html(error)


def _compared() -> str:
    """Empty where there is no comparison."""
    try:
        comparison = read_comparison()
    except ComparisonError as error:
        return trouble_html(error)
    return "" if comparison is None else compared_html(comparison)
