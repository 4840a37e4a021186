"""One photo inside one checkpoint: read once, then looked at from every side without the model."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from vit.card import Card
from vit.checkpoint import version
from vit.classifier import Classifier, UntrainedHead
from vit.explain import without_patches
from vit.heat import Box, widened
from vit.images import Fit, Preprocess, content_of, open_photo
from vit.lru import Store
from vit.patches import Reading, most_trusted, read

MAX_READINGS = 64
MAX_BYTES = 256 * 2**20  # ViT-Ti/16 with a photo needs 2 MB, ViT-B/16 at 384 pixels 7 MB
SHORT, LONG = 640, 960  # pixels: sides of the photo as it is drawn
TRUSTED = 0.2  # share of the patches that "what it trusts most" takes


@dataclass(frozen=True)
class Inside:
    """What a checkpoint makes of one photo.

    photo: upright, with a letterbox's borders, of a size to look at. box: on it, what the model
    saw; original_box: the same in pixels of the upright original of photo_size (width, height).
    view: the model's picture. preprocess: how it came about.
    """

    key: Hashable
    name: str
    path: Path
    card: Card
    preprocess: Preprocess
    photo: Image.Image
    box: Box
    photo_size: tuple[int, int]
    original_box: Box
    view: Image.Image
    reading: Reading

    @property
    def grid(self) -> tuple[int, int]:
        return self.reading.grid

    @property
    def patch_size(self) -> tuple[int, int]:
        return self.card.config.patch_size

    @property
    def probabilities(self) -> Tensor:
        """Calibrated, (C,)."""
        return probabilities(self.card, self.reading.logits)


def probabilities(card: Card, logits: Tensor) -> Tensor:
    return (logits / card.temperature).softmax(-1)


def inside(
    photo: str, checkpoint: Path, fit: Fit | None = None, visitor: str | None = None
) -> Inside:
    """The photo in the file `photo` read by the checkpoint in the file `checkpoint`; kept while it
    is among the last used, and until all visitors who looked have left. `fit` is the checkpoint's
    own for None.

    Raises PhotoError and CheckpointError.
    """
    classifier = Classifier.load(checkpoint)
    fit = fit or classifier.card.preprocess.fit
    key = (content_of(photo), str(checkpoint), version(checkpoint), fit)
    return insides.get(key, partial(_read, key, photo, classifier, fit), visitor)


def _read(key: Hashable, source: str, classifier: Classifier, fit: Fit) -> Inside:
    preprocess = replace(classifier.card.preprocess, fit=fit)
    opened = open_photo(source, at_least=2 * min(preprocess.size))  # as the classifier reads it
    view = preprocess.view(opened.image)
    reading = read(classifier.model, preprocess.batch([view]).to(classifier.device))
    small = opened.image
    if min(small.size) < min(SHORT, *opened.size):
        small = open_photo(source, at_least=SHORT).image
    small.thumbnail((LONG, LONG))
    shown, box = widened(small, preprocess.box(*small.size))
    return Inside(
        key=key,
        name=classifier.name,
        path=classifier.path,
        card=classifier.card,
        preprocess=preprocess,
        photo=shown,
        box=box,
        photo_size=opened.size,
        original_box=preprocess.box(*opened.size),
        view=view,
        reading=reading,
    )


def answer_without(inside: Inside, removed: Collection[int]) -> Tensor:
    """Probabilities (C,) when these patches are taken away. One forward on what is left."""
    classifier, pixels = _ask(inside)
    keep = torch.ones(inside.reading.patches, dtype=torch.bool)
    keep[sorted(removed)] = False
    logits = without_patches(classifier.model, pixels, keep)[0].float().cpu()
    return probabilities(inside.card, logits)


def trusted(inside: Inside) -> tuple[int, ...]:
    """The patches that speak most for the dish that the model names, a fifth of all."""
    classifier, pixels = _ask(inside)
    return _trusted.get((inside.key,), lambda: most_trusted(classifier.model, pixels, TRUSTED))


def _ask(inside: Inside) -> tuple[Classifier, Tensor]:
    if not inside.card.trained_head:
        raise UntrainedHead(
            f"{inside.name} knows no dishes yet, so taking patches away changes no answer; "
            "fine-tune it first, or choose another model."
        )
    classifier = Classifier.load(inside.path)
    return classifier, inside.preprocess.batch([inside.view]).to(classifier.device)


insides: Store[Inside] = Store(
    MAX_READINGS,
    MAX_BYTES,
    lambda inside: inside.reading.nbytes + 3 * inside.photo.width * inside.photo.height,
)
_trusted: Store[tuple[int, ...]] = Store(256, 2**20, lambda patches: 8 * len(patches), insides)
