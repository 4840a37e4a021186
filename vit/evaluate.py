"""Count what a model gets right on a set of photos."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vit.batches import plain_batches
from vit.card import Card
from vit.data import DataError
from vit.images import Preprocess
from vit.metrics import Count, confusion, top_k_correct
from vit.model import ViT
from vit.photoset import PhotoSet
from vit.top import answer

Confused = tuple[str, str, int]  # what it is, what was answered, how often


@dataclass(frozen=True)
class Evaluation:
    """What a model answered for N photos: logits (N, C), labels (N,), and the counts."""

    logits: Tensor
    targets: Tensor
    milliseconds: float  # per photo, file to logits

    @property
    def top1(self) -> Count:
        return Count(top_k_correct(self.logits, self.targets, 1), len(self.targets))

    @property
    def top5(self) -> Count:
        return Count(top_k_correct(self.logits, self.targets, 5), len(self.targets))

    @property
    def loss(self) -> float:
        """Mean cross-entropy in nats."""
        return float(torch.nn.functional.cross_entropy(self.logits, self.targets))

    @property
    def confusion(self) -> np.ndarray:
        """(C, C): row = what it is, column = what was answered."""
        return confusion(self.targets, self.logits.argmax(1), self.logits.shape[1])


def evaluate(
    model: ViT,
    photos: PhotoSet,
    preprocess: Preprocess,
    classes: Sequence[str],
    batch: int = 32,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """The model's answers for every photo. The model is put in evaluation mode.

    `classes` name the model's outputs in order; the photos' folders are matched with them by name.
    `progress` is called with (photos done, photos in all). PhotoError for an unreadable photo,
    DataError for a folder that is no class of the model, and when there is no photo.
    """
    if not len(photos):
        raise DataError("There are no photos to evaluate.")
    numbers = class_numbers(photos, classes)
    model.eval()
    weights = model.pos_embed
    started, logits, targets = time.perf_counter(), [], []
    for images, labels in plain_batches(photos, preprocess, batch):
        with torch.inference_mode():
            images = images.to(weights.device, weights.dtype)
            logits.append(answer(model, images).float().cpu())
        targets.append(numbers[labels])
        if progress:
            progress(sum(map(len, targets)), len(photos))
    seconds = time.perf_counter() - started
    return Evaluation(torch.cat(logits), torch.cat(targets), 1000 * seconds / max(1, len(photos)))


def confused(result: Evaluation, classes: Sequence[str], most: int = 10) -> list[Confused]:
    """The pairs of classes that are mistaken most often, and how often."""
    wrong = result.confusion.copy()
    np.fill_diagonal(wrong, 0)
    pairs = [divmod(int(flat), len(classes)) for flat in wrong.argsort(axis=None)[::-1][:most]]
    return [(classes[i], classes[j], int(wrong[i, j])) for i, j in pairs if wrong[i, j]]


def recorded(card: Card, name: str, result: Evaluation) -> Card:
    """The card with these counts in it, as those of the photos called `name`."""
    more: dict[str, Any] = {"confused": confused(result, card.classes)}
    if len(card.classes) > 5:
        more["top5"] = result.top5.to_json()
    counts = {**card.training.get("counts", {}), name: more}
    return replace(
        card,
        metrics={**card.metrics, name: result.top1},
        training={**card.training, "counts": counts},
    )


def class_numbers(photos: PhotoSet, classes: Sequence[str]) -> Tensor:
    """For each class of `photos` its number among the model's `classes`: (classes of photos,).

    Folders may hold a part of the classes only. DataError when a folder is no class of the model.
    """
    unknown = [name for name in photos.classes if name not in classes]
    if unknown:
        raise DataError(
            f"The model does not know {', '.join(unknown[:5])}; its {len(classes)} classes are "
            f"{', '.join(classes[:5])}{', …' if len(classes) > 5 else ''}: rename the folders."
        )
    return torch.tensor([classes.index(name) for name in photos.classes])
