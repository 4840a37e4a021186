"""What training begins with: a preset or the weights of another model, and its head."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vit import checkpoint
from vit.card import Card
from vit.images import Preprocess
from vit.model import PRESETS, ViT
from vit.pretrained import read_weights
from vit.recipe import Recipe, Stage


@dataclass(frozen=True)
class Start:
    """Where a run begins. `model` is None for training from scratch, `fingerprint` then empty."""

    card: Card
    model: ViT | None = None
    fingerprint: str = ""

    def new_model(self, classes: Sequence[str], recipe: Recipe) -> ViT:
        """The model to train: the weights of the start, with a head for `classes`.

        A head trained for these very classes is kept and trained on; any other is dropped for one
        of zeros. Registers that the start lacks take over the part of its corners, see
        `relieve_corners`; a model from scratch is drawn by the recipe's seed.
        """
        had = self.card.config.registers
        config = replace(
            self.card.config,
            classes=len(classes),
            registers=had if recipe.registers is None else recipe.registers,
        )
        torch.manual_seed(recipe.seed)
        model = ViT(config)
        if self.model is not None:
            kept = self.model.state_dict()
            if not self.answers(classes):
                del kept["head.weight"], kept["head.bias"]
            if config.registers != had:
                kept.pop("reg_token", None)
            model.load_state_dict(kept, strict=False)
            if config.registers and config.registers != had:
                relieve_corners(model)
        return model

    def answers(self, classes: Sequence[str]) -> bool:
        """Whether its head was trained for these very classes, in this order."""
        return self.card.trained_head and self.card.classes == tuple(classes)

    def record(self) -> dict[str, Any]:
        """For the card of what comes out: title, fingerprint and own record of the start."""
        return {
            "started_from": self.card.title,
            "start_fingerprint": self.fingerprint,
            "parent": dict(self.card.training),
        }


def read_start(recipe: Recipe) -> tuple[Start, tuple[Stage, ...]]:
    """What `recipe.start` names, and the stages of training with their picture sizes.

    CheckpointError when there is no such thing; ValueError for a size that patches do not fill,
    and for more blocks to train than there are.
    """
    text = recipe.start
    if text in PRESETS:
        config = PRESETS[text]
        names = tuple(f"class_{number}" for number in range(config.classes))
        start = Start(Card(config, Preprocess(config.image_size), names, text))
    else:
        start = trained(text)
    depth = start.card.config.depth
    if recipe.blocks is not None and recipe.blocks > depth:
        raise ValueError(
            f"blocks must be from 1 to {depth}, which is how many {text} has; got {recipe.blocks}."
        )
    stages = recipe.stages(start.card.preprocess.size)
    check_sizes(stages, start, text)
    return start, stages


def trained(text: str) -> Start:
    """What is in the checkpoint, or file of weights of others, that `text` names; CheckpointError
    when there is no such thing."""
    path = Path(text) if Path(text).is_file() else checkpoint.resolve(text)
    model, card = load(path)
    return Start(card, model, checkpoint.fingerprint(path))


def check_sizes(stages: Sequence[Stage], start: Start, name: str) -> None:
    """ValueError for a picture size that the patches of `start`, called `name`, do not fill."""
    patch = start.card.config.patch_size
    for stage in stages:
        if stage.size[0] % patch[0] or stage.size[1] % patch[1]:
            step = max(patch)
            near = max(1, round(stage.size[0] / step)) * step
            raise ValueError(
                f"image_size must be a multiple of {step}, the patches of {name}; got "
                f"{stage.size[0]}, so take {near}."
            )


def relieve_corners(model: ViT) -> None:
    """Give the registers what makes a trained model's corner patches its attention sinks.

    Published ViTs park attention on the corners, which show the least of a photo, and know them by
    their position embeddings. Each register becomes such a corner without a picture: its position
    and the patch embedding of mid grey. The corner itself gets the mean position of its neighbours.
    On 101 photos ViT-Ti/16 of ImageNet then leaves 2 to 3 % of the class token's patch attention to
    the corners instead of 30 to 34 %, without any training, and 31 % of all goes to the registers.
    """
    assert model.reg_token is not None
    h, w = model.grid
    with torch.no_grad():
        positions = model.pos_embed[0, model.config.class_tokens :].unflatten(0, (h, w))  # a view
        before, grey = (
            positions.clone(),
            model.patch_embed(torch.zeros(1, 3, *model.config.patch_size)),
        )
        corners = [(0, 0), (0, w - 1), (h - 1, 0), (h - 1, w - 1)]
        for number, register in enumerate(model.reg_token[0]):
            row, column = corners[number % 4]
            register.copy_(before[row, column] + grey.flatten())
            beside = before[row, min(1, w - 1) if column == 0 else column - 1]
            below = before[min(1, h - 1) if row == 0 else row - 1, column]
            positions[row, column] = (beside + below) / 2


def load(path: Path) -> tuple[ViT, Card]:
    """A checkpoint of ours, or else a file of weights of others."""
    return checkpoint.load(path) if checkpoint.is_ours(path) else read_weights(path)
