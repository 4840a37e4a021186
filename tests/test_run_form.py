"""The form's settings, made of the recipe's own: what is offered when, and the recipe they make."""

from typing import Any

import pytest
from gradio.components import Dropdown
from small import photos

from vit.card import CheckpointError
from vit.recipe import Recipe
from vit.ui.run_form import SETTINGS, control, guess, recipe_of, shown

BY_NAME = {setting.name: setting for setting in SETTINGS}


def told(mode: str, **typed: str) -> Recipe:
    """The recipe of a form whose other fields are as they begin."""
    values: list[Any] = [typed.get(s.name, getattr(control(s), "value", None)) for s in SETTINGS]
    return recipe_of("photos", mode, "food101", "new", *values)


@pytest.mark.parametrize("mode", ["head", "last", "all"])
def test_a_form_left_alone_is_the_plain_recipe(mode: str, vit_home) -> None:
    usual = None if mode == "head" else mode
    assert told(mode) == Recipe("photos", start="food101", name="new", mode=usual)


def test_a_teacher_is_one_of_the_list_and_for_pixels_alone(vit_home) -> None:
    field = control(BY_NAME["teacher"])
    assert isinstance(field, Dropdown)
    listed = [value for _, value in field.choices]
    assert listed == ["", "food101", "pizza-steak-sushi"]
    assert [m for m in ("head", "last", "all", "scratch") if shown(BY_NAME["teacher"], m)] == [
        "all",
        "scratch",
    ]
    taught = told("all", teacher="food101", teacher_share="0.25", drop_path="0.1", mixup="0.2")
    assert (taught.teacher, taught.teacher_share) == ("food101", 0.25)
    assert (taught.drop_path, taught.mixup) == (0.1, 0.2)
    assert told("head", teacher="food101", teacher_share="0.25").teacher is None
    with pytest.raises(CheckpointError, match="no checkpoint of that name"):
        told("all", teacher="/etc/passwd")
    with pytest.raises(ValueError, match="needs a teacher"):
        told("all", teacher_share="0.25")


def test_a_teacher_takes_its_time(tmp_path, vit_home) -> None:
    data = str(photos(tmp_path / "data", 30))
    plain = Recipe(data, start="food101", mode="all", epochs=1000)
    taught = Recipe(data, start="food101", mode="all", epochs=1000, teacher="food101")
    assert guess(plain) and guess(plain) != guess(taught)
