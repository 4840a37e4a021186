"""A loaded checkpoint that answers for photos."""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from PIL import Image

from vit import checkpoint
from vit.attention import with_cached_attention
from vit.card import Card
from vit.images import Fit, Photo, PhotoError, Source, open_photo
from vit.memory import keep_freed
from vit.model import ViT
from vit.precision import Precision, check_precision, in_precision, quicken_float32
from vit.top import answer

KEPT_LOADED = 3
DEFAULT = "food101"


class UntrainedHead(ValueError):
    """The checkpoint is a backbone whose head was never trained: it cannot answer."""


@dataclass(frozen=True)
class Prediction:
    """What a model thinks of a photo.

    labels, classes, probabilities: the best first; readable dish names, the checkpoint's own class
    names, and calibrated probabilities from 0 to 1. confidence: the first of them. unsure: whether
    it lies under the checkpoint's threshold. photo: upright RGB, perhaps reduced. view: the
    picture that the model saw. box: (left, top, right, bottom) of the view on the original photo
    of photo_size (width, height), in pixels; beyond its edges where the view was bordered.
    milliseconds: reading, preprocessing and model.
    """

    labels: tuple[str, ...]
    classes: tuple[str, ...]
    probabilities: tuple[float, ...]
    confidence: float
    unsure: bool
    photo: Image.Image
    photo_size: tuple[int, int]
    view: Image.Image
    box: tuple[float, float, float, float]
    milliseconds: float


@dataclass(frozen=True)
class Classifier:
    """A model and the card that says how to ask it."""

    name: str
    path: Path
    model: ViT
    card: Card

    @staticmethod
    def load(
        name_or_path: str | os.PathLike[str] = DEFAULT, precision: Precision = "float32"
    ) -> "Classifier":
        """The checkpoint of this name or path; the last few stay loaded, until their file changes.

        In the precision "bfloat16" it answers faster; the README's part on speed counts what that
        costs. From the first load on, this process multiplies float32 matrices as
        `vit.precision.quicken_float32` says and keeps memory as `vit.memory.keep_freed` does.
        Raises CheckpointError when there is no such checkpoint or the file cannot be used,
        ValueError for bfloat16 where the processor has no such arithmetic.
        """
        precision = check_precision(precision)
        path = checkpoint.resolve(name_or_path)
        key, stamp = os.path.abspath(path), checkpoint.version(path)
        with _lock:
            quicken_float32()
            keep_freed()
            kept = _loaded.get(key)
            if kept is None or kept[0] != stamp:
                kept = stamp, dict[Precision, Classifier]()
            if precision not in kept[1]:
                model, card = checkpoint.load(path)
                model = in_precision(model, precision)
                if torch.cuda.is_available():
                    model = model.cuda()
                elif precision == "float32":
                    with_cached_attention(model)
                kept[1][precision] = Classifier(path.stem, path, model, card)
            _loaded[key] = kept
            _loaded.move_to_end(key)
            while len(_loaded) > KEPT_LOADED:
                _loaded.popitem(last=False)
        return kept[1][precision]

    @property
    def device(self) -> torch.device:
        return self.model.pos_embed.device

    def classify(self, source: Source, top: int = 5, fit: Fit | None = None) -> Prediction:
        """The `top` most probable dishes of one photo: a path, bytes, a PIL image or an array.

        `fit` overrides the checkpoint's: "crop" (the middle square) or "letterbox" (the whole
        photo). Raises PhotoError for what is no readable photo, UntrainedHead for a backbone.
        """
        answer = self.classify_many([source], top, fit)[0]
        if isinstance(answer, PhotoError):
            raise answer
        return answer

    def classify_many(
        self, sources: Sequence[Source], top: int = 5, fit: Fit | None = None, batch: int = 8
    ) -> list[Prediction | PhotoError]:
        """An answer for every photo, in order; a bad photo's place holds its PhotoError.

        Raises UntrainedHead, and ValueError for a `top` or a `batch` below 1.
        """
        if not self.card.trained_head:
            raise UntrainedHead(
                f"{self.name} is a backbone without a trained head, so it cannot name dishes; "
                f"fine-tune it first: python train.py PHOTOS --from {self.name}"
            )
        if top < 1:
            raise ValueError(f"top must be at least 1, got {top}.")
        if batch < 1:
            raise ValueError(f"batch must be at least 1, got {batch}.")
        answers: list[Prediction | PhotoError] = []
        for start in range(0, len(sources), batch):
            answers += self._answer(sources[start : start + batch], top, fit)
        return answers

    def _answer(
        self, sources: Sequence[Source], top: int, fit: Fit | None
    ) -> list[Prediction | PhotoError]:
        started = time.perf_counter()
        preprocess = replace(self.card.preprocess, fit=fit) if fit else self.card.preprocess
        shortest = 2 * min(preprocess.size)
        photos: list[Photo | PhotoError] = []
        for source in sources:
            try:
                photos.append(open_photo(source, at_least=shortest))
            except PhotoError as error:
                photos.append(error)
        views = [preprocess.view(p.image) for p in photos if isinstance(p, Photo)]
        if not views:
            return [photo for photo in photos if isinstance(photo, PhotoError)]
        with torch.inference_mode():
            weights = self.model.pos_embed
            images = preprocess.batch(views).to(weights.device, weights.dtype)
            logits = answer(self.model, images).float().cpu()
        probabilities = (logits / self.card.temperature).softmax(1)
        best = probabilities.topk(min(top, probabilities.shape[1]))
        milliseconds = 1000 * (time.perf_counter() - started) / len(views)
        rows = iter(zip(views, best.values.tolist(), best.indices.tolist(), strict=True))
        answers: list[Prediction | PhotoError] = []
        for photo in photos:
            if isinstance(photo, PhotoError):
                answers.append(photo)
                continue
            view, values, indices = next(rows)
            threshold = self.card.unsure_below
            answers.append(
                Prediction(
                    labels=tuple(self.card.labels[index] for index in indices),
                    classes=tuple(self.card.classes[index] for index in indices),
                    probabilities=tuple(values),
                    confidence=values[0],
                    unsure=threshold is not None and values[0] < threshold,
                    photo=photo.image,
                    photo_size=photo.size,
                    view=view,
                    box=preprocess.box(*photo.size),
                    milliseconds=milliseconds,
                )
            )
        return answers


_lock = threading.Lock()
_Kept = tuple[tuple[int, ...] | None, dict[Precision, Classifier]]  # the file's version
_loaded: OrderedDict[str, _Kept] = OrderedDict()  # by path, the oldest use first
