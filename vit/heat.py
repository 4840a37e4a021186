"""Heat maps over the patches, drawn on the photo in its true geometry; pixels only.

`box` is the region (left, top, right, bottom) of the model's picture on the photo, in the pixels of
the photo as it is drawn, as `Preprocess.box(*photo.size)` gives it. It may reach beyond the photo.
`grid` is (rows, columns) of patches; patches are numbered row by row from 0.
"""

import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance

Box = tuple[float, float, float, float]
Colour = tuple[int, int, int]


def paint(heat: np.ndarray, top: float | None = None, colours: str = "inferno") -> Image.Image:
    """A map (h, w) as a picture of one pixel for each patch. 0 and below get the first colour of
    the scale; `top` (the largest value where None) and above the last. `colours` names one of
    matplotlib's colour maps."""
    return _coloured(Image.fromarray(_levels(heat, top)), colours)


def overlay(
    photo: Image.Image,
    heat: np.ndarray,
    box: Box,
    *,
    top: float | None = None,
    colours: str = "inferno",
    opacity: float = 0.6,
    smooth: bool = True,
    dim: float = 0.55,
) -> Image.Image:
    """An RGB photo with a map (h, w) drawn over the part of it that the model saw.

    `top` and `colours` as in `paint`. opacity: 0 (only the photo) to 1 (only the heat). smooth:
    interpolated between the patches' centres, else every patch in one colour. dim: the brightness
    left outside the box. Patches beyond the photo are not drawn; see `widened`.
    """
    if not 0 <= opacity <= 1:
        raise ValueError(f"opacity must be from 0 to 1, got {opacity}.")
    photo = photo.convert("RGB")
    left, top_edge, right, bottom = inside = _inside(photo.size, box)
    rows, columns = heat.shape
    # the same part of the map as lies on the photo, in patches
    across, down = columns / (box[2] - box[0]), rows / (box[3] - box[1])
    part = (
        max(0.0, (left - box[0]) * across),
        max(0.0, (top_edge - box[1]) * down),
        min(float(columns), (right - box[0]) * across),
        min(float(rows), (bottom - box[1]) * down),
    )
    how = Image.Resampling.BILINEAR if smooth else Image.Resampling.NEAREST
    levels = Image.fromarray(_levels(heat, top))
    levels = levels.resize((right - left, bottom - top_edge), how, box=part)
    seen = Image.blend(photo.crop(inside), _coloured(levels, colours), opacity)
    picture = photo if dim == 1 else ImageEnhance.Brightness(photo).enhance(dim)
    picture = picture.copy() if picture is photo else picture
    picture.paste(seen, (left, top_edge))
    return picture


def widened(
    photo: Image.Image, box: Box, colour: Colour = (128, 128, 128)
) -> tuple[Image.Image, Box]:
    """The photo with borders where `box` reaches beyond it, and the box on that picture: so that
    what lies on a letterbox's borders can be seen."""
    left, top = max(0, math.ceil(-box[0])), max(0, math.ceil(-box[1]))
    right = max(photo.width, math.ceil(box[2])) + left
    bottom = max(photo.height, math.ceil(box[3])) + top
    canvas = Image.new("RGB", (right, bottom), colour)
    canvas.paste(photo, (left, top))
    return canvas, (box[0] + left, box[1] + top, box[2] + left, box[3] + top)


def patch_box(box: Box, grid: tuple[int, int], patch: int) -> Box:
    """Where a patch lies on the photo."""
    row, column = divmod(patch, grid[1])
    if not 0 <= row < grid[0]:
        raise ValueError(f"There is no patch {patch} in {grid[0]} × {grid[1]}, counted from 0.")
    width, height = (box[2] - box[0]) / grid[1], (box[3] - box[1]) / grid[0]
    left, top = box[0] + column * width, box[1] + row * height
    return left, top, left + width, top + height


