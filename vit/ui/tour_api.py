"""The endpoint /tour: one photo through a model, stop by stop, as Markdown with its own numbers."""

from typing import TypedDict

import gradio as gr

from vit.guide import first_choice, guide
from vit.images import Fit
from vit.lesson import markdown
from vit.tour import STOPS
from vit.ui.api import uploaded
from vit.ui.header import find
from vit.ui.words import api_error


class TourStop(TypedDict):
    """One step on the way from photo to answer."""

    stop: str  # its name, as in /tour's parameter and in the page's address
    title: str
    part: str  # of the way it lies in
    markdown: str  # words, equations in LaTeX, shapes, tables of real numbers, lines of our code


class Tour(TypedDict):
    """The stops, in order."""

    stops: list[TourStop]
    checkpoint: str


def tour(photo: gr.FileData, stop: str = "", fit: Fit | None = None, checkpoint: str = "") -> Tour:
    """How does a Vision Transformer get from this photo to its answer? A guided tour in 18 stops,
    each with its equation, its shapes, this photo's own numbers and the code that does it.

    Args:
        photo: The file: handle_file("photo.jpg") in Python; over MCP, as a data: address.
        stop: Name of one stop, such as "patches", "softmax" or "logits"; empty for all of them.
        fit: "crop" (the middle square), "letterbox" (the whole photo) or None (as it was taught).
        checkpoint: Name of the model; empty for the first one in the page's picker.

    Returns:
        "stops" with their names, titles and "markdown"
    """
    try:
        if fit not in ("crop", "letterbox", None):
            raise gr.Error('fit must be "crop", "letterbox" or None.')
        names = [each.key for each in STOPS]
        if stop and stop not in names:
            raise gr.Error(f"stop must be empty or one of {', '.join(names)}.")
        _, path = uploaded(photo)
        this = guide(path, find(checkpoint).path, fit)
        at = first_choice(this)
        return {
            "stops": [
                {
                    "stop": each.key,
                    "title": each.title,
                    "part": each.part,
                    "markdown": markdown(str(number), each.title, each.lesson(this, at)),
                }
                for number, each in enumerate(STOPS, 1)
                if stop in ("", each.key)
            ],
            "checkpoint": this.inside.name,
        }
    except Exception as error:
        raise api_error(error) from error
