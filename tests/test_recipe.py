"""What a run is told, and how it is told to a command line and back."""

import json
import random
import shlex
from argparse import ArgumentParser
from dataclasses import fields
from typing import Any

import pytest

from vit.defaults import DEFAULTS, MODES, defaults
from vit.recipe import Recipe, Stage

# For every setting some values unlike its default; each allowed in its modes beside all others.
VALUES: dict[str, list[Any]] = {
    "data": ["photos", "my photos/a 'b'.zip", "-photos", "été 100 %.zip"],
    "start": ["Ti/16", "weights/a b.safetensors", "other"],
    "name": ["pasta", "Grandma's dishes", "été"],
    "mode": list(MODES),
    "blocks": [1, 12],
    "extra": [("more",), ("a b", "c"), ("-x", "y")],
    "val": ["val", "-val"],
    "val_fraction": [0.2, 1 / 3],
    "per_class": [1, 50],
    "test": [("a=one",), ("a=one two", "b=three=3")],
    "epochs": [3],
    "image_size": ["32", "32:3", "32:1,48:2:0.5"],
    "batch": [1, 64],
    "rate": [1e-3, 2.5e-7, 3],
    "layer_decay": [0.9, 1],
    "weight_decay": [0, 0.3],
    "warmup": [0, 0.25],
    "smoothing": [0, 0.2],
    "clip": [0.5, 5],
    "ema": [0, 0.9],
    "drop_path": [0.1],
    "registers": [0, 4],
    "grain": [0.5],
    "views": [1, 5],
    "min_area": [0.2, 1],
    "flip": [False],
    "colour": [0, 0.5],
    "blur": [0.25],
    "mixup": [0.2],
    "teacher": ["food101", "weights/a b.safetensors"],
    "teacher_share": [0.1, 1],
    "precision": ["bfloat16"],
    "seed": [1, 2**32 - 1],
    "memory": [0, 4000],
    "threads": [1],
    "licence": ["CC-BY-4.0", "-"],
    "attribution": ['photos by "us" & others; 100 %\nand more'],
}


PARSER = ArgumentParser()
Recipe.add_arguments(PARSER)


def parsed(recipe: Recipe) -> Recipe:
    words = shlex.split(recipe.command())
    assert words[:2] == ["python", "train.py"]
    return Recipe.from_arguments(PARSER.parse_args(words[2:]))


MODES_OF = {setting.name: setting.metadata.get("modes", MODES) for setting in fields(Recipe)}


def test_every_setting_is_tried():
    assert set(VALUES) == {setting.name for setting in fields(Recipe)}


@pytest.mark.parametrize("name", VALUES)
def test_the_command_of_each_setting_gives_it_back(name):
    for value in VALUES[name]:
        mode = MODES_OF[name][-1]
        settings: dict[str, Any] = {"data": "photos", "mode": mode, name: value}
        if name == "image_size" and ":" not in value:
            settings["epochs"] = 3
        if name == "teacher_share":
            settings["teacher"] = "food101"
        recipe = Recipe(**settings)
        assert parsed(recipe) == recipe
        assert Recipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe


def test_commands_of_many_settings_give_them_back():
    draw = random.Random(0)
    for _ in range(100):
        useful = sorted(name for name in VALUES if "all" in MODES_OF[name] and name != "mode")
        names = draw.sample(useful, draw.randint(0, len(useful)))
        settings: dict[str, Any] = {"data": "photos", "mode": "all", "teacher": "b"}
        settings |= {name: draw.choice(VALUES[name]) for name in names}
        recipe = Recipe(**settings)
        assert parsed(recipe) == recipe
        assert parsed(recipe.completed()) == recipe.completed()


def test_a_plain_command_is_short():
    assert Recipe("photos").command() == "python train.py photos"


def test_completing_changes_nothing_twice_and_nothing_that_was_said():
    starts = (("a", None), *(("a", mode) for mode in MODES), ("S/16", None), ("S/16", "all"))
    for start, mode in starts:
        recipe = Recipe("photos", start=start, mode=mode, warmup=0.0)
        full = recipe.completed()
        assert full.completed() == full
        assert full.warmup == 0 and full.start == start
        assert full.mode == (mode or ("all" if start == "S/16" else "head"))
        assert full.stages((64, 32)) == (Stage((64, 32), full.epochs or 0),)


def test_training_from_scratch_has_other_defaults():
    scratch = Recipe("photos", start="Ti/16").completed()
    tuned = Recipe("photos", mode="all").completed()
    assert (scratch.mode, scratch.rate, scratch.layer_decay) == ("all", 1e-3, 1)
    assert scratch.warmup is not None and tuned.warmup is not None
    assert scratch.warmup > tuned.warmup
    assert all(DEFAULTS[way].keys() == DEFAULTS["all"].keys() for way in DEFAULTS)


