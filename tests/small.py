"""Photos of coloured shapes and a tiny model: enough to train in a second."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw

from vit import checkpoint
from vit.card import Card
from vit.finetune import finetune
from vit.images import Preprocess
from vit.model import ViT, ViTConfig
from vit.recipe import Recipe
from vit.reports import Report, Step

TINY = ViTConfig((32, 32), (8, 8), width=48, depth=2, heads=3, mlp_width=96, classes=5)
COLOURS = {"beans": (60, 160, 60), "tomato": (210, 50, 40), "plum": (90, 40, 130)}


def photos(folder: Path, each: int, classes: Iterable[str] = ("beans", "tomato")) -> Path:
    """`each` photos of every class: a shape in about the colour of the class on grey, as PNG."""
    random = np.random.default_rng(len(str(folder.name)))
    for name in classes:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(each):
            grey = random.integers(90, 170)
            image = Image.new("RGB", (44, 36), (int(grey),) * 3)
            colour = tuple(int(c + random.integers(-25, 26)) for c in COLOURS[name])
            x, y = random.integers(0, 12, 2)
            draw = ImageDraw.Draw(image)
            shape = draw.ellipse if number % 2 else draw.rectangle
            shape((int(x), int(y), int(x) + 24, int(y) + 22), fill=colour)
            image.save(folder / name / f"{number:03}.png")
    return folder


def tiny_start(path: Path, config: ViTConfig = TINY, classes: tuple[str, ...] = ()) -> Path:
    """A checkpoint of a small model with random weights and a head that is not zero."""
    names = classes or tuple(f"old_{number}" for number in range(config.classes))
    config = replace(config, classes=len(names))
    torch.manual_seed(7)
    model = ViT(config)
    torch.nn.init.normal_(model.head.weight, std=0.1)
    card = Card(config, Preprocess(config.image_size, crop=1.0), names, "tiny", licence="CC0-1.0")
    return checkpoint.save(path, model, card, dtype=torch.float32)


def lay_out(folder: Path) -> Path:
    """In `folder`: data (12 training and 4 test photos of two classes) and tiny.safetensors."""
    photos(folder / "data" / "train", 12)
    photos(folder / "data" / "test", 4)
    tiny_start(folder / "tiny.safetensors")
    return folder


def run(recipe: Recipe, folder: Path, save_every: float = 60.0) -> list[Report]:
    return list(finetune(recipe, folder, save_every=save_every))


def losses(reports: Iterable[Report]) -> list[float]:
    return [report.loss for report in reports if isinstance(report, Step)]


def weights(path: Path | str) -> dict[str, torch.Tensor]:
    return checkpoint.load(path)[0].state_dict()


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Whether every weight is the same to the last bit."""
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)
