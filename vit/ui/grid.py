"""The patch grid as vector graphics, exactly where it lies on the photo: to click, brush, colour.

The photo itself is sent once, as a CSS variable (`photo_style`), and every picture of the grid is
laid over it; so a click costs a few kilobytes.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from html import escape
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from vit.heat import Box, paint
from vit.ui.files import data_url

COLOURS = "inferno"
TITLED = 1024  # patches; more get no value to hover over, so that the page stays light
ON_LOAD = Path(__file__).with_name("patches.js").read_text(encoding="utf-8")

Grid = tuple[int, int]  # rows, columns


def photo_style(photo: Image.Image, scope: str) -> str:
    """Makes `photo` the background of every stage inside the element with the id `scope`."""
    return f"<style>#{scope} {{ --photo: url({data_url(photo, 'JPEG', quality=82)}) }}</style>"


def stage(
    size: tuple[int, int],
    box: Box,
    grid: Grid,
    label: str,
    *,
    kind: str = "choose",
    chosen: int = 0,
    show_chosen: bool = True,
    removed: Collection[int] = (),
    heat: Tensor | None = None,
    unit: str = "",
    keys: str = "",
) -> str:
    """The grid over a photo drawn at `size` (width, height), of which the model saw `box`.

    kind: "choose" or "brush", see patches.js. heat: (h * w,), drawn over the patches from its
    lowest value to the highest among all but `chosen`; `unit` names a value that is hovered over.
    keys: says what the keyboard does; without it, nothing.
    """
    (width, height), (left, top, right, bottom), (rows, columns) = size, box, grid
    lines = "".join(f"M0 {row}H{columns}" for row in range(rows + 1))
    lines += "".join(f"M{column} 0V{rows}" for column in range(columns + 1))
    picture, titles = "", ""
    if heat is not None:
        low, high = scale(heat, chosen)
        levels = (heat - low).numpy().reshape(rows, columns)
        url = data_url(paint(levels, top=high - low, colours=COLOURS))
        picture = (
            f'<image class="heat" width="{columns}" height="{rows}" preserveAspectRatio="none" '
            f'href="{url}"/>'
        )
        lines = ""
        if len(heat) <= TITLED:
            titles = "".join(
                f'<path d="M{p % columns} {p // columns}h1v1h-1z"><title>row {p // columns + 1}, '
                f"column {p % columns + 1}: {signed(value)}{escape(unit)}</title></path>"
                for p, value in enumerate(heat.tolist())
            )
    gone = "".join(f"M{p % columns} {p // columns}h1v1h-1z" for p in sorted(removed))
    place = f'x="{chosen % columns}" y="{chosen // columns}" width="1" height="1"'
    place += "" if show_chosen else ' display="none"'
    return (
        f'<svg class="stage {kind}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(label)}" data-keys="{escape(keys)}" '
        f'style="aspect-ratio:{width}/{height};--ratio:{width / height:.4f}" '
        f'data-size="{width} {height}" data-box="{" ".join(f"{edge:.3f}" for edge in box)}" '
        f'data-grid="{rows} {columns}" data-chosen="{chosen}" '
        f'data-removed="{" ".join(map(str, sorted(removed)))}">'
        f'<path class="outside" fill-rule="evenodd" d="M0 0H{width}V{height}H0z'
        f'M{left:.3f} {top:.3f}H{right:.3f}V{bottom:.3f}H{left:.3f}z"/>'
        f'<g transform="translate({left:.3f} {top:.3f}) '
        f'scale({(right - left) / columns:.6f} {(bottom - top) / rows:.6f})">{picture}'
        f'<path class="lines" d="{lines}"/><path class="gone" d="{gone}"/>'
        f'<g class="values">{titles}</g>'
        f'<rect class="chosen under" {place}/><rect class="chosen" {place}/></g></svg>'
    )


def scale(heat: Tensor, chosen: int) -> tuple[float, float]:
    """The lowest and highest value of all patches but the chosen one, whose 1 would hide the rest;
    for a grid of one patch, 0 and 1."""
    values = heat.tolist()
    others = values[:chosen] + values[chosen + 1 :]
    return (min(others), max(others)) if others else (0.0, 1.0)


def scale_html(heat: Tensor, chosen: int) -> str:
    """The colours of `stage` with the values at both ends."""
    low, high = scale(heat, chosen)
    return (
        f'<span class="scale">{signed(low)} <i style="background-image:url({scale_url()})"></i> '
        f"{signed(high)}</span>"
    )


def signed(value: float) -> str:
    """Two decimals, with a true minus sign, and never a minus nought."""
    text = f"{value:.2f}"
    return "0.00" if text == "-0.00" else text.replace("-", "−")


@lru_cache(maxsize=8)
def scale_url(colours: str = COLOURS) -> str:
    """The colours from 0 to the top."""
    return data_url(paint(np.linspace(0, 1, 64, dtype=np.float32)[None], 1.0, colours))
