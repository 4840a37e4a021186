"""The result of a run in words and HTML, and what is drawn before and after."""

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from small import photos, run, tiny_start

from vit import checkpoint
from vit.images import open_photo
from vit.outcome import Answer, Answers, OutcomeError, read_outcome
from vit.photoset import Kept
from vit.recipe import Recipe
from vit.runstate import read_recipe
from vit.ui.before_after import before_after_html, start_of
from vit.ui.files import keep_copy
from vit.ui.outcome_html import (
    FEW,
    confusion_html,
    dishes_html,
    photos_html,
    verdict_html,
)

NASTY = '"><img src=x onerror=alert(1)>'


def answers(classes: int, *rows: tuple[int, int], name: str = "test") -> Answers:
    names = tuple(f"dish_{number}" for number in range(classes))
    kept = Kept("/nowhere", "", "a/photo.jpg", "")
    return Answers(name, names, tuple(Answer(kept, a, p, 0.9) for a, p in rows))


def words(html: str) -> str:
    return " ".join(re.sub("<[^>]*>", " ", html).split())


# --- Words and tables -------------------------------------------------------------------------


def test_the_count_in_a_sentence():
    found = answers(2, *[(0, 0)] * 40, *[(1, 1)] * 33, *[(1, 0)] * 2)
    assert words(verdict_html(found)).startswith("73 of 75 right (91 to 99 %) On the 75 photos")
    validation = replace(found, name="validation")
    assert "flatters the model" in verdict_html(validation)
    assert "of the set more kept for the test" in words(verdict_html(replace(found, name="more")))


def test_one_answer_for_everything_is_called_out():
    assert "It answers Dish 1 for every photo" in verdict_html(answers(2, (0, 1), (1, 1)))
    assert "every photo" not in verdict_html(answers(2, (0, 1), (1, 0)))
    assert "every photo" not in verdict_html(answers(2, (1, 1), (1, 1)))  # there is no other dish


def test_few_dishes_get_a_table_and_many_a_picture():
    few, many = (answers(n, *[(i, i) for i in range(n)], (0, 1)) for n in (FEW, FEW + 1))
    assert confusion_html(few).count("<button") == FEW + 1 and "all-cells" not in confusion_html(
        few
    )
    assert "<table" not in confusion_html(many) and "all-cells" in confusion_html(many)
    assert "1 × Dish 0 taken for Dish 1" in words(confusion_html(many)).replace("&nbsp;", " ")
    assert confusion_html(few).count('tabindex="0"') == 1


def test_a_hundred_dishes_stay_light():
    rows = [(i % 101, (i * i) % 101) for i in range(6060)]
    large = answers(101, *rows)
    assert len(confusion_html(large)) < 100_000
    assert len(dishes_html(large)) < 100_000


def test_dish_by_dish():
    said = words(dishes_html(answers(3, (0, 0), (0, 0), (0, 1), (1, 0))))
    assert "Dish 0 2 of 3 Said 3 times, 2 of them rightly." in said
    assert "Dish 1 0 of 1 Said once, never rightly." in said
    assert "Dish 2" not in said  # of which there is no photo


def test_names_are_text_whatever_they_hold(tmp_path):
    kept = Kept("/nowhere", "", f"{NASTY}/{NASTY}", "")
    picture = tmp_path / "photo.png"
    photos(tmp_path, 1, ["beans"])
    os.rename(tmp_path / "beans" / "000.png", picture)
    for classes in (3, FEW + 3):
        names = (NASTY, *(f"x{number}" for number in range(classes - 1)))
        found = Answers(NASTY, names, tuple(Answer(kept, a, 1 - a, 0.9) for a in (0, 1)))
        shown = [open_photo(picture), OutcomeError(NASTY)]
        html = verdict_html(found) + confusion_html(found) + dishes_html(found)
        html += photos_html(found, NASTY, [0, 1], shown, 0)
        assert "<img src=x" not in html and NASTY not in html
        assert "&lt;img src=x" in html


# --- Before and after -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A start that knows beans, photos, and a finished run from the one with the others."""
    base = tmp_path_factory.mktemp("trained")
    photos(base / "data", 6)
    model, card = checkpoint.load(tiny_start(base / "start.safetensors"))
    known = ("Beans", *card.classes[1:])  # as people write what the folder calls beans
    checkpoint.save(base / "start.safetensors", model, replace(card, classes=known))
    recipe = Recipe(str(base / "data"), start=str(base / "start.safetensors"), epochs=1)
    run(recipe, base / "run")
    return base


def both(folder: Path) -> str:
    outcome = read_outcome(folder)
    assert outcome is not None
    return before_after_html(folder, outcome.best_known, 0)


def answered(folder: Path) -> str:
    outcome = read_outcome(folder)
    assert outcome is not None
    first = outcome.best_known.answers[0]
    return outcome.best_known.classes[first.predicted]


def test_both_are_asked_the_same(trained):
    html = both(trained / "run")
    assert html.count("<figure>") == 2 and "One scale for both" in html
    said = words(html)
    assert "Before: start" in said and "After: my-dishes" in said
    assert "Only the head was trained" in said
    if answered(trained / "run") == "beans":
        assert "Both maps: what speaks for Beans" in said
    else:
        assert "start does not know Tomato" in said


def test_a_start_without_dishes_shows_the_rollout_on_both_sides(trained, tmp_path):
    model, card = checkpoint.load(trained / "start.safetensors")
    plain = tmp_path / "plain.safetensors"
    checkpoint.save(plain, model, replace(card, trained_head=False))
    run(replace(read_recipe(trained / "run"), start=str(plain)), tmp_path / "run")
    said = words(both(tmp_path / "run"))
    assert "plain knew no dishes, so both show the rollout" in said
    assert said.count("Rollout:") == 2 and "It knew no dishes." in said


@pytest.mark.parametrize("what", ["gone", "replaced", "scratch"])
def test_without_a_start_only_the_result_is_shown(trained, tmp_path, what):
    folder = shutil.copytree(trained / "run", tmp_path / "run")
    recipe = read_recipe(folder)
    if what == "scratch":
        recipe = replace(recipe, start="Ti/16", mode="all")
    else:
        start = tmp_path / "start.safetensors"
        if what == "replaced":
            shutil.copy(trained / "run" / "best.safetensors", start)
        recipe = replace(recipe, start=str(start))
    path, why = start_of(recipe, folder)
    assert path is None
    assert {"gone": "not there any more", "replaced": "replaced since"}.get(what, "random") in why
    path, why = start_of(read_recipe(folder), folder)
    assert path == trained / "start.safetensors" and not why


# --- Files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("linked", [True, False])
def test_a_large_file_is_offered_under_its_own_name(tmp_path, monkeypatch, linked):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "uploads"))
    if not linked:  # as between two disks

        def refuse(*_: object) -> None:
            raise OSError(18, "Invalid cross-device link")

        monkeypatch.setattr(os, "link", refuse)
    source = tmp_path / "my dishes.safetensors"
    source.write_bytes(b"weights")
    path = Path(keep_copy(source))
    assert path.name == source.name and path.read_bytes() == b"weights"
    assert path.is_relative_to(tmp_path / "uploads")
    assert keep_copy(source) == str(path) and len(list(path.parent.iterdir())) == 1
