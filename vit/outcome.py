"""What a run's result got right and wrong, photo by photo.

The training writes it into the run's folder as `outcome.json`, whole or not at all. Where that is
missing, damaged or of other weights, `counted` asks the model again and writes it anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vit import checkpoint
from vit.batches import prefetch
from vit.evaluate import Evaluation, evaluate
from vit.folders import DataError
from vit.images import Photo, PhotoError, open_photo
from vit.lru import Store
from vit.metrics import Count, confusion
from vit.photoset import Kept, PhotoSet, kept_photos
from vit.runphotos import RunPhotos
from vit.runstate import BEST, read_recipe, write_json

OUTCOME = "outcome.json"
FORMAT = 1
STRIDE = 64  # photos between two reports while the model is asked again


class OutcomeError(ValueError):
    """A run without a result to look at, or a photo that is gone; the text says what to do."""


@dataclass(frozen=True)
class Answer:
    """What the model said of a photo: class numbers, and the probability of the predicted one."""

    photo: Kept
    actual: int
    predicted: int
    probability: float

    @property
    def right(self) -> bool:
        return self.actual == self.predicted


@dataclass(frozen=True)
class Answers:
    """All answers for one set of photos, such as "validation" or "test", in the set's order."""

    name: str
    classes: tuple[str, ...]
    answers: tuple[Answer, ...]

    @cached_property
    def confusion(self) -> np.ndarray:
        """(C, C): row = what it is, column = what was answered."""
        actual = [answer.actual for answer in self.answers]
        return confusion(actual, [a.predicted for a in self.answers], len(self.classes))

    @property
    def count(self) -> Count:
        return Count(int(np.trace(self.confusion)), len(self.answers))

    @cached_property
    def recalls(self) -> tuple[Count, ...]:
        """For every class: of its photos, how many were recognised."""
        table = self.confusion
        return tuple(Count(int(table[i, i]), int(table[i].sum())) for i in range(len(table)))

    @cached_property
    def precisions(self) -> tuple[Count, ...]:
        """For every class: of the times it was answered, how many were right."""
        table = self.confusion
        return tuple(Count(int(table[i, i]), int(table[:, i].sum())) for i in range(len(table)))

    def mistakes(self) -> list[int]:
        """Places in `answers` of the wrong ones, the most certain first."""
        return self._surest(i for i, answer in enumerate(self.answers) if not answer.right)

    def cell(self, actual: int, predicted: int) -> list[int]:
        """Places of the photos of one class that were given another, the most certain first."""
        return self._surest(
            i
            for i, answer in enumerate(self.answers)
            if (answer.actual, answer.predicted) == (actual, predicted)
        )

    def of_class(self, actual: int) -> list[int]:
        """Places of all photos of one class: mistakes first, then by certainty."""
        found = self._surest(i for i, answer in enumerate(self.answers) if answer.actual == actual)
        return sorted(found, key=lambda i: self.answers[i].right)

    def confused(self) -> list[tuple[int, int, int]]:
        """(actual, predicted, how often) of every kind of mistake, the most frequent first."""
        wrong = self.confusion.copy()
        np.fill_diagonal(wrong, 0)
        pairs = [(int(a), int(p), int(wrong[a, p])) for a, p in zip(*wrong.nonzero(), strict=True)]
        return sorted(pairs, key=lambda pair: -pair[2])

    def _surest(self, places: Iterator[int]) -> list[int]:
        return sorted(places, key=lambda i: -self.answers[i].probability)


@dataclass(frozen=True)
class Outcome:
    """What the weights in a file answered for every set of photos. weights: its fingerprint."""

    weights: str
    sets: tuple[Answers, ...]

    @property
    def best_known(self) -> Answers:
        """The largest test set, or the validation photos where there is none."""
        tests = [answers for answers in self.sets if answers.name != "validation"]
        return max(tests or self.sets, key=lambda answers: len(answers.answers))

    def named(self, name: str | None) -> Answers:
        """The set of this name, or `best_known`."""
        return next((each for each in self.sets if each.name == name), self.best_known)


