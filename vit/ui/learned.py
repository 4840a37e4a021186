"""What the chosen checkpoint learned before it saw any photo of yours: places and filters; and what
becomes of the places on another grid."""

from __future__ import annotations

from functools import lru_cache
from html import escape
from pathlib import Path

import gradio as gr
import numpy as np
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from vit.checkpoint import version
from vit.classifier import Classifier
from vit.heat import paint
from vit.model import resize_positions
from vit.ui.files import data_url
from vit.ui.grid import signed
from vit.ui.header import find
from vit.ui.page import QUIET, Page
from vit.ui.patch_words import filters_html
from vit.ui.words import trouble_html, within

MOST = 32  # rows and columns of the new grid
PLACES = 16  # rows and columns of places whose similarities are drawn


class Learned:
    def __init__(self, page: Page) -> None:
        self.similar = gr.HTML(elem_id="places")
        with gr.Column(elem_id="resize"):
            gr.HTML(
                "<h3>Another grid</h3><p>A larger picture, or a rectangle, has more patches than "
                "places were learned. The embeddings are then a picture with D channels and are "
                "resized like one, bicubic; the class token's is kept as it is.</p>"
            )
            with gr.Row(elem_id="resize-controls"):
                self.rows = gr.Slider(
                    1, MOST, value=24, step=1, label="Rows", min_width=160, buttons=[]
                )
                self.columns = gr.Slider(
                    1, MOST, value=24, step=1, label="Columns", min_width=160, buttons=[]
                )
                self.number = gr.Slider(
                    0,
                    191,
                    value=0,
                    step=1,
                    label="Which number of the embedding",
                    min_width=200,
                    buttons=[],
                )
            self.resized = gr.HTML(elem_id="resized")
        self.filters = gr.HTML(elem_id="model-filters")
        gr.on(
            [self.rows.input, self.columns.input, self.number.input],
            redraw,
            [page.checkpoint, self.rows, self.columns, self.number],
            self.resized,
            trigger_mode="always_last",
            queue=False,
            **QUIET,
        )
        self.inputs = [self.rows, self.columns, self.number]
        self.outputs = [self.similar, self.number, self.resized, self.filters]

    def open(self, checkpoint: Path, rows: int, columns: int, number: int) -> dict:
        width = Classifier.load(checkpoint).model.config.width
        number = int(within(number, 0, width - 1, 0))
        return {
            self.similar: places_html(checkpoint),
            self.number: gr.update(maximum=max(1, width - 1), value=number, visible=width > 1),
            self.resized: resized_html(checkpoint, rows, columns, number),
            self.filters: "<h3>What the first layer learned</h3>" + filters_html(checkpoint),
        }


def redraw(checkpoint: str | None, rows: int, columns: int, number: int) -> str:
    try:
        return resized_html(find(checkpoint).path, rows, columns, number)
    except Exception as error:
        return trouble_html(error)


def places_html(checkpoint: Path) -> str:
    return _places_html(checkpoint, version(checkpoint))


@lru_cache(maxsize=8)
def _places_html(checkpoint: Path, stamp: object) -> str:
    """How alike the position embeddings are: a map of the grid for every place of it (figure 7 of
    Dosovitskiy et al. 2021)."""
    model = Classifier.load(checkpoint).model
    h, w = model.grid
    places = _places(checkpoint)
    rows, columns = _spread(h), _spread(w)
    alike = F.normalize(places, dim=1) @ F.normalize(places, dim=1).T
    sheet = Image.new("RGB", (len(columns) * (w + 1) - 1, len(rows) * (h + 1) - 1), (128, 128, 128))
    for down, row in enumerate(rows):
        for across, column in enumerate(columns):
            heat = alike[row * w + column].clamp(min=0).view(h, w).numpy()
            sheet.paste(paint(heat, top=1.0), (across * (w + 1), down * (h + 1)))
    few = "" if len(rows) == h and len(columns) == w else " Drawn are some of the places."
    return (
        "<h3>Which places are near each other</h3>"
        "<p>Every small map belongs to the patch at its place in the grid and shows how alike all "
        "places' position embeddings are to that one's: bright is 1, dark is 0 or less. "
        "Nobody told the model that a picture has rows and columns: that is how it came to see "
        f"them.{few}</p>"
        f'<img class="pixels places" src="{data_url(sheet)}" alt="{h} × {w} maps, in each the '
        'places near its own are bright">'
    )


def _spread(count: int) -> list[int]:
    """At most `PLACES` of 0 to count − 1, the ends among them."""
    return sorted({round(place) for place in np.linspace(0, count - 1, min(count, PLACES))})


def _places(checkpoint: Path) -> Tensor:
    """(h * w, D), on the grid that the model was taught with."""
    model = Classifier.load(checkpoint).model
    patches = model.grid[0] * model.grid[1]
    return model.pos_embed.detach().float().cpu()[0, -patches:]


def resized_html(checkpoint: Path, rows: int, columns: int, number: int) -> str:
    """One number of every place, and the places near the middle, before and after."""
    model = Classifier.load(checkpoint).model
    grid, number = model.grid, int(within(number, 0, model.config.width - 1, 0))
    new = int(within(rows, 1, MOST, 24)), int(within(columns, 1, MOST, 24))
    positions = model.pos_embed.detach().float().cpu()
    in_front = model.config.class_tokens
    resized = resize_positions(positions, grid, new, in_front)
    before, after = positions[0, -grid[0] * grid[1] :], resized[0, -new[0] * new[1] :]
    low, high = before[:, number].min().item(), before[:, number].max().item()
    (p_h, p_w), (D, front) = model.config.patch_size, (positions.shape[2], positions.shape[1])
    cells = "".join(
        f"<figure>{_picture(_levels(places[:, number], low, high), shape)}<figcaption>"
        f"<b>{name}, {shape[0]} × {shape[1]}</b> number {number} of each place, {signed(low)} to "
        f"{signed(high)}</figcaption></figure>"
        f"<figure>{_picture(_middle(places, shape), shape)}<figcaption><b>{name}, {shape[0]} × "
        f"{shape[1]}</b> likeness to the middle place</figcaption></figure>"
        for name, places, shape in (("Before", before, grid), ("After", after, new))
    )
    same = (
        "<p>It is the grid that was learned: nothing happens.</p>"
        if grid == new
        else "<p>The pattern stays, only finer or coarser: a model can be used at a size that it "
        "was not taught with, and fine-tuning there does the rest.</p>"
    )
    return (
        f'<p class="note">{in_front} + {grid[0]} × {grid[1]} = {front:,} embeddings of {D} numbers '
        f"→ {in_front} + {new[0]} × {new[1]} = {resized.shape[1]:,}: a picture of "
        f"{new[0] * p_h} × {new[1] * p_w} pixels.</p>"
        f'<div class="before-after">{cells}</div>{same}'
    )


def _levels(values: Tensor, low: float, high: float) -> Tensor:
    return (values - low) / max(high - low, 1e-9)


def _middle(places: Tensor, shape: tuple[int, int]) -> Tensor:
    middle = places[shape[0] // 2 * shape[1] + shape[1] // 2]
    return F.cosine_similarity(places, middle[None], dim=1).clamp(min=0)


def _picture(levels: Tensor, shape: tuple[int, int]) -> str:
    picture = paint(levels.view(shape).numpy(), top=1.0)
    said = escape(f"A map of {shape[0]} × {shape[1]} places")
    return (
        f'<img class="pixels" src="{data_url(picture)}" alt="{said}" '
        f'style="aspect-ratio:{shape[1]}/{shape[0]}">'
    )
