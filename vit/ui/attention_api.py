"""Named endpoints for what the Attention tab shows; layers and heads count from 1, as in the page,
patches by rows from 0."""

import statistics
from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict, get_args

import gradio as gr
from torch import Tensor

from vit import captions, faithfulness
from vit.images import Fit
from vit.looking import METHODS, Look, LookError, Method, Question, look_at
from vit.names import dish_name
from vit.readings import (
    after_each_block,
    check,
    curves_of,
    heat_of,
    needs_dishes,
    tested,
    without,
)
from vit.ui.api import uploaded
from vit.ui.header import find
from vit.ui.words import api_error
from vit.wall import scale_top

Direction = Literal["looks at", "looked at by"]


class SinkPatches(TypedDict):
    """Patches that take far more than their share of what the class token gives to patches."""

    patches: list[int]
    share: float  # of what the class token gives to patches, in these layers
    even: float  # what so many patches would take if all were alike
    layers: list[int]


class Map(TypedDict):
    """A map over the patches of what the model saw."""

    drawn: str  # what the values are, in a sentence
    values: list[list[float]]  # rows of columns
    grid: list[int]  # rows, columns
    box: list[float]  # left, top, right, bottom of the grid, in pixels of the photo
    photo_size: list[int]  # width, height
    scale_top: float  # where the page's colours end: the 98th percentile
    sinks: SinkPatches
    dish: NotRequired[str]  # whose relevance it is
    checkpoint: str


class Test(TypedDict):
    """The dish's probability, nothing hidden and a fifth of the patches hidden."""

    before: float
    after: float  # those hidden that the map rates highest
    random_mean: float  # as many hidden at random
    random_std: float
    removed: int
    patches: int  # that may be hidden: all but the sinks
    draws: int


class Curve(TypedDict):
    """The dish's probability as patches go (deletion) or come (insertion), the map's brightest
    first."""

    shares: list[float]  # of the patches, from 0 to 1
    probabilities: list[float]
    area: float  # under the curve: for deletion a small one is good, for insertion a large one
    random_area: float  # mean over orders of chance
    random_std: float
    draws: int


class Shares(TypedDict):
    """What the head makes of the class token after a block."""

    block: int
    probabilities: list[float]


class Explanation(TypedDict):
    """Why the model answers so."""

    dish: str
    drawn: str
    classes: list[str]  # the order of all probabilities
    probabilities: list[float]
    faithfulness: Test
    after_each_block: list[Shares]
    without_heads: NotRequired[list[float]]
    deletion: NotRequired[Curve]
    insertion: NotRequired[Curve]
    checkpoint: str


def attention(
    photo: gr.FileData,
    method: Method = "relevance",
    layer: int | None = None,
    head: int = 1,
    token: int | None = None,
    direction: Direction = "looks at",
    dish: str = "",
    fit: Fit | None = None,
    checkpoint: str = "",
) -> Map:
    """Where does the model look? A map over the patches of the photo, as rows of numbers.

    Args:
        photo: The file: handle_file("photo.jpg") in Python; over MCP, as a data: address.
        method: "relevance" (for a dish), "head", "mean", "max" (of a layer's heads) or "rollout".
        layer: For "head", "mean" and "max", from 1; None for the last.
        head: For "head", from 1.
        token: The patch that asks, by rows from 0; None for the class token.
        direction: "looks at", or "looked at by" for how much each patch looks at the token.
        dish: For "relevance", as the model was taught it; empty for the likeliest.
        fit: "crop" (the middle square), "letterbox" (the whole photo) or None (as it was taught).
        checkpoint: Name of the model; empty for the first one in the page's picker.

    Returns:
        "values" (one for each patch, in rows)
        "drawn" (what they are, in a sentence)
        "box" (where the grid lies on the photo)
        "sinks" (patches that take more than their share)
    """
    try:
        look = _look(photo, fit, checkpoint)
        question = _question(look, method, layer, head, token, direction, dish)
        heat, sinks = heat_of(look, question), look.sinks
        answer = Map(
            drawn=captions.drawn(look, question),
            values=[[float(f"{value:.5g}") for value in row] for row in heat.tolist()],
            grid=list(look.grid),
            box=[round(edge, 2) for edge in look.original_box],
            photo_size=list(look.photo_size),
            scale_top=scale_top(heat),
            sinks=SinkPatches(
                patches=list(sinks.patches),
                share=round(sinks.share, 4),
                even=round(sinks.even, 4),
                layers=[layer + 1 for layer in sinks.layers],
            ),
            checkpoint=look.name,
        )
        if method == "relevance":
            answer["dish"] = look.card.labels[question.aim(look)]
        return answer
    except Exception as error:
        raise api_error(error) from error


