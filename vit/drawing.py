"""Pictures about pictures: the model's crop outlined on a photo, and grids with captions."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageEnhance, ImageFont, ImageOps

ACCENT = (232, 89, 12)  # the app's one accent colour, a warm orange
_INK, _PAPER = (40, 36, 33), (255, 255, 255)
_DIM = 0.55  # brightness left outside the outlined box


def outline_box(
    photo: Image.Image,
    box: tuple[float, float, float, float],
    colour: tuple[int, int, int] = ACCENT,
    dim: bool = True,
) -> Image.Image:
    """A copy of an RGB photo with `box` (left, top, right, bottom, in its pixels) framed.

    With `dim` the rest is darkened. The part of a box that lies beyond the photo, as a letterbox
    does, is left out. Raises ValueError when no pixel of the photo is inside the box.
    """
    photo = photo.convert("RGB")
    left, top = max(0, round(box[0])), max(0, round(box[1]))
    right, bottom = min(photo.width, round(box[2])), min(photo.height, round(box[3]))
    if left >= right or top >= bottom:
        raise ValueError(f"The box {box} holds no pixel of a {photo.width} × {photo.height} photo.")
    picture = photo
    if dim:
        picture = ImageEnhance.Brightness(photo).enhance(_DIM)
        picture.paste(photo.crop((left, top, right, bottom)), (left, top))
    draw = ImageDraw.Draw(picture)
    thin = max(1, round(min(photo.size) / 400))
    # accent between black and white, so that the frame stands out on any photo
    start = 0
    for width, line in ((thin, "black"), (2 * thin, colour), (thin, "white")):
        if right - left > 2 * start and bottom - top > 2 * start:
            edges = (left + start, top + start, right - 1 - start, bottom - 1 - start)
            draw.rectangle(edges, outline=line, width=width)
        start += width
    return picture


def photo_grid(
    images: Sequence[Image.Image],
    captions: Sequence[str],
    columns: int = 5,
    cell: int = 180,
) -> Image.Image:
    """Photos in rows of `columns`, each cut to a square of `cell` pixels, its caption under it.

    A caption too long for its photo ends in "…". Raises ValueError for no photos, or when there
    are more or fewer captions than photos.
    """
    if not images or len(images) != len(captions):
        raise ValueError(
            f"A grid needs one caption for each photo, not {len(captions)} for {len(images)}."
        )
    if columns < 1 or cell < 16:
        raise ValueError(f"A grid of {columns} columns and cells of {cell} pixels cannot be drawn.")
    columns = min(columns, len(images))
    gap = cell // 15
    letters = max(10, cell // 12)  # height of the letters
    font, line = _font(letters), letters * 3 // 2
    rows = -(-len(images) // columns)
    across, down = cell + gap, cell + line + gap
    grid = Image.new("RGB", (gap + columns * across, gap + rows * down), _PAPER)
    draw = ImageDraw.Draw(grid)
    for index, (image, caption) in enumerate(zip(images, captions, strict=True)):
        x, y = gap + index % columns * across, gap + index // columns * down
        grid.paste(ImageOps.fit(image.convert("RGB"), (cell, cell)), (x, y))
        text = _shorten(caption, cell, draw, font)
        draw.text((x + cell / 2, y + cell + line / 2), text, _INK, font, anchor="mm")
    return grid


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """A font with accents and Greek and Cyrillic letters: the one that lies in matplotlib, found
    without importing it; Pillow's own knows little more than ASCII."""
    package = importlib.util.find_spec("matplotlib")
    for folder in (package.submodule_search_locations or []) if package else []:
        path = Path(folder) / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
        if path.is_file():
            return ImageFont.truetype(path, size)
    return ImageFont.load_default(size)


def _shorten(
    caption: str,
    width: int,
    draw: ImageDraw.ImageDraw,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
) -> str:
    """The caption on one line, as much of it as fits in `width` pixels."""
    caption = " ".join(caption.split())
    if draw.textlength(caption, font) <= width:
        return caption
    while caption and draw.textlength(f"{caption}…", font) > width:
        caption = caption[:-1]
    return f"{caption.rstrip()}…"
