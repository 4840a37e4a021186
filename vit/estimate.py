"""About how long a run will take on this machine, before it begins."""

import math
import time
from functools import cache

import torch

from vit.data import DataError
from vit.folders import Found
from vit.model import ViTConfig
from vit.recipe import Recipe
from vit.summary import multiply_adds

LOADING = 4.0  # seconds until Python and torch are there
READING = 0.012  # seconds to read and decode a photo
SHARE = 0.5  # of the speed of a plain matrix product, reached by a model as a whole
BACKWARD = 3.0  # a step with gradients costs so many forwards


def count_photos(data: str) -> tuple[int, int, int]:
    """Photos to train with, to choose by where they lie apart, and to test with; none is opened."""
    sets = Found(data).sets
    train, val, test = (
        sum(map(len, sets.get(name, {}).values())) for name in ("train", "val", "test")
    )
    return train or sum(map(len, sets.get("all", {}).values())), val, test


def seconds(
    recipe: Recipe, config: ViTConfig, size: tuple[int, int], teacher: ViTConfig | None = None
) -> float | None:
    """Rough: within a factor of two on an idle machine. None where the photos are not there."""
    try:
        train, val, test = count_photos(recipe.data)
    except (DataError, OSError):
        return None
    if not val:
        val = math.ceil(train * recipe.val_fraction)
        train -= val
    if recipe.per_class is not None:
        train = min(train, recipe.per_class * 3)
    one = multiply_adds(config) / (SHARE * speed())
    full = recipe.completed(train)
    total = LOADING + (train + val + test) * READING / 2 + test * (one + READING)
    if recipe.way == "head":
        return total + (train + val) * READING + ((1 + bool(full.flip)) * train + val) * one
    if recipe.way == "last":
        share = (full.blocks or 1) / config.depth
        views = full.views or 1 + bool(full.flip)
        frozen = (views * train + val) * one * (1 - share) + (train + val) * READING
        epochs = sum(stage.epochs for stage in recipe.stages(size, train))
        return total + frozen + epochs * (BACKWARD * train + val) * one * share
    for stage in recipe.stages(size, train):
        pixels = stage.size[0] * stage.size[1] / (config.image_size[0] * config.image_size[1])
        step = BACKWARD * one * pixels * stage.keep + READING
        if teacher is not None:
            share = stage.size[0] * stage.size[1] / math.prod(teacher.image_size)
            step += multiply_adds(teacher) / (SHARE * speed()) * share
        total += stage.epochs * (train * step + val * (one * pixels + READING))
    return total


@cache
def speed() -> float:
    """Multiply-adds a second of this machine: the fastest of some matrix products, for each of them
    may have waited for other programs."""
    a = torch.rand(1024, 1024)
    best = math.inf
    for _ in range(8):
        began = time.perf_counter()
        torch.mm(a, a)
        best = min(best, time.perf_counter() - began)
    return 1024**3 / best
