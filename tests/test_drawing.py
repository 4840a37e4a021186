"""Outlines and grids, looked at pixel by pixel."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from PIL import Image

from vit.drawing import ACCENT, outline_box, photo_grid
from vit.images import Preprocess


def colours(image: Image.Image) -> set[tuple[int, ...]]:
    found = image.convert("RGB").getcolors(maxcolors=4096) or []
    return {colour for _, colour in found if isinstance(colour, tuple)}


@pytest.mark.parametrize("grey", [0, 128, 255])
def test_frame_stands_out_and_outside_is_dimmed(grey: int) -> None:
    photo = Image.new("RGB", (300, 200), (grey,) * 3)
    picture = outline_box(photo, (60, 40, 240, 160))
    assert picture.size == photo.size and picture.mode == "RGB"
    pixels = np.asarray(picture).astype(int)
    assert (pixels[:40] == pixels[0, 0]).all() and (pixels[:, 240:] == pixels[0, 0]).all()
    assert pixels[0, 0, 0] == pytest.approx(0.55 * grey, abs=1)
    assert (pixels[46:154, 66:234] == grey).all()
    for line in (
        pixels[40:46, 150],
        pixels[154:160, 150],
        pixels[100, 60:66],
        pixels[100, 234:240],
    ):
        assert {ACCENT, (0, 0, 0), (255, 255, 255)} <= {tuple(p) for p in line.tolist()}
    assert colours(photo) == {(grey,) * 3}  # the photo itself is untouched


def test_without_dimming_only_the_frame_changes() -> None:
    photo = Image.new("RGB", (300, 200), (9, 90, 190))
    picture = outline_box(photo, (60, 40, 240, 160), colour=(1, 2, 3), dim=False)
    changed = np.asarray(picture) != np.asarray(photo)
    assert not changed[:40].any() and not changed[46:154, 66:234].any()
    assert (1, 2, 3) in colours(picture) and ACCENT not in colours(picture)


def test_a_letterbox_frames_the_whole_photo() -> None:
    photo = Image.new("RGB", (400, 200), (100, 100, 100))
    picture = np.asarray(outline_box(photo, Preprocess(fit="letterbox").box(*photo.size)))
    assert (picture[[0, -1]] == 0).all() and (picture[:, [0, -1]] == 0).all()  # black line outside
    assert (picture[6:-6, 6:-6] == 100).all()


@pytest.mark.parametrize(
    "box", [(0, 0, 1, 1), (5.4, 5.4, 7.6, 7.6), (0, 0, 2, 60), (-9, -9, 99, 99)]
)
def test_small_and_wide_boxes(box: tuple[float, float, float, float]) -> None:
    assert outline_box(Image.new("L", (80, 60)), box).size == (80, 60)


@pytest.mark.parametrize("box", [(90, 0, 99, 9), (-9, 0, 0, 9), (5, 5, 5, 9), (9, 9, 5, 5)])
def test_a_box_off_the_photo_is_refused(box: tuple[float, float, float, float]) -> None:
    with pytest.raises(ValueError, match="80 × 60"):
        outline_box(Image.new("RGB", (80, 60)), box)


@pytest.mark.parametrize(
    ("count", "rows", "columns"), [(1, 1, 1), (5, 1, 5), (6, 2, 5), (25, 5, 5)]
)
def test_grid_holds_every_photo_in_order(count: int, rows: int, columns: int) -> None:
    shades = [(250 - 9 * i, 10 + 9 * i, 77) for i in range(count)]
    photos = [Image.new("RGB", (60 + i, 90), shade) for i, shade in enumerate(shades)]
    grid = photo_grid(photos, [f"dish {i}" for i in range(count)], cell=60)
    gap, line = 4, 15
    assert grid.size == (gap + columns * 64, gap + rows * (60 + line + gap))
    for i, shade in enumerate(shades):
        x, y = gap + i % columns * 64, gap + i // columns * 79
        assert colours(grid.crop((x, y, x + 60, y + 60))) == {shade}
        caption = grid.crop((x, y + 60, x + 60, y + 60 + line))
        assert np.asarray(caption).min() < 120  # something is written


def caption(text: str) -> np.ndarray:
    """The strip under one photo in a grid of two, with what lies right of it."""
    grid = photo_grid([Image.new("RGB", (90, 90))] * 2, [text, ""], cell=90)
    return np.asarray(grid.convert("L").crop((0, 6 + 90, grid.width, grid.height)))


def test_long_captions_are_cut_to_their_photo() -> None:
    strip = caption("Spaghetti carbonara with a great deal of cheese on it")
    assert strip[:, :102].min() < 120 and strip[:, 102:].min() == 255
    assert (caption("two\nlines") == caption("two lines")).all()
    assert caption("").min() == 255 and caption("W" * 500)[:, 102:].min() == 255


def test_captions_show_accents() -> None:
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip("the font with accents comes with matplotlib")
    assert (caption("brûlée") != caption("brulee")).any()
    assert (caption("é") != caption("è")).any()  # not both an empty box


def test_captions_without_the_better_font(monkeypatch: pytest.MonkeyPatch) -> None:
    better = caption("Pizza")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert caption("Pizza").min() < 120 and (caption("Pizza") != better).any()


def test_grid_refuses_what_cannot_be_drawn() -> None:
    photo = Image.new("RGB", (9, 9))
    for photos, captions in (([], []), ([photo], []), ([photo], ["a", "b"])):
        with pytest.raises(ValueError, match="one caption for each photo"):
            photo_grid(photos, captions)
    for options in ({"columns": 0}, {"cell": 1}):
        with pytest.raises(ValueError, match="cannot be drawn"):
            photo_grid([photo], ["a"], **options)