@pytest.mark.parametrize("way", DEFAULTS)
def test_few_photos_are_seen_more_often_and_many_less(way):
    counts = (10, 100, 1_000, 10_000, 100_000)
    made = [defaults(way, count) for count in counts]
    epochs = [values["epochs"] for values in made]
    assert epochs == sorted(epochs, reverse=True) and epochs[0] > epochs[-1] >= 2
    batches = [values["batch"] for values in made]
    assert batches == sorted(batches) and batches[0] < batches[-1] == 32
    assert defaults(way) == defaults(way, 200) == dict(DEFAULTS[way])


def test_what_was_said_holds_for_any_number_of_photos():
    recipe = Recipe("photos", mode="last", epochs=7, batch=5)
    full = recipe.completed(10)
    assert (full.epochs, full.batch) == (7, 5) and full.completed(100_000) == full
    staged = Recipe("photos", mode="all", image_size="32:1,48:2")
    assert staged.completed(10).epochs == 3


def test_stages():
    recipe = Recipe("photos", mode="all", image_size="128:3,224:1:0.5")
    assert recipe.stages((64, 64)) == (Stage((128, 128), 3), Stage((224, 224), 1, 0.5))
    assert recipe.completed().epochs == 4


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"mode": "some"}, "mode must be one of head, last, all"),
        ({"start": "Ti/16", "mode": "head"}, "From scratch .* choose mode all"),
        ({"start": "Ti/16", "mode": "last"}, "From scratch .* choose mode all"),
        ({"rate": 0}, "rate must be above 0"),
        ({"rate": float("nan")}, "rate must be a number"),
        ({"clip": float("inf")}, "clip must be a number"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"epochs": 2.5}, "epochs must be a whole number"),
        ({"batch": True}, "batch must be a whole number"),
        ({"val_fraction": 1}, "val_fraction must be above 0 and below 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"extra": "more"}, "extra must be"),
        ({"name": "a/b"}, "cannot be a name"),
        ({"name": "best"}, "name must not be best"),
        ({"test": ("set",)}, "NAME=FOLDER"),
        ({"test": ("a=b", "a=c")}, "differently"),
        ({"image_size": "big"}, "image_size must be pixels"),
        ({"image_size": "32:0"}, "image_size must be pixels"),
        ({"image_size": "32:1:1.5"}, "image_size must be pixels"),
        ({"image_size": "32:1,64"}, "image_size must be pixels"),
        ({"image_size": "32:2", "epochs": 3}, "contradicts"),
        ({"colour": 0.3, "blur": 0.1}, "Mode head does nothing with colour, blur"),
        ({"registers": 4}, "Mode head does nothing with registers"),
        ({"mode": "last", "registers": 4}, "Mode last does nothing with registers"),
        ({"mode": "all", "blocks": 2}, "Mode all does nothing with blocks"),
        ({"teacher": "food101"}, "Mode head does nothing with teacher"),
        ({"mode": "last", "teacher": "a", "teacher_share": 1}, "Mode last .* teacher, teacher_sh"),
        ({"mode": "all", "teacher_share": 0.7}, "teacher_share needs a teacher: name one"),
        ({"mode": "all", "teacher": "a", "teacher_share": 0}, "teacher_share must be above 0"),
        ({"mode": "all", "drop_path": 1}, "drop_path must be at least 0 and below 1"),
        ({"mode": "last", "blocks": 0}, "blocks must be at least 1"),
        ({"mode": "last", "colour": 0.3}, "set views to 4 or more"),
        ({"mode": "last", "flip": False, "views": 1, "blur": 0.3}, "set views to 3 or more"),
        ({"image_size": "32:1,64:1"}, "Mode head looks at every photo once: leave out the stages"),
        ({"mode": "last", "image_size": "32:1:0.5"}, "Mode last .* choose mode all"),
        ({"start": ""}, "start"),
        ({"data": ""}, "data"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_one_sentence(settings, says):
    with pytest.raises(ValueError, match=says) as caught:
        Recipe(**{"data": "photos"} | settings)
    assert "\n" not in str(caught.value)


def test_what_is_no_recipe_is_refused():
    bad: list[Any] = [{"data": "x", "speed": 3}, {"mode": "all"}, ["data"]]
    for values in bad:
        with pytest.raises(ValueError, match="not a recipe"):
            Recipe.from_json(values)