def answers_of(
    name: str, photos: PhotoSet, found: Evaluation, classes: tuple[str, ...], temperature: float
) -> Answers:
    """What a model with these classes answered for `photos`."""
    sure, said = (found.logits / temperature).softmax(1).max(1)
    rows = zip(found.targets.tolist(), said.tolist(), sure.tolist(), strict=True)
    answers = (
        Answer(photos.kept(i), actual, predicted, round(probability, 6))
        for i, (actual, predicted, probability) in enumerate(rows)
    )
    return Answers(name, classes, tuple(answers))


def write_outcome(
    folder: Path, weights: Path, found: Mapping[str, tuple[PhotoSet, Evaluation]]
) -> Outcome:
    """Keep in a run's folder what its result, the checkpoint `weights`, answered for each set."""
    card = checkpoint.read_card(weights)
    sets = [answers_of(n, *each, card.classes, card.temperature) for n, each in found.items()]
    outcome = Outcome(checkpoint.fingerprint(weights), tuple(sets))
    write_json(folder / OUTCOME, _to_json(outcome), indent=None)
    return outcome


def result_file(folder: Path) -> Path:
    """The checkpoint that a run has made; OutcomeError while there is none."""
    name = read_recipe(folder).name
    for path in (folder / f"{name}{checkpoint.SUFFIX}", folder / BEST):
        if path.is_file():
            return path
    raise OutcomeError("This run has kept no weights yet; let it train for an epoch at least.")


def read_outcome(folder: Path) -> Outcome | None:
    """What lies in the folder; None where it is missing, damaged or of other weights.

    The last few stay in memory. OutcomeError and RunError for a folder without a result.
    """
    weights, stored = result_file(folder), folder / OUTCOME
    key = (str(folder), checkpoint.version(weights), checkpoint.version(stored))

    def read() -> Outcome | None:
        try:
            outcome = _from_json(json.loads(stored.read_text("utf-8")))
        except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError):
            return None
        return outcome if outcome.weights == checkpoint.fingerprint(weights) else None

    return _read.get(key, read)


def counted(folder: Path) -> Generator[tuple[int, int], None, Outcome]:
    """The outcome of a run as the generator's value: what lies in the folder, or else asked of the
    model again, yielding (photos done, photos in all).

    Raises OutcomeError when the run has no result or its photos are others by now, and what
    `RunPhotos` and `checkpoint.load` raise.
    """
    if known := read_outcome(folder):
        return known
    weights = result_file(folder)
    model, card = checkpoint.load(weights)
    photos = RunPhotos(read_recipe(folder), None)
    if photos.data.fingerprint != card.training.get("data", photos.data.fingerprint):
        raise OutcomeError(
            "The photos have changed since this run, so it cannot be counted again; "
            "start a new run with them."
        )
    sets = {"validation": photos.data.val, **photos.tests}
    done, total = 0, sum(map(len, sets.values()))
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    found: dict[str, tuple[PhotoSet, Evaluation]] = {}
    for name, each in sets.items():
        parts = []
        for start in range(0, len(each), STRIDE):
            yield done, total
            part = each.subset(range(start, min(start + STRIDE, len(each))))
            parts.append(evaluate(model, part, card.preprocess, card.classes))
            done += len(part)
        logits = torch.cat([part.logits for part in parts])
        targets = torch.cat([part.targets for part in parts])
        found[name] = each, Evaluation(logits, targets, parts[0].milliseconds)
    return write_outcome(folder, weights, found)


def open_answers(
    answers: Answers, places: list[int], at_least: int | None = None
) -> list[Photo | OutcomeError]:
    """The photos at these places, decoded by threads; an error where one is not what it was."""
    wanted = [answers.answers[place].photo for place in places]
    found = (partial(_photo, data, at_least) for data in photo_bytes(wanted))
    return list(prefetch(found))


