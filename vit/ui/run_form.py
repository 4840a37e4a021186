"""What a run is told: the form, made of the recipe's own settings, and the command that does it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import Field, fields
from html import escape
from typing import Any, get_args

import gradio as gr
from gradio.components import Component

from vit import estimate
from vit.checkpoint import available, destination
from vit.defaults import MODES
from vit.model import PRESETS
from vit.recipe import Recipe
from vit.reports import duration
from vit.runs import Runs
from vit.ui.header import find
from vit.ui.page import QUIET
from vit.ui.words import trouble

RUNS = Runs()
WAYS = {
    "head": "head only",
    "last": "last blocks",
    "all": "everything",
}
# Paths of this machine are not for visitors to choose; the rest stands above or beside the form.
NOT_HERE = ("data", "start", "name", "mode", "extra", "val", "test", "threads", "memory")
SETTINGS: tuple[Field, ...] = tuple(each for each in fields(Recipe) if each.name not in NOT_HERE)
LABELS = {
    "val_fraction": "Validation share",
    "per_class": "Photos a class",
    "rate": "Learning rate",
    "ema": "Averaging of weights",
}
SCRATCH = "from scratch: "
FIRST_NAME = "my-dishes"
NO_PHOTOS = "Bring photos of two dishes or more first."
USUAL = "as suits"  # in an empty field
ANSWERS = {"yes": True, "no": False}  # where that is a third choice

EXPECT = {
    "head": "Seconds. The model keeps all it knows about pictures and learns a new last layer: "
    "the best choice up to a few hundred photos.",
    "last": "Under a minute or some minutes. The last blocks learn along with the head: worth a "
    "try when the head alone confuses dishes that look alike.",
    "all": "Minutes to hours. Every weight learns: the most accurate with many photos, and the "
    "slowest.",
    "scratch": "Expect little: a Vision Transformer that has never seen a picture needs many "
    "thousands of photos. With a few hundred it ends a little above guessing, where a start from "
    "trained weights ends above 90 %.",
}


class Form:
    """The controls, and the recipe that they make."""

    def __init__(self, data: gr.State) -> None:
        self.data = data
        with gr.Row(elem_id="run-how"):
            self.mode = gr.Radio(
                [(WAYS.get(mode, mode), mode) for mode in MODES],
                value="head",
                label="What learns",
                scale=2,
                min_width=280,
                elem_id="run-mode",
            )
            choices = starts()
            self.start = gr.Dropdown(
                choices,
                value=choices[0][1],
                label="Starting from",
                scale=1,
                min_width=220,
                elem_id="run-start",
                filterable=False,
            )
            self.name = gr.Textbox(
                label="Name of the new model",
                placeholder=FIRST_NAME,
                scale=1,
                min_width=180,
                max_length=60,
                elem_id="run-name",
            )
        self.expect = gr.HTML(f"<p>{escape(EXPECT['head'])}</p>", elem_id="run-expect")
        self.advanced: dict[str, Component] = {}
        with (
            gr.Accordion("Advanced", open=False, elem_id="run-advanced"),
            gr.Row(elem_id="run-settings"),
        ):
            for setting in SETTINGS:
                self.advanced[setting.name] = control(setting)

    @property
    def inputs(self) -> list:
        return [self.data, self.mode, self.start, self.name, *self.advanced.values()]

    def connect(self, command: gr.Textbox, go: gr.Button, about: gr.HTML) -> None:
        """Keep command, button and estimate true to the form."""
        gr.on(
            [self.mode.change, self.start.change],
            suited,
            [self.mode, self.start],
            [self.mode, self.expect, *self.advanced.values()],
            queue=False,
            **QUIET,
        )
        gr.on(
            [each.change for each in self.inputs],
            preview,
            self.inputs,
            [command, go, about],
            trigger_mode="always_last",
            concurrency_limit=None,
            **QUIET,
        )


def control(setting: Field) -> Component:
    """A field for one setting of the recipe; empty means what suits the way of training."""
    kind = _kind(setting)
    default: Any = setting.default
    among = setting.metadata.get("among")
    about: dict[str, Any] = {
        "label": label(setting),
        "info": setting.metadata["help"],
        "min_width": 220,
        "visible": shown(setting, "head"),
        "elem_id": f"set-{setting.name}",
    }
    if kind is bool:
        if default is None:
            return gr.Dropdown([USUAL, *ANSWERS], value=USUAL, **about)
        return gr.Checkbox(default, **about)
    if among:
        return gr.Dropdown(list(among), value=default, **about)
    if setting.name == "teacher":
        return gr.Dropdown(teachers(), value="", filterable=False, **about)
    # Text for numbers too: Gradio's field for numbers shows and sends 0 where nothing was entered.
    text = "" if default is None else f"{default:g}" if kind in (int, float) else default
    usual = USUAL if default is None and kind in (int, float) else None
    return gr.Textbox(text, placeholder=usual, max_length=300, **about)


def label(setting: Field) -> str:
    return LABELS.get(setting.name, setting.name.replace("_", " ").capitalize())


def number_of(setting: Field, text: str) -> int | float:
    """What was typed, as a number of the setting's kind; ValueError where it is none."""
    kind = _kind(setting)
    try:
        return int(text) if kind is int else float(text.replace(",", "."))
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise ValueError(f"{label(setting)} must be {what}, got {text[:30]!r}.") from None