def explain(
    photo: gr.FileData,
    dish: str = "",
    method: Method = "relevance",
    layer: int | None = None,
    head: int = 1,
    heads_off: list[list[int]] | None = None,
    curves: bool = False,
    fit: Fit | None = None,
    checkpoint: str = "",
) -> Explanation:
    """Why this answer? The prediction after each block, and whether a map tells the truth: what
    happens to the dish when its brightest fifth is hidden, against a fifth hidden at random.

    Args:
        photo: The file: handle_file("photo.jpg") in Python; over MCP, as a data: address.
        dish: The dish to explain, as the model was taught it; empty for the likeliest.
        method: The map to test: "relevance", "head", "mean", "max" or "rollout".
        layer: For "head", "mean" and "max", from 1; None for the last.
        head: For "head", from 1.
        heads_off: Heads to switch off, as [[layer, head], ...] from 1; None for none.
        curves: Whether to add the deletion and insertion curves of the map, which takes seconds.
        fit: "crop" (the middle square), "letterbox" (the whole photo) or None (as it was taught).
        checkpoint: Name of the model; empty for the first one in the page's picker.

    Returns:
        "probabilities", "after_each_block" and "without_heads" (in the order of "classes")
        "faithfulness" (the dish's probability, nothing hidden and a fifth hidden)
        "deletion" and "insertion" (where curves were asked for)
    """
    try:
        look = _look(photo, fit, checkpoint)
        needs_dishes(look)
        question = _question(look, method, layer, head, None, "looks at", dish)
        off = _pairs(look, heads_off)
        target = question.aim(look)
        heat = heat_of(look, question)
        found = tested(look, {"map": heat}, target)["map"]
        answer = Explanation(
            dish=look.card.labels[target],
            drawn=captions.drawn(look, question),
            classes=list(look.card.classes),
            probabilities=_rounded(look.probabilities),
            faithfulness=Test(
                before=found.before,
                after=found.after,
                random_mean=found.random_mean,
                random_std=found.random_std,
                removed=found.removed,
                patches=found.patches,
                draws=found.draws,
            ),
            after_each_block=[
                Shares(block=block, probabilities=_rounded(row))
                for block, row in enumerate(after_each_block(look), 1)
            ],
            checkpoint=look.name,
        )
        if off:
            answer["without_heads"] = _rounded(without(look, off))
        if curves:
            drawn = curves_of(look, heat, target)
            answer["deletion"] = _curve(drawn.deletion, drawn.chance_deletion)
            answer["insertion"] = _curve(drawn.insertion, drawn.chance_insertion)
        return answer
    except Exception as error:
        raise api_error(error) from error


def _curve(curve: faithfulness.Curve, chance: Sequence[faithfulness.Curve]) -> Curve:
    areas = [each.area for each in chance]
    return Curve(
        shares=_rounded(curve.shares),
        probabilities=_rounded(curve.probabilities),
        area=round(curve.area, 6),
        random_area=round(statistics.mean(areas), 6),
        random_std=round(statistics.stdev(areas), 6),
        draws=len(chance),
    )


def _look(photo: object, fit: Any, checkpoint: str) -> Look:
    if fit not in ("crop", "letterbox", None):
        raise gr.Error('fit must be "crop", "letterbox" or None.')
    _, path = uploaded(photo)
    return look_at(path, find(checkpoint).path, fit)


def _question(
    look: Look,
    method: Method,
    layer: object,
    head: object,
    token: object,
    direction: object,
    dish: str,
) -> Question:
    if method not in METHODS:
        raise LookError(f"method must be one of {', '.join(METHODS)}.")
    if direction not in get_args(Direction):
        raise LookError(f"direction must be one of {', '.join(get_args(Direction))}.")
    question = Question(
        method=method,
        layer=look.depth - 1 if layer is None else _whole("layer", layer) - 1,
        head=_whole("head", head) - 1,
        token=None if token is None else _whole("token", token),
        by=direction == "looked at by",
        target=_dish(look, dish),
    )
    check(look, question)
    return question


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise LookError(f"{name} must be a whole number.")
    return value


def _dish(look: Look, dish: object) -> int | None:
    if not dish:
        return None
    classes = look.card.classes
    if isinstance(dish, str):
        if dish in classes:
            return classes.index(dish)
        for index, name in enumerate(classes):
            if dish_name(name).casefold() == dish.casefold():
                return index
    some = ", ".join(classes[:10]) + (", …" if len(classes) > 10 else "")
    raise LookError(f"{look.name} knows no dish of that name; it knows {some}.")


def _pairs(look: Look, heads: object) -> list[tuple[int, int]]:
    if heads is None:
        return []
    if not isinstance(heads, list) or not all(isinstance(p, list) and len(p) == 2 for p in heads):
        raise LookError("heads_off must be a list of [layer, head].")
    pairs = [(_whole("layer", p[0]) - 1, _whole("head", p[1]) - 1) for p in heads]
    for layer, head in pairs:
        check(look, Question("head", layer, head))
    return pairs


def _rounded(shares: Tensor | Sequence[float]) -> list[float]:
    values = shares.tolist() if isinstance(shares, Tensor) else shares
    return [round(float(value), 6) for value in values]
