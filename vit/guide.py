"""A photo made ready for the guided tour: one checkpoint's way from it to the answer, kept, and
what the visitor has chosen to look at on that way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from vit.classifier import Classifier
from vit.images import Fit
from vit.inside import Inside, inside
from vit.lru import Store
from vit.model import ViT
from vit.walk import BlockWalk, Walk, walk, walk_block

MAX_BYTES = 192 * 2**20  # of walks; ViT-Ti/16 needs 4 MB a photo, ViT-L/16 30 MB
MAX_BLOCK_BYTES = 96 * 2**20  # of single blocks; ViT-Ti/16 needs 3 MB, ViT-B/16 at 384 pixels 40


class TourError(ValueError):
    """The tour cannot go on; the text says why."""


@dataclass(frozen=True)
class Guided:
    """One photo, what a checkpoint makes of it, and every step between."""

    inside: Inside
    walk: Walk

    @property
    def model(self) -> ViT:
        return Classifier.load(self.inside.path).model

    @property
    def dishes(self) -> tuple[str, ...]:
        """Names for people, in the order of the logits."""
        return self.inside.card.labels

    @property
    def predicted(self) -> int:
        return int(self.walk.logits.argmax())

    @property
    def class_tokens(self) -> int:
        """One, or two in a distilled model."""
        return self.inside.card.config.class_tokens

    def block(self, number: int) -> BlockWalk:
        """What block `number`, from 0, does with this photo; kept while it is among the last."""
        return _blocks.get(
            (self.inside.key, number), lambda: walk_block(self.model, self.walk, number)
        )


@dataclass(frozen=True)
class Choice:
    """What is looked at, all counted from 0. patch: by rows. patch_asks: that patch asks and the
    class token is asked; else the other way round. number: of a token's D, or of a head's. neuron:
    of the MLP's hidden numbers. dish: None for the one that the model names. softness: what scores
    are divided by before a head's softmax; temperature: the same for logits, None for the
    checkpoint's own. batch: photos in the batch."""

    patch: int = 0
    patch_asks: bool = False
    block: int = 0
    head: int = 0
    number: int = 0
    neuron: int = 0
    dish: int | None = None
    softness: float = 1.0
    temperature: float | None = None
    batch: int = 8

    def fitted(self, this: Guided) -> Choice:
        """The nearest that this model has: another may have fewer heads."""
        config = this.inside.card.config
        return replace(
            self,
            patch=_within(self.patch, this.walk.patches),
            block=_within(self.block, this.walk.depth),
            head=_within(self.head, config.heads),
            number=_within(self.number, config.width),
            neuron=_within(self.neuron, config.mlp_width),
            dish=this.predicted if self.dish is None else _within(self.dish, config.classes),
            softness=min(max(self.softness, 0.05), 20.0),
            temperature=min(max(self.temperature or this.inside.card.temperature, 0.05), 20.0),
            batch=min(max(self.batch, 1), 64),
        )

    def asks(self, this: Guided) -> int:
        """The token that asks."""
        return this.walk.prefix + self.patch if self.patch_asks else 0

    def asked(self, this: Guided) -> int:
        """The token that is asked in the products that are written out."""
        return 0 if self.patch_asks else this.walk.prefix + self.patch


def guide(photo: str, checkpoint: Path, fit: Fit | None = None) -> Guided:
    """The photo in the file `photo` through the checkpoint in the file `checkpoint`; kept while it
    is among the last used. Raises PhotoError, CheckpointError, and TourError for a model whose
    blocks are built in a way that the tour does not know."""
    this = inside(photo, checkpoint, fit)
    return _walks.get(this.key, lambda: _guide(this))


def _guide(this: Inside) -> Guided:
    classifier = Classifier.load(this.path)
    pixels = this.preprocess.batch([this.view]).to(classifier.device)
    try:
        way = walk(classifier.model, pixels)
        walk_block(classifier.model, way, 0)
    except (AttributeError, IndexError) as error:
        raise TourError(f"{this.name} is built in a way that the tour does not know.") from error
    return Guided(this, way)


def token_name(this: Guided, token: int) -> str:
    """ "the class token", "register 2" or "row 3, column 5", counted from 1."""
    prefix, classes = this.walk.prefix, this.class_tokens
    if token >= prefix:
        row, column = divmod(token - prefix, this.walk.grid[1])
        return f"row {row + 1}, column {column + 1}"
    if token < classes:
        return "the distillation token" if token else "the class token"
    return f"register {token - classes + 1}"


def first_choice(this: Guided) -> Choice:
    """Where the tour begins: the middle patch, the last block, and the head and the number that
    have the most to show there."""
    rows, columns = this.walk.grid
    patch = rows // 2 * columns + columns // 2
    block = this.walk.depth - 1
    way = this.block(block)
    return Choice(
        patch=patch,
        block=block,
        head=int(way.mixed[:, 0].norm(dim=-1).argmax()),
        number=int(torch.linalg.vector_norm(this.walk.features, dim=(1, 2)).argmax()),
        neuron=int(way.active[0].abs().argmax()),
    ).fitted(this)


def _within(number: int, count: int) -> int:
    return max(0, min(number, count - 1))


_walks: Store[Guided] = Store(24, MAX_BYTES, lambda this: this.walk.nbytes)
_blocks: Store[BlockWalk] = Store(24, MAX_BLOCK_BYTES, lambda way: way.nbytes)
