"""Where two models looked on one photo: the start of a run and its result, on one scale."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from vit import captions, checkpoint
from vit.card import CheckpointError
from vit.looking import Look, Question, look_at
from vit.model import PRESETS
from vit.names import dish_name
from vit.outcome import Answers, OutcomeError, photo_bytes, result_file
from vit.readings import heat_of
from vit.recipe import Recipe
from vit.runstate import read_recipe
from vit.ui.grid import scale_url
from vit.ui.outcome_html import said_of
from vit.ui.seen import drawn_photo, jpeg_url
from vit.ui.words import percent
from vit.wall import same_scale


@dataclass(frozen=True)
class Side:
    """One of the two: its title, what it did with the photo, and which map is drawn."""

    title: str
    look: Look
    question: Question


def before_after_html(folder: Path, answers: Answers, place: int) -> str:
    """The photo at a place of the run's answers with both maps. Runs both models, once a photo.

    Raises OutcomeError when the photo is gone, and what `look_at` raises.
    """
    answer = answers.answers[place]
    data = photo_bytes([answer.photo])[0]
    if isinstance(data, OutcomeError):
        raise data
    recipe = read_recipe(folder)
    source, why = start_of(recipe, folder)
    with tempfile.TemporaryDirectory() as own:  # the photo may lie in a zip
        file = Path(own) / "photo"
        file.write_bytes(data)
        after = look_at(str(file), result_file(folder))
        before = look_at(str(file), source) if source else None
        sides = _sides(before, after, recipe)
        heats, top = same_scale([heat_of(side.look, side.question) for side in sides])
    figures = []
    for side, heat in zip(sides, heats, strict=True):
        picture = drawn_photo(side.look, side.question, heat=heat, top=top)
        drawn = captions.drawn(side.look, side.question)
        figures.append(
            f'<figure><img src="{jpeg_url(picture)}" alt="{escape(f"{side.title}. {drawn}")}" '
            f'width="{picture.width}" height="{picture.height}"><figcaption>'
            f"<h4>{escape(side.title)}</h4><p>{escape(_said(side.look))}</p>"
            f'<p class="note">{escape(drawn)}</p></figcaption></figure>'
        )
    name = answer.photo.name.rpartition("/")[2]
    return (
        f"<h3>Before and after: {escape(name)}</h3>"
        f'<p role="status">{escape(said_of(answers, answer))}. {escape(_note(sides, recipe, why))}'
        f'</p><div class="compared">{"".join(figures)}</div>'
        f'<p class="scale">0 <img src="{scale_url("inferno")}" alt="from dark to bright"> '
        f"<span>{_scale(sides, top)}</span></p>"
    )


def start_of(recipe: Recipe, folder: Path) -> tuple[Path | None, str]:
    """The checkpoint that a run began with, or why there is none to look with."""
    if recipe.start in PRESETS:
        return None, "The run began with random weights, so there is nothing to see before it."
    kept = checkpoint.read_card(result_file(folder)).training.get("start_fingerprint")
    try:
        path = Path(recipe.start)
        path = path if path.is_file() else checkpoint.resolve(recipe.start)
        if checkpoint.fingerprint(path) != kept:
            return None, f"The checkpoint it began with, {recipe.start}, has been replaced since."
        if not checkpoint.is_ours(path):
            return None, "It began with weights that are no checkpoint of ours: import them first."
    except (CheckpointError, OSError):
        return None, f"The checkpoint it began with, {recipe.start}, is not there any more."
    return path, ""


def _sides(before: Look | None, after: Look, recipe: Recipe) -> list[Side]:
    """The same question to both: relevance for the dish that the result names, or rollout where
    the start knows no dishes."""
    title = f"After: {recipe.name}"
    if before is None:
        return [Side(title, after, Question())]
    first = f"Before: {before.name}"
    if not before.card.trained_head:
        rollout = Question("rollout")
        return [Side(first, before, rollout), Side(title, after, rollout)]
    target = _known_as(after.card.classes[after.predicted], before.card.classes)
    return [Side(first, before, Question(target=target)), Side(title, after, Question())]


def _known_as(dish: str, classes: Sequence[str]) -> int | None:
    """Which of the classes is this dish, as people read their names; None for none."""
    names = [dish_name(name).casefold() for name in classes]
    name = dish_name(dish).casefold()
    return names.index(name) if name in names else None


def _note(sides: list[Side], recipe: Recipe, why: str) -> str:
    if len(sides) == 1:
        return why
    before, after = (side.look for side in sides)
    dish = after.card.classes[after.predicted]
    if not before.card.trained_head:
        text = f"{before.name} knew no dishes, so both show the rollout."
    elif _known_as(dish, before.card.classes) is None:
        text = (
            f"{before.name} does not know {dish_name(dish)}, so its map is for its own best guess."
        )
    else:
        text = f"Both maps: what speaks for {dish_name(dish)}."
    if recipe.completed().mode == "head":
        text += " Only the head was trained: both look with the same eyes, and weigh it otherwise."
    return text


def _said(look: Look) -> str:
    if not look.card.trained_head:
        return "It knew no dishes."
    name = look.card.labels[look.predicted]
    return f"It says {name}, {percent(look.probabilities[look.predicted].item())}."


def _scale(sides: list[Side], top: float) -> str:
    both = "One scale for both: the same" if len(sides) > 1 else "The"
    text = f"{both} colour is the same share of a map's total; brightest: {captions.share(top)}"
    if any(side.look.sinks.patches for side in sides):
        text += ". White frames: sinks, which hold attention whatever they show"
    return f"{text}."
