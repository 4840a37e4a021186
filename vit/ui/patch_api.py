"""The endpoint /patches: one photo as a model reads it, and one of its patches, as plain JSON."""

from typing import TypedDict

import gradio as gr
from torch import Tensor

from vit.heat import patch_box
from vit.images import Fit
from vit.inside import inside
from vit.patches import similarity
from vit.summary import ledger
from vit.ui.api import uploaded
from vit.ui.header import find
from vit.ui.words import api_error

Rows = list[list[float]]  # a value for every patch


class Shape(TypedDict):
    """A step from photo to logits and the shape it leaves."""

    name: str
    what: str
    shape: list[int]


class Patch(TypedDict):
    """One patch, and how alike all others are (cosines, from -1 to 1)."""

    checkpoint: str
    grid: list[int]  # rows, columns
    row: int
    column: int
    token: int  # its place among all tokens, the class token being 0
    box: list[float]  # left, top, right, bottom of the patch, in pixels of the photo
    photo_size: list[int]  # width, height
    embedding: list[float]  # of its pixels, before its position is added
    encoded: list[float]  # the same token after the last block
    alike: Rows  # by embedding
    alike_encoded: Rows  # by the token after the last block
    near: Rows  # by position embedding
    shapes: list[Shape]


def patches(
    photo: gr.FileData,
    row: int = 1,
    column: int = 1,
    fit: Fit | None = None,
    checkpoint: str = "",
) -> Patch:
    """How does the model read the photo, patch by patch? One patch with its embedding, how alike
    all others are, and the shapes on the way from the photo to the logits.

    Args:
        photo: The file: handle_file("photo.jpg") in Python; over MCP, as a data: address.
        row: Row of the patch, from 1.
        column: Column of the patch, from 1.
        fit: "crop" (the middle square), "letterbox" (the whole photo) or None (as it was taught).
        checkpoint: Name of the model; empty for the first one in the page's picker.

    Returns:
        "token" and "box" (where the patch lies among the tokens and on the photo)
        "embedding" and "encoded" (what the last block makes of it)
        "alike", "alike_encoded" and "near" (cosines with all patches, in rows)
    """
    try:
        if fit not in ("crop", "letterbox", None):
            raise gr.Error('fit must be "crop", "letterbox" or None.')
        _, path = uploaded(photo)
        this = inside(path, find(checkpoint).path, fit)
        reading, (rows, columns) = this.reading, this.grid
        for name, value, most in (("row", row, rows), ("column", column, columns)):
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise gr.Error(f"{name} must be a whole number from 1 to {most}.")
        patch = (row - 1) * columns + column - 1
        return {
            "checkpoint": this.name,
            "grid": [rows, columns],
            "row": row,
            "column": column,
            "token": reading.prefix + patch,
            "box": [round(edge, 2) for edge in patch_box(this.original_box, this.grid, patch)],
            "photo_size": list(this.photo_size),
            "embedding": _rounded(reading.embedded[patch]),
            "encoded": _rounded(reading.encoded[patch]),
            "alike": _rows(similarity(reading.embedded, patch), columns),
            "alike_encoded": _rows(similarity(reading.encoded, patch), columns),
            "near": _rows(similarity(reading.positions, patch), columns),
            "shapes": [
                {"name": step.name, "what": step.what, "shape": list(step.shape)}
                for step in ledger(this.card.config, this.preprocess.size)
            ],
        }
    except Exception as error:
        raise api_error(error) from error


def _rounded(values: Tensor) -> list[float]:
    return [round(value, 5) for value in values.tolist()]


def _rows(values: Tensor, columns: int) -> Rows:
    numbers = _rounded(values)
    return [numbers[start : start + columns] for start in range(0, len(numbers), columns)]