def photo_bytes(wanted: list[Kept]) -> list[bytes | OutcomeError]:
    """The files of these photos; an error where one is gone or is another by now."""
    result: list[bytes | OutcomeError] = []
    for kept, data in zip(wanted, kept_photos(wanted), strict=True):
        if isinstance(data, bytes) and kept.digest:
            same = hashlib.sha256(data).hexdigest().startswith(kept.digest)
            data = data if same else DataError("it has been replaced since")
        if isinstance(data, bytes):
            result.append(data)
        else:
            result.append(OutcomeError(f"{kept.name} is no longer what it was: {data}."))
    return result


def _photo(data: bytes | OutcomeError, at_least: int | None) -> Photo | OutcomeError:
    if isinstance(data, OutcomeError):
        return data
    try:
        return open_photo(data, at_least)
    except PhotoError as error:
        return OutcomeError(str(error))


def publish(folder: Path) -> str:
    """The name under which a run's result is among the user's checkpoints; it is put there where it
    is missing, and takes the place of no other."""
    source = result_file(folder)
    card = checkpoint.read_card(source)
    for entry in checkpoint.available():
        if entry.card == card:
            return entry.name
    model, _ = checkpoint.load(source)
    wanted = read_recipe(folder).name
    taken = {entry.name for entry in checkpoint.available()}
    tries = (wanted if n == 1 else f"{wanted}-{n}" for n in range(1, len(taken) + 2))
    name = next(name for name in tries if name not in taken)
    checkpoint.save(checkpoint.destination(name), model, card)
    return name


# --- As JSON ----------------------------------------------------------------------------------


def _to_json(outcome: Outcome) -> dict[str, Any]:
    """Every folder and zip is named once, and a photo by a row of its own: a few thousand photos
    stay below a megabyte."""
    sets = []
    for answers in outcome.sets:
        places = sorted({(a.photo.place, a.photo.front) for a in answers.answers})
        number = {place: index for index, place in enumerate(places)}
        photos = [
            [
                number[a.photo.place, a.photo.front],
                a.photo.key,
                a.photo.digest,
                a.actual,
                a.predicted,
                a.probability,
            ]
            for a in answers.answers
        ]
        sets.append({"name": answers.name, "places": places, "photos": photos})
    classes = outcome.sets[0].classes
    head = {"format": FORMAT, "weights": outcome.weights, "classes": classes}
    return {**head, "photo": list(COLUMNS), "sets": sets}


COLUMNS = ("place", "file", "sha256", "actual", "predicted", "probability")


def _from_json(values: dict[str, Any]) -> Outcome:
    """The inverse of `_to_json`; one of several built-in errors for anything else."""
    if values["format"] != FORMAT or values["photo"] != list(COLUMNS):
        raise ValueError("another format")
    classes = tuple(_text(name) for name in values["classes"])
    sets = []
    for each in values["sets"]:
        places = [(_text(path), _text(front)) for path, front in each["places"]]
        answers = []
        for place, key, digest, actual, predicted, probability in each["photos"]:
            path, front = places[_number(place, len(places))]
            if ".." in Path(_text(key)).parts or os.path.isabs(key):
                raise ValueError("a file outside its data set")
            if not 0 <= float(probability) <= 1:
                raise ValueError("no probability")
            answers.append(
                Answer(
                    Kept(path, front, key, _text(digest)),
                    _number(actual, len(classes)),
                    _number(predicted, len(classes)),
                    float(probability),
                )
            )
        sets.append(Answers(_text(each["name"]), classes, tuple(answers)))
    if not sets:
        raise ValueError("no set")
    return Outcome(_text(values["weights"]), tuple(sets))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("no text")
    return value


def _number(value: object, below: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < below:
        raise ValueError("no number of that kind")
    return value


def _bytes(outcome: Outcome | None) -> int:
    return 1 + 700 * sum(len(each.answers) for each in outcome.sets) if outcome else 1


_read: Store[Outcome | None] = Store(16, 64 * 2**20, _bytes)
