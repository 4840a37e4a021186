"""The example pictures: complete, small, and what the script draws."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from examples import draw

FOLDER = Path(draw.__file__).parent
PICTURES = sorted(FOLDER.glob("*.jpg"))
DISHES = {dish.__name__: dish for dish in draw.DISHES}


def test_one_picture_for_every_dish_and_no_hidden_files():
    assert [p.stem for p in PICTURES] == sorted(DISHES)
    assert [p.name for p in FOLDER.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize("path", PICTURES, ids=lambda p: p.stem)
def test_pictures_are_small_files_of_a_useful_size(path: Path):
    with Image.open(path) as picture:
        assert (picture.format, picture.mode) == ("JPEG", "RGB")
        assert 560 <= min(picture.size) <= max(picture.size) <= 900
    assert path.stat().st_size <= 61_000


def test_pictures_are_landscape_portrait_and_square():
    shapes = set()
    for path in PICTURES:
        with Image.open(path) as picture:
            shapes.add(np.sign(picture.width - picture.height))
    assert shapes == {-1, 0, 1}


@pytest.mark.parametrize("name", ["sushi_maki"])  # the quickest to draw
def test_the_script_draws_the_shipped_picture(name: str):
    drawn = Image.open(io.BytesIO(draw.jpeg(DISHES[name]())))
    with Image.open(FOLDER / f"{name}.jpg") as shipped:
        assert drawn.size == shipped.size
        apart = np.abs(np.asarray(drawn, np.int16) - np.asarray(shipped, np.int16))
    assert apart.mean() < 2
