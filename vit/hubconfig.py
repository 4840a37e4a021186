"""What the `config.json` beside a file of weights says: class names, heads, how to see a photo.

Hubs keep it next to the weights: transformers' has `model_type` and `id2label`, and a
`preprocessor_config.json` as its companion; timm's has `architecture` and `pretrained_cfg`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vit.card import CheckpointError
from vit.images import Interpolation, Preprocess
from vit.names import name_fault

NAMES = ("config.json", "preprocessor_config.json")
MAX_BYTES = 16 * 2**20  # of one such file; 21,843 class names take 2 MB
_MODELS = {"vit", "deit", "dinov2", "dinov2_with_registers"}
_RESAMPLE: Mapping[int, Interpolation] = {1: "lanczos", 2: "bilinear", 3: "bicubic"}


@dataclass(frozen=True)
class HubConfig:
    """What was said, each None where nothing was. `width` and `depth` tell whose config it is."""

    width: int | None = None
    depth: int | None = None
    heads: int | None = None
    classes: tuple[str, ...] | None = None
    preprocess: Preprocess | None = None


def read_beside(weights: Path) -> HubConfig | None:
    """The config in the folder of a file of weights; None when there is none for a ViT.

    Raises CheckpointError for a ViT that ours cannot be, such as one with another activation.
    """
    config, processor = (_read_json(weights.with_name(name)) for name in NAMES)
    if str(config.get("model_type")) in _MODELS:
        return _transformers(config, processor)
    if re.match(r"(vit|deit)_", str(config.get("architecture", ""))):
        return _timm(config)
    return None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_BYTES:
            return {}
        values = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _transformers(config: dict[str, Any], processor: dict[str, Any]) -> HubConfig:
    if (act := config.get("hidden_act", "gelu")) not in ("gelu", "gelu_python"):
        raise CheckpointError(
            f"config.json says that this model has {act!r} between its linear layers; only GELU "
            f"can be read."
        )
    return HubConfig(
        width=_count(config.get("hidden_size")),
        depth=_count(config.get("num_hidden_layers")),
        heads=_count(config.get("num_attention_heads")),
        classes=_labels(config.get("id2label")),
        preprocess=_processor(processor),
    )


def _labels(labels: object) -> tuple[str, ...] | None:
    """Names in the order of their numbers; None when they are incomplete, or only numbers."""
    if not isinstance(labels, dict) or not all(isinstance(name, str) for name in labels.values()):
        return None
    try:
        names = tuple(labels[str(number)].strip() for number in range(len(labels)))
    except KeyError:
        return None
    if all(re.fullmatch(r"LABEL_\d+", name) for name in names) or any(map(name_fault, names)):
        return None
    return names


def _processor(values: dict[str, Any]) -> Preprocess | None:
    """transformers' steps: resize to `size`, perhaps cut out the middle, subtract and divide."""
    seen = _size(values.get("crop_size") if values.get("do_center_crop") else values.get("size"))
    if not values or seen is None:
        return None
    resized = values.get("size")
    short = resized.get("shortest_edge") if isinstance(resized, dict) else resized
    if short is None and isinstance(resized, dict):
        short = min(_size(resized) or seen)
    crop = min(seen) / short if isinstance(short, int) and short >= min(seen) else 1.0
    return _preprocess(
        Preprocess(size=seen),
        crop=crop,
        interpolation=_RESAMPLE.get(values.get("resample", 2)),
        mean=values.get("image_mean"),
        std=values.get("image_std"),
    )


def _size(value: object) -> tuple[int, int] | None:
    if isinstance(value, dict):
        edge = value.get("shortest_edge")
        pair = (value.get("height", edge), value.get("width", edge))
    else:
        pair = (value, value)
    height, width = (_count(side) for side in pair)
    return None if height is None or width is None else (height, width)


def _timm(config: dict[str, Any]) -> HubConfig:
    pretrained = config.get("pretrained_cfg")
    values = pretrained if isinstance(pretrained, dict) else config
    shape = values.get("input_size")
    labels = values.get("label_names") or config.get("label_names")
    named = isinstance(labels, list) and not any(
        not isinstance(name, str) or name_fault(name) for name in labels
    )
    size = tuple(map(_count, shape[1:])) if isinstance(shape, list) else ()
    height, width = size if len(size) == 2 else (None, None)
    start = Preprocess(size=(height, width)) if height and width else None
    return HubConfig(
        classes=tuple(labels) if named and isinstance(labels, list) else None,
        preprocess=start
        and _preprocess(
            start,
            crop=values.get("crop_pct"),
            interpolation=values.get("interpolation"),
            mean=values.get("mean"),
            std=values.get("std"),
        ),
    )


def _preprocess(start: Preprocess, **said: Any) -> Preprocess | None:
    """`start` with what was said; None when that cannot be."""
    values = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in said.items()
        if value is not None
    }
    try:
        return replace(start, **values)
    except (ValueError, TypeError):
        return None


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 < value < 1_000_000 else None
