"""What one can choose in the Attention tab, and how it lies there."""

from __future__ import annotations

from typing import NamedTuple

import gradio as gr

from vit.card import Card
from vit.looking import Look, Method, Question
from vit.ui.glossary import glossary_html
from vit.ui.seen import ON_PHOTO, ON_WALL
from vit.ui.stop import Stop
from vit.ui.words import kind
from vit.wall import Order

METHODS: list[tuple[str, Method]] = [
    ("Relevance for a dish", "relevance"),
    ("One head", "head"),
    ("Mean of a layer", "mean"),
    ("Strongest head of a layer", "max"),
    ("Rollout", "rollout"),
]
ORDERS: list[tuple[str, Order]] = [
    ("layer", "layer"),
    ("focus (entropy)", "entropy"),
    ("distance", "distance"),
    ("class token's share", "class"),
]


def methods(card: Card) -> list[tuple[str, Method]]:
    """`METHODS` for a model that knows something, in its own words."""
    return [(f"Relevance for a {kind(card)}", "relevance"), *METHODS[1:]]


class Settings(NamedTuple):
    """The values of the controls, in the order of `Controls.all`."""

    method: Method
    dish: int | None
    layer: int | None
    head: int | None
    asks: str
    row: float | None
    column: float | None
    by: bool
    aside: bool
    order: Order
    colours: str
    opacity: float
    smooth: bool
    off: list[str]


def question_of(look: Look, settings: Settings) -> Question:
    """What the controls ask, made to fit this model: another one may have fewer heads."""
    rows, columns = look.grid
    token = None
    if settings.asks == "patch":
        row = min(max(int(settings.row or 1), 1), rows) - 1
        column = min(max(int(settings.column or 1), 1), columns) - 1
        token = row * columns + column
    dish = look.predicted if settings.dish is None else settings.dish
    method = settings.method
    if method == "relevance" and not look.card.trained_head:
        method = "rollout"
    return Question(
        method=method,
        layer=look.depth - 1 if settings.layer is None else min(settings.layer, look.depth - 1),
        head=min(settings.head or 0, look.heads - 1),
        token=token,
        by=bool(settings.by),
        target=min(dish, len(look.logits) - 1),
        aside=bool(settings.aside and look.sinks.patches),
    )


def head_name(layer: int, head: int) -> str:
    """The value of a head among those switched off; a click on the wall makes the same."""
    return f"{layer}.{head}"


def heads_off(look: Look, settings: Settings) -> list[tuple[int, int]]:
    """Those of the chosen heads that this model has."""
    pairs = [text.split(".") for text in settings.off or []]
    heads = [(int(layer), int(head)) for layer, head in pairs]
    return [(layer, head) for layer, head in heads if layer < look.depth and head < look.heads]


class Controls:
    """Draws the tab: the photo beside what to show and the wall, who asks below, more behind
    clicks."""

    def __init__(self) -> None:
        with gr.Row(elem_id="look"):
            self.photo = gr.HTML(js_on_load=ON_PHOTO, elem_id="look-photo")
            with gr.Column(elem_id="look-method", min_width=200):
                self._draw_method()
            with gr.Column(elem_id="look-wall", min_width=200):
                self._draw_wall()
            with gr.Column(elem_id="look-asking", min_width=200):
                self._draw_asking()
        self._draw_more()
        self.all = [
            self.method,
            self.dish,
            self.layer,
            self.head,
            self.asks,
            self.row,
            self.column,
            self.by,
            self.aside,
            self.order,
            self.colours,
            self.opacity,
            self.smooth,
            self.off,
        ]
        assert len(self.all) == len(Settings._fields)

    def _draw_method(self) -> None:
        self.method = gr.Radio(METHODS, value="relevance", label="Show")
        with gr.Row():
            self.dish = gr.Dropdown(label="For the dish", min_width=170, scale=3)
            self.layer = gr.Dropdown(label="Layer", min_width=80, scale=2, visible=False)
            self.head = gr.Dropdown(label="Head", min_width=80, scale=2, visible=False)

    def _draw_wall(self) -> None:
        with gr.Row(elem_id="look-wall-controls"):
            self.order = gr.Dropdown(
                ORDERS, value="layer", label="Every head, ordered by", min_width=150
            )
            self.click_does = gr.Radio(
                [("shows it", "show"), ("switches it off", "off")],
                value="show",
                label="A click on a head",
                min_width=230,
            )
        self.wall = gr.HTML(js_on_load=ON_WALL, elem_id="wall")
        self.off = gr.Dropdown(
            label="Heads switched off", multiselect=True, visible=False, elem_id="heads-off"
        )
        self.off_result = gr.HTML(elem_id="heads-off-result")

    def _draw_asking(self) -> None:
        with gr.Row():
            self.asks = gr.Radio(
                [("the class token", "class"), ("a patch: click the photo", "patch")],
                value="class",
                label="Who asks",
                min_width=200,
            )
            self.row = _place("Row")
            self.column = _place("Column")
        self.by = gr.Radio(
            [("where it looks", False), ("who looks at it", True)], value=False, label="Direction"
        )
        self.sinks = gr.HTML(elem_id="sinks")
        self.aside = gr.Checkbox(label="Set the sinks aside", visible=False)
        self.test = gr.Button("Is this map faithful? Test it", size="sm")
        self.faithful = gr.HTML(elem_id="faithful")
        self.stop_test = Stop(_stopped)

    def _draw_more(self) -> None:
        with gr.Accordion("What these words mean", open=False, elem_id="look-words"):
            gr.HTML(glossary_html())
        with gr.Accordion("Colours", open=False, elem_id="look-colours"), gr.Row():
            self.opacity = gr.Slider(
                0, 100, value=60, step=5, label="Opacity of the map (%)", min_width=160
            )
            self.colours = gr.Radio(
                ["inferno", "viridis"], value="inferno", label="Colours", min_width=160
            )
            self.smooth = gr.Radio(
                [("smooth", True), ("bare patches", False)],
                value=True,
                label="Between patches",
                min_width=160,
            )
        with gr.Accordion("Compare the ways of looking", open=False, elem_id="compare"):
            self.compare = gr.Button("Compare them on this photo, each with its test", size="sm")
            self.stop_compare = Stop(_stopped)
            self.compared = gr.HTML(elem_id="compared")
        with gr.Accordion("Deletion and insertion curves", open=False, elem_id="curves-more"):
            self.draw_curves = gr.Button(
                "Take patches away, and add them, in the map's order", size="sm"
            )
            self.stop_curves = Stop(_stopped)
            self.curves = gr.HTML(elem_id="curves")
        with gr.Accordion("Prediction after each block", open=False, elem_id="blocks-more"):
            self.blocks = gr.HTML(elem_id="blocks")
        with gr.Row(elem_id="look-files"):
            self.save_picture = gr.Button("Download the picture (PNG)", size="sm")
            self.save_numbers = gr.Button("Download the numbers (.npz)", size="sm")
            self.file = gr.DownloadButton("file", visible="hidden", elem_id="look-file")


def _stopped() -> tuple:
    return ('<p role="status">Stopped.</p>',)


def _place(label: str) -> gr.Number:
    return gr.Number(1, label=label, precision=0, min_width=70, visible=False)
