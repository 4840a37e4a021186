"""The heat lies where the patches lie: photos whose bright square covers known patches."""

import time

import numpy as np
import pytest
import torch
from matplotlib import colormaps
from PIL import Image

from vit.heat import (
    draw_grid,
    hide_patches,
    mark_patches,
    overlay,
    paint,
    patch_at,
    patch_box,
    widened,
)
from vit.images import Preprocess, open_photo
from vit.model import PatchEmbed

PATCH = (16, 16)


def brightness_of_patches(preprocess: Preprocess, photo: Image.Image) -> np.ndarray:
    """What the model reads: the mean of every patch of its picture, (h, w), from the tensor."""
    embed = PatchEmbed(PATCH, 1)
    with torch.no_grad():
        embed.proj.weight.fill_(1 / (3 * PATCH[0] * PATCH[1]))
        embed.proj.bias.zero_()  # pyright: ignore[reportOptionalMemberAccess]
        return embed(preprocess(photo)[None])[0, 0].numpy()


@pytest.mark.parametrize("size", [(900, 600), (600, 900), (700, 700), (1201, 433), (225, 224)])
@pytest.mark.parametrize("fit", ["crop", "letterbox"])
@pytest.mark.parametrize("shape", [(224, 224), (128, 256)])
def test_heat_lies_on_the_bright_square(size: tuple, fit: str, shape: tuple) -> None:
    """A black photo with a white rectangle on 2 by 3 patches, a little off the middle: the
    model sees it in exactly these patches, and the heat of these patches lies exactly on it."""
    preprocess = Preprocess(shape, fit=fit)  # pyright: ignore[reportArgumentType]
    grid = shape[0] // PATCH[0], shape[1] // PATCH[1]
    row, column = grid[0] // 2, grid[1] // 2 - 1
    patches = [(row + down) * grid[1] + column + across for down in (0, 1) for across in (0, 1, 2)]
    box = preprocess.box(*size)
    left, top, _, _ = (round(edge) for edge in patch_box(box, grid, patches[0]))
    _, _, right, bottom = (round(edge) for edge in patch_box(box, grid, patches[-1]))
    photo = Image.new("RGB", size)
    photo.paste((255, 255, 255), (left, top, right, bottom))

    seen = brightness_of_patches(preprocess, photo)
    assert (np.sort(seen.ravel().argsort()[-len(patches) :]) == patches).all()
    inside = np.isin(np.arange(grid[0] * grid[1]), patches).reshape(grid)
    assert seen[inside].min() > 0.6 and seen[~inside].max() < 0.1  # the borders are grey

    drawn = overlay(photo, inside.astype(float), box, opacity=1, smooth=False, dim=0)
    assert drawn.size == size
    hot = np.asarray(drawn)[..., 0] > 200  # the bright end of inferno; its dark end is black
    rows, columns = np.flatnonzero(hot.any(1)), np.flatnonzero(hot.any(0))
    edges = (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)
    wanted = (max(0, left), max(0, top), min(size[0], right), min(size[1], bottom))
    assert np.abs(np.subtract(edges, wanted)).max() <= 1
    assert hot[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()

    smooth = np.asarray(overlay(photo, inside.astype(float), box, opacity=1, dim=0))[..., 0]
    y, x = np.nonzero(smooth > 128)
    middle = x.mean() + 0.5, y.mean() + 0.5
    assert middle == pytest.approx(
        ((wanted[0] + wanted[2]) / 2, (wanted[1] + wanted[3]) / 2), abs=2
    )


def test_a_reduced_photo_is_drawn_in_the_same_place() -> None:
    photo = Image.new("RGB", (1600, 1200), (90, 90, 90))
    small = open_photo(photo.resize((400, 300))).image
    preprocess, heat = Preprocess(), np.zeros((14, 14))
    heat[2, 3] = 1
    large = overlay(photo, heat, preprocess.box(*photo.size), smooth=False).resize(small.size)
    little = overlay(small, heat, preprocess.box(*small.size), smooth=False)
    difference = np.abs(np.asarray(large).astype(int) - np.asarray(little)).max(-1)
    assert (difference > 40).mean() < 0.002  # no more than the edges of one patch


def test_photo_opacity_and_the_outside() -> None:
    photo, heat = Image.new("RGB", (60, 40), (100, 200, 40)), np.ones((2, 2))
    box = (20.0, 0.0, 60.0, 40.0)
    hottest = np.rint(np.array(colormaps["viridis"](1.0)[:3]) * 255)
    for opacity in (0.0, 0.5, 1.0):
        pixels = np.asarray(overlay(photo, heat, box, opacity=opacity, colours="viridis", dim=0.5))
        expected = (1 - opacity) * np.array([100, 200, 40]) + opacity * hottest
        assert np.abs(pixels[:, 20:] - expected).max() <= 1
        assert np.abs(pixels[:, :20] - np.array([50, 100, 20])).max() <= 1
    untouched = np.asarray(overlay(photo, heat, box, opacity=0, dim=1))
    assert (untouched == np.asarray(photo)).all()
    overlay(photo, heat, box, dim=1)
    assert photo.getcolors() == [(60 * 40, (100, 200, 40))]
    with pytest.raises(ValueError, match="opacity"):
        overlay(photo, heat, box, opacity=1.5)
    with pytest.raises(ValueError, match="no pixel"):
        overlay(photo, heat, (70, 0, 90, 20))


def test_scale_is_from_zero_to_the_top() -> None:
    table = np.rint(colormaps["inferno"](np.linspace(0, 1, 256))[:, :3] * 255)
    heat = np.array([[0.0, 0.1, 0.2, 0.4, -1.0, np.nan]])
    own = np.asarray(paint(heat))[0]
    assert (own == table[[0, 64, 128, 255, 0, 0]]).all()
    shared = np.asarray(paint(heat, top=0.2))[0]
    assert (shared == table[[0, 128, 255, 255, 0, 0]]).all()
    assert (np.asarray(paint(np.zeros((3, 2)))) == table[0]).all()
    assert paint(np.zeros((3, 2))).size == (2, 3)


def test_what_cannot_be_painted() -> None:
    for heat in (np.zeros(3), np.zeros((0, 3)), np.zeros((1, 2, 3))):
        with pytest.raises(ValueError, match="rows and columns"):
            paint(heat)
    with pytest.raises(ValueError, match="try inferno or viridis"):
        paint(np.zeros((2, 2)), colours="rainbows")


@pytest.mark.parametrize("grid", [(14, 14), (3, 7)])
def test_a_click_finds_the_patch_it_is_on(grid: tuple[int, int]) -> None:
    box = (-30.5, 12.25, 170.0, 212.0)
    for patch in range(grid[0] * grid[1]):
        left, top, right, bottom = patch_box(box, grid, patch)
        for x, y in ((left + 0.01, top + 0.01), (right - 0.01, bottom - 0.01)):
            assert patch_at(box, grid, x, y) == patch
    for x, y in ((-31, 50), (171, 50), (50, 12), (50, 213)):
        assert patch_at(box, grid, x, y) is None
    for patch in (-1, grid[0] * grid[1]):
        with pytest.raises(ValueError, match="no patch"):
            patch_box(box, grid, patch)


def changed(photo: Image.Image, picture: Image.Image) -> np.ndarray:
    return (np.asarray(photo) != np.asarray(picture)).any(-1)


def test_marks_and_covers_stay_in_their_patches() -> None:
    photo = Image.new("RGB", (300, 200), (120, 120, 120))
    box, grid = (50.0, 0.0, 250.0, 200.0), (4, 4)
    for draw, whole in ((mark_patches, False), (hide_patches, True)):
        where = changed(photo, draw(photo, box, grid, [5, 11], (1, 2, 3)))
        inside = np.zeros((200, 300), bool)
        inside[50:100, 100:150] = inside[100:150, 200:250] = True
        assert not where[~inside].any() and where[50, 100:150].all()
        assert where[inside].all() == whole
        assert not changed(photo, draw(photo, box, grid, [])).any()
    for beyond in ((-40.0, -40.0, 340.0, 240.0), (0.0, 0.0, 4.0, 4.0)):  # off the photo; tiny
        mark_patches(photo, beyond, grid, range(16))
        hide_patches(photo, beyond, grid, range(16))


def test_grid_lines_lie_between_patches() -> None:
    photo = Image.new("RGB", (300, 200))
    where = changed(photo, draw_grid(photo, (50.0, 0.0, 250.0, 200.0), (4, 4)))
    assert where[:, [50, 100, 150, 200, 250]].all() and where[[50, 100, 150], 50:250].all()
    assert not where[10:40, 60:90].any() and not where[:, :45].any()


def test_borders_of_a_letterbox_can_be_seen() -> None:
    photo = Image.new("RGB", (300, 200), (9, 9, 9))
    box = Preprocess(fit="letterbox").box(*photo.size)
    wide, moved = widened(photo, box)
    assert wide.size == (300, 300) and moved == (0, 0, 300, 300)
    assert wide.getpixel((5, 5)) == (128, 128, 128) and wide.getpixel((5, 50)) == (9, 9, 9)
    heat = np.zeros((14, 14))
    heat[0, 0] = 1
    assert np.asarray(overlay(photo, heat, box, dim=1, opacity=1, smooth=False)).max() < 10
    assert np.asarray(overlay(wide, heat, moved, smooth=False))[5, 5, 0] > 150
    inside = (20.0, 0.0, 220.0, 200.0)
    same, where = widened(photo, inside)
    assert same.size == photo.size and where == inside


def test_a_redraw_is_quick() -> None:
    photo, heat = Image.new("RGB", (1000, 750)), np.random.default_rng(0).random((24, 24))
    overlay(photo, heat, Preprocess().box(*photo.size))
    took = []
    for _ in range(9):
        began = time.perf_counter()
        overlay(photo, heat, Preprocess().box(*photo.size))
        took.append(time.perf_counter() - began)
    assert min(took) < 0.03