def patch_at(box: Box, grid: tuple[int, int], x: float, y: float) -> int | None:
    """The patch at a point of the photo, or None outside the box."""
    column = math.floor((x - box[0]) / (box[2] - box[0]) * grid[1])
    row = math.floor((y - box[1]) / (box[3] - box[1]) * grid[0])
    return row * grid[1] + column if 0 <= row < grid[0] and 0 <= column < grid[1] else None


def draw_grid(
    photo: Image.Image, box: Box, grid: tuple[int, int], colour: Colour = (255, 255, 255)
) -> Image.Image:
    """A copy with thin lines between the patches."""
    picture = photo.convert("RGB").copy()
    draw = ImageDraw.Draw(picture, "RGBA")
    width = max(1, round(min(photo.size) / 600))
    for row in range(grid[0] + 1):
        y = box[1] + row * (box[3] - box[1]) / grid[0]
        draw.line((box[0], y, box[2], y), (*colour, 130), width)
    for column in range(grid[1] + 1):
        x = box[0] + column * (box[2] - box[0]) / grid[1]
        draw.line((x, box[1], x, box[3]), (*colour, 130), width)
    return picture


def mark_patches(
    photo: Image.Image,
    box: Box,
    grid: tuple[int, int],
    patches: Iterable[int],
    colour: Colour = (64, 224, 255),
) -> Image.Image:
    """A copy with a frame in each of these patches: the colour between black lines, so that it
    stands out on any picture."""
    picture = photo.convert("RGB").copy()
    draw = ImageDraw.Draw(picture)
    for patch in patches:
        left, top, right, bottom = (round(edge) for edge in patch_box(box, grid, patch))
        thin = max(1, min(right - left, bottom - top) // 12)
        for start, width, line in (
            (0, thin, "black"),
            (thin, thin, colour),
            (2 * thin, 1, "black"),
        ):
            edges = (left + start, top + start, right - 1 - start, bottom - 1 - start)
            if edges[0] <= edges[2] and edges[1] <= edges[3]:
                draw.rectangle(edges, outline=line, width=width)
    return picture


def hide_patches(
    photo: Image.Image,
    box: Box,
    grid: tuple[int, int],
    patches: Iterable[int],
    colour: Colour = (128, 128, 128),
) -> Image.Image:
    """A copy with these patches covered, as the model is not shown them."""
    picture = photo.convert("RGB").copy()
    for patch in patches:
        left, top, right, bottom = (round(edge) for edge in patch_box(box, grid, patch))
        picture.paste(colour, (left, top, right, bottom))
    return picture


def _inside(size: tuple[int, int], box: Box) -> tuple[int, int, int, int]:
    """The whole pixels of a photo of `size` that lie in `box`."""
    left, top = max(0, round(box[0])), max(0, round(box[1]))
    right, bottom = min(size[0], round(box[2])), min(size[1], round(box[3]))
    if left >= right or top >= bottom:
        raise ValueError(f"The box {box} holds no pixel of a {size[0]} × {size[1]} photo.")
    return left, top, right, bottom


def _levels(heat: np.ndarray, top: float | None) -> np.ndarray:
    """Values as 0 to 255."""
    if heat.ndim != 2 or not heat.size:
        raise ValueError(f"A map must have rows and columns, got the shape {heat.shape}.")
    heat = np.nan_to_num(np.asarray(heat, np.float32))
    top = float(heat.max()) if top is None else top
    return np.rint(np.clip(heat / top if top > 0 else 0 * heat, 0, 1) * 255).astype(np.uint8)


def _coloured(levels: Image.Image, colours: str) -> Image.Image:
    levels.putpalette(_palette(colours))  # a picture of mode L becomes one of mode P
    return levels.convert("RGB")


@lru_cache(maxsize=8)
def _palette(colours: str) -> bytes:
    # Here, because it takes as long as all else: a program that draws no map need not wait for it.
    from matplotlib import colormaps

    if colours not in colormaps:
        raise ValueError(f"There is no colour map {colours!r}; try inferno or viridis.")
    table = colormaps[colours](np.linspace(0, 1, 256))[:, :3]
    return np.rint(table * 255).astype(np.uint8).tobytes()
