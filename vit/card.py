"""What a checkpoint says about itself: the JSON in its header."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self, TypeVar

from vit.images import Preprocess
from vit.metrics import Count
from vit.model import ViTConfig
from vit.names import dish_names, name_fault, plain

FORMAT = 1
MAX_PIXELS = 2**24  # of the picture that a model sees; published ones see up to 896 × 896
MAX_PATCHES = 2**14  # of it: attention takes time and memory with their square
TEMPERATURES = (0.001, 1000.0)  # others make every probability 0, 1 or the same

T = TypeVar("T")


class CheckpointError(ValueError):
    """A checkpoint that cannot be found, read or trusted; the text says what to do."""


@dataclass(frozen=True)
class Card:
    """What a checkpoint says about itself.

    `classes` are ordered as the head's outputs. `metrics` maps the name of a data set to the count
    of right answers on it. `training` is the record of the run (start, data fingerprint, settings,
    command, versions). Logits are divided by `temperature` before the softmax; a best probability
    under `unsure_below` means that no class looks right (None: never said).
    `trained_head` is False for a backbone that must be fine-tuned before it can answer.
    """

    config: ViTConfig
    preprocess: Preprocess
    classes: tuple[str, ...]
    title: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Count] = field(default_factory=dict)
    temperature: float = 1.0
    unsure_below: float | None = None
    licence: str = ""
    attribution: str = ""
    trained_head: bool = True

    def __post_init__(self) -> None:
        if len(self.classes) != self.config.classes:
            raise CheckpointError(
                f"The head has {self.config.classes} outputs but {len(self.classes)} class names "
                f"were given; give one name for each output."
            )
        if len(set(self.classes)) != len(self.classes):
            raise CheckpointError("Two classes have the same name; rename one.")
        for name in self.classes:
            if fault := name_fault(name):
                raise CheckpointError(f"The class name {plain(name, 60)!r} {fault}; rename it.")
        least, most = TEMPERATURES
        if not least <= self.temperature <= most:  # nor is NaN
            raise CheckpointError(
                f"temperature must be from {least} to {most:g}, got {self.temperature!r}."
            )
        if self.unsure_below is not None and not 0 <= self.unsure_below <= 1:
            raise CheckpointError(f"unsure_below must be from 0 to 1, got {self.unsure_below!r}.")
        if any(s % p for s, p in zip(self.preprocess.size, self.config.patch_size, strict=True)):
            raise CheckpointError(
                f"The picture of {self.preprocess.size} pixels is not filled by patches of "
                f"{self.config.patch_size}; make it a multiple."
            )
        pixels = math.prod(self.preprocess.size)
        patches = pixels // math.prod(self.config.patch_size)
        if pixels > MAX_PIXELS or patches > MAX_PATCHES:
            raise CheckpointError(
                f"The picture has {pixels:,} pixels in {patches:,} patches, more than the "
                f"{MAX_PIXELS:,} and {MAX_PATCHES:,} that can be used; make it smaller."
            )

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The classes' names as people write them, in the same order."""
        return dish_names(self.classes)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "title": self.title,
            "model": self.config.to_json(),
            "preprocess": self.preprocess.to_json(),
            "classes": list(self.classes),
            "training": dict(self.training),
            "metrics": {name: count.to_json() for name, count in self.metrics.items()},
            "temperature": self.temperature,
            "unsure_below": self.unsure_below,
            "licence": self.licence,
            "attribution": self.attribution,
            "trained_head": self.trained_head,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The card that `to_json` described; CheckpointError for anything else."""
        if values.get("format") != FORMAT:
            raise CheckpointError(
                f"checkpoint format {values.get('format')!r}, but this version reads format "
                f"{FORMAT}; update the program or the file"
            )
        try:
            classes = _of(values["classes"], list, "classes")
            if not all(isinstance(name, str) and name for name in classes):
                raise ValueError("class names must be texts")
            unsure = values["unsure_below"]
            return cls(
                config=ViTConfig.from_json(values["model"]),
                preprocess=Preprocess.from_json(values["preprocess"]),
                classes=tuple(classes),
                title=_of(values["title"], str, "title"),
                training=_of(values["training"], dict, "training"),
                metrics={
                    name: Count.from_json(count)
                    for name, count in _of(values["metrics"], dict, "metrics").items()
                },
                temperature=float(values["temperature"]),
                unsure_below=None if unsure is None else float(unsure),
                licence=_of(values["licence"], str, "licence"),
                attribution=_of(values["attribution"], str, "attribution"),
                trained_head=_of(values["trained_head"], bool, "trained_head"),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            what = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
            raise CheckpointError(f"its header is not usable ({what})") from None


def _of(value: object, kind: type[T], name: str) -> T:
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {kind.__name__}, got {type(value).__name__}")
    return value
