"""The wall: a small map of every head of every layer, numbers to sort them by, and the scale."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vit.heat import paint
from vit.looking import Look, Question
from vit.maps import SINK_TIMES, class_mass, entropy, looked_at_by, looks_at, set_aside
from vit.readings import check, distance_of

CLIP = 98  # the percentile of a map's values that gets the last colour of the scale

Order = Literal["layer", "entropy", "distance", "class"]
ORDERS: tuple[Order, ...] = get_args(Order)


@dataclass(frozen=True)
class Cell:
    """One head of one layer, both counted from 0. number: what the wall is ordered by, None in the
    order of layers. sink: whether the sinks take far more than their share of this map."""

    layer: int
    head: int
    number: float | None
    sink: bool


def wall(look: Look, question: Question, order: Order = "layer") -> list[Cell]:
    """Every head in `order`: by layer; entropy (the most focused first) of the asking token's
    attention; mean distance in pixels that patches look (the nearest first); share of the asking
    token's attention that lies on the class token (the largest first)."""
    check(look, question)
    numbers = _numbers(look, question, order)
    sink = _on_sinks(look, _heats(look, question)).tolist()
    cells = [
        Cell(layer, head, None if numbers is None else numbers[layer][head], sink[layer][head])
        for layer in range(look.depth)
        for head in range(look.heads)
    ]
    sign = -1 if order == "class" else 1
    return sorted(cells, key=lambda cell: sign * (cell.number or 0))


def wall_picture(look: Look, question: Question, colours: str = "inferno") -> Image.Image:
    """All maps in one picture, a pixel for each patch: layers down, heads across; every map on a
    scale of its own, from 0 to its `CLIP`th percentile."""
    check(look, question)
    heats = _heats(look, question)
    if question.aside:
        heats = set_aside(heats, look.sinks)
    L, A, h, w = heats.shape
    tops = torch.tensor(scale_tops(heats.flatten(0, 1))).view(L, A, 1, 1)
    levels = torch.where(tops > 0, heats / tops.clamp(min=1e-30), 0)
    tiles = levels.permute(0, 2, 1, 3).reshape(L * h, A * w)  # (L, h, A, w): side by side
    return paint(tiles.numpy(), 1.0, colours)


def scale_top(heat: Tensor) -> float:
    """The value that gets the last colour: the `CLIP`th percentile, or the maximum where most of
    the map is zero."""
    return scale_tops(heat[None])[0]


def scale_tops(heats: Tensor) -> list[float]:
    flat = heats.flatten(1).numpy()
    tops = np.percentile(flat, CLIP, axis=1)
    return np.where(tops > 0, tops, flat.max(axis=1)).tolist()


def same_scale(heats: Sequence[Tensor]) -> tuple[list[Tensor], float]:
    """Maps of different kinds made comparable: each as shares of its own sum, and one top."""
    shares = [heat / heat.sum().clamp(min=1e-30) for heat in heats]
    return shares, scale_top(torch.stack(shares))


def _heats(look: Look, question: Question) -> Tensor:
    """(layers, heads, h, w), float32; the question's method, layer and head play no part."""
    token = 0 if question.token is None else look.prefix + question.token
    pick = looked_at_by if question.by else looks_at
    return pick(look.maps, token, look.prefix, look.grid).float()


def _on_sinks(look: Look, heats: Tensor) -> Tensor:
    """(layers, heads) of bool."""
    flat = heats.flatten(2)
    taken = flat[:, :, list(look.sinks.patches)].sum(2)
    return (taken > SINK_TIMES * look.sinks.even * flat.sum(2)) & (look.sinks.even > 0)


def _numbers(look: Look, question: Question, order: Order) -> list[list[float]] | None:
    if order == "layer":
        return None
    if order == "distance":
        return distance_of(look).tolist()
    token = 0 if question.token is None else look.prefix + question.token
    row = look.maps[:, :, token : token + 1].float()  # (layers, heads, 1, N)
    numbers = entropy(row) if order == "entropy" else class_mass(row)
    return numbers[..., 0].tolist()