def _kind(setting: Field) -> object:
    return next(iter(get_args(setting.type)), setting.type)


def shown(setting: Field, way: str) -> bool:
    """Whether a setting has an effect in this way of training."""
    modes = setting.metadata.get("modes")
    return modes is None or ("all" if way == "scratch" else way) in modes


def starts() -> list[tuple[str, str]]:
    """Where a run can begin: what the picker lists, then every preset."""
    listed = [(entry.name, entry.name) for entry in available()]
    return listed + [(f"{SCRATCH}{name}", name) for name in PRESETS]


def teachers() -> list[tuple[str, str]]:
    """Whose answers a run can learn from: nobody's, or those of what the picker lists."""
    return [("none", ""), *((entry.name, entry.name) for entry in available())]


def free_name() -> str:
    """For a model without a name: the usual one, with a number behind it where it is taken."""
    for tried in (FIRST_NAME, *(f"{FIRST_NAME}-{number}" for number in range(2, 1000))):
        with suppress(ValueError):
            destination(tried)
            if all(run.title != tried for run in RUNS.all()):
                return tried
    raise ValueError("Give the new model a name.")


def suited(mode: str, start: str | None) -> list:
    """The mode that goes with the start, what to expect, and which settings have an effect."""
    scratch = start in PRESETS
    way = "scratch" if scratch else mode
    modes = gr.update(value="all", interactive=False) if scratch else gr.update(interactive=True)
    told = "all" if scratch else mode
    usual = Recipe("photos", start=start or "any", mode=told).completed().to_json()
    updates: list[dict] = []
    for setting in SETTINGS:
        update: dict[str, Any] = {"visible": shown(setting, way)}
        if setting.default is None and _kind(setting) in (int, float):
            value = usual.get(setting.name)
            update["placeholder"] = USUAL if value is None else f"{value:g}"
        updates.append(gr.update(**update))
    return [modes, f"<p>{escape(EXPECT[way])}</p>", *updates]


def recipe_of(data: str | None, mode: str, start: str | None, name: str, *advanced: Any) -> Recipe:
    """The recipe that the form makes; ValueError, in one sentence, for what cannot be."""
    if not data:
        raise ValueError(NO_PHOTOS)
    scratch = start is not None and start in PRESETS
    source = start if start is not None and scratch else find(start).name  # never a path
    way = "scratch" if scratch else mode
    values: dict[str, Any] = {}
    for setting, value in zip(SETTINGS, advanced, strict=True):
        if isinstance(value, str):
            value = value.strip()
        if setting.default is None and _kind(setting) is bool:
            value = ANSWERS.get(value)
        if value not in (None, "") and shown(setting, way):
            number = _kind(setting) in (int, float)
            values[setting.name] = number_of(setting, str(value)) if number else value
    if "teacher" in values:
        find(values["teacher"])  # never a path
    told = {"head": None, "scratch": "all"}.get(way, mode)  # None: the usual, so a short command
    return Recipe(data, start=source, name=name.strip() or free_name(), mode=told, **values)


def preview(*values: Any) -> tuple[dict, dict, str]:
    """The command, where there is one; whether it can be started; and how long it will take, or
    what is in the way."""
    try:
        recipe = recipe_of(*values)
        destination(recipe.name)
    except (ValueError, OSError) as error:
        waiting = not values[0]
        said = "" if waiting else f'<p class="trouble" role="alert">{escape(reason(error))}</p>'
        nothing = gr.update(value="", visible=False)
        return nothing, gr.update(interactive=False), said or f"<p>{NO_PHOTOS}</p>"
    command = gr.update(value=recipe.command(), visible=True)
    return command, gr.update(interactive=True), f"<p>{escape(guess(recipe))}</p>"


def reason(error: Exception) -> str:
    """The sentence of a recipe's own ValueError, or of any other error of ours."""
    return str(error) if type(error) is ValueError else trouble(error)


def guess(recipe: Recipe) -> str:
    """For instance "about 9 s on this machine"."""
    if recipe.start in PRESETS:
        config = PRESETS[recipe.start]
        size = config.image_size
    else:
        card = find(recipe.start).card
        config, size = card.config, card.preprocess.size
    teacher = find(recipe.teacher).card.config if recipe.teacher else None
    seconds = estimate.seconds(recipe, config, size, teacher)
    return "" if seconds is None else f"about {duration(round_up(seconds))} on this machine"


def round_up(seconds: float) -> float:
    """To two digits at most: 12.7 as 13, 387 as 390; minutes above ten of them."""
    if seconds >= 600:
        return 60 * round(seconds / 60)
    return round(seconds, -1) if seconds >= 100 else round(seconds)
