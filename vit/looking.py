"""One photo through one checkpoint: all that the model did with it, kept for every later question.

`look_at` runs the model once and keeps a `Look`: logits, the maps of every head, sinks, the photo
as it is shown. A `Question` names one of the many maps that `vit.readings` takes from it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Literal, get_args

import torch
from PIL import Image
from torch import Tensor

from vit.attention import attend
from vit.card import Card
from vit.checkpoint import version
from vit.classifier import Classifier
from vit.heat import Box, widened
from vit.images import Fit, content_of, open_photo
from vit.lru import Store
from vit.maps import Sinks, find_sinks

MAX_LOOKS = 24
MAX_BYTES = 512 * 2**20  # of maps; ViT-Ti/16 needs 3 MB a photo, ViT-B/16 at 384 pixels 96 MB
ENOUGH = 720  # pixels of the short side of the photo as it is drawn
LONGEST = 960  # pixels of its long side

Method = Literal["relevance", "head", "mean", "max", "rollout"]
METHODS: tuple[Method, ...] = get_args(Method)


class LookError(ValueError):
    """A question that cannot be answered; the text says what can."""


@dataclass(frozen=True)
class Look:
    """What a checkpoint did with one photo.

    photo: upright, with a letterbox's borders, of a size to look at. box: on it, what the model
    saw; original_box: the same in pixels of the upright original of photo_size (width, height).
    maps: (layers, heads, N, N), float16, on the CPU. milliseconds: reading the photo and the model.
    """

    key: Hashable
    name: str
    path: Path
    card: Card
    photo: Image.Image
    box: Box
    photo_size: tuple[int, int]
    original_box: Box
    view: Image.Image
    grid: tuple[int, int]
    prefix: int
    logits: Tensor
    maps: Tensor
    sinks: Sinks
    milliseconds: float

    @property
    def depth(self) -> int:
        return self.maps.shape[0]

    @property
    def heads(self) -> int:
        return self.maps.shape[1]

    @property
    def probabilities(self) -> Tensor:
        """Calibrated, (C,)."""
        return (self.logits / self.card.temperature).softmax(0)

    @property
    def predicted(self) -> int:
        return int(self.logits.argmax())


@dataclass(frozen=True)
class Question:
    """Which map to show.

    layer, head: for the methods that need them. token: the patch that asks, by rows from 0; None
    for the class token. by: not where it looks, but who looks at it. target: the class that
    relevance is for; None for the predicted one. aside: leave the sinks out and share anew.
    """

    method: Method = "relevance"
    layer: int = 0
    head: int = 0
    token: int | None = None
    by: bool = False
    target: int | None = None
    aside: bool = False

    def aim(self, look: Look) -> int:
        """The class that relevance is for, and that a test of the map watches."""
        return look.predicted if self.target is None else self.target


def look_at(
    photo: str, checkpoint: Path, fit: Fit | None = None, visitor: str | None = None
) -> Look:
    """The photo in the file `photo` through the checkpoint in the file `checkpoint`; kept while it
    is among the last used, and until all visitors who looked have left.

    Raises PhotoError, CheckpointError, and LookError when the maps would not fit in memory.
    """
    classifier = Classifier.load(checkpoint)
    fit = fit or classifier.card.preprocess.fit
    key = (content_of(photo), str(checkpoint), version(checkpoint), fit)
    return looks.get(key, partial(_look, key, photo, classifier, fit), visitor)


def pixels_of(look: Look, classifier: Classifier) -> Tensor:
    """What the model reads, (1, 3, H, W), on its device."""
    return classifier.card.preprocess.batch([look.view]).to(classifier.device)


def _look(key: Hashable, source: str, classifier: Classifier, fit: Fit) -> Look:
    card, model = classifier.card, classifier.model
    preprocess = replace(card.preprocess, fit=fit)
    _check_memory(card, preprocess.size)
    started = perf_counter()
    opened = open_photo(source, at_least=2 * min(preprocess.size))  # as the classifier reads it
    view = preprocess.view(opened.image)
    logits, maps = attend(model, preprocess.batch([view]).to(classifier.device))
    milliseconds = 1000 * (perf_counter() - started)
    small = opened.image
    if min(small.size) < min(ENOUGH, *opened.size):
        small = open_photo(source, at_least=ENOUGH).image
    small.thumbnail((LONGEST, LONGEST))
    photo, box = widened(small, preprocess.box(*small.size))
    grid = tuple(s // p for s, p in zip(preprocess.size, card.config.patch_size, strict=True))
    return Look(
        key=key,
        name=classifier.name,
        path=classifier.path,
        card=card,
        photo=photo,
        box=box,
        photo_size=opened.size,
        original_box=preprocess.box(*opened.size),
        view=view,
        grid=(grid[0], grid[1]),
        prefix=model.num_prefix_tokens,
        logits=logits[0].float().cpu(),
        maps=maps[:, 0].to(torch.float16).cpu(),
        sinks=find_sinks(maps[:, 0], model.num_prefix_tokens),
        milliseconds=milliseconds,
    )


def map_bytes(card: Card, size: tuple[int, int]) -> int:
    """What the kept maps of one photo of `size` pixels take."""
    config = card.config
    patches = (size[0] // config.patch_size[0]) * (size[1] // config.patch_size[1])
    return 2 * config.depth * config.heads * (config.num_prefix_tokens + patches) ** 2


def _check_memory(card: Card, size: tuple[int, int]) -> None:
    if (needed := map_bytes(card, size)) > MAX_BYTES:
        raise LookError(
            f"The maps of this model take {needed / 2**20:,.0f} MB a photo, over the "
            f"{MAX_BYTES / 2**20:.0f} MB kept for them; choose a model with larger patches."
        )


looks: Store[Look] = Store(
    MAX_LOOKS, MAX_BYTES, lambda look: look.maps.nbytes + 3 * look.photo.width * look.photo.height
)
