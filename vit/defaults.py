"""What suits each way of training and each amount of photos, where a recipe leaves it open."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from vit.model import PRESETS

MODES = ("head", "last", "all")
TYPICAL = 200  # training photos, where nothing is known of them

# With some hundred photos; `defaults` suits them to fewer and more.
DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "head": {
            "mode": "head",
            "blocks": None,
            "views": None,
            "epochs": 10,
            "batch": 32,
            # Of 15 settings, 10 seeds each, on 191 photos of three dishes (ViT-Ti of ImageNet):
            # the lowest loss on 255 other training photos among those right on 96.7 %, the most.
            "rate": 1e-3,
            "layer_decay": 1.0,
            "warmup": 0.1,
            "smoothing": 0.0,
            "min_area": 1.0,
            # Of 255 other training photos, 3 seeds from food101 and 3 from ImageNet: 1,494 of 1,530
            # right without mirror images, 1,489 with them, which take twice the time.
            "flip": False,
            "colour": 0.0,
            "mixup": 0.3,
        },
        "last": {
            "mode": "last",
            "blocks": 2,
            "views": None,
            "epochs": 10,
            "batch": 32,
            "rate": 5e-4,
            "layer_decay": 0.75,
            "warmup": 0.1,
            "smoothing": 0.1,
            "min_area": 1.0,
            "flip": True,
            "colour": 0.0,
            "mixup": 0.0,
        },
        "all": {
            "mode": "all",
            "blocks": None,
            "views": None,
            "epochs": 20,
            "batch": 32,
            "rate": 5e-4,
            "layer_decay": 0.75,
            "warmup": 0.1,
            "smoothing": 0.1,
            "min_area": 0.5,
            "flip": True,
            "colour": 0.3,
            "mixup": 0.0,
        },
        "scratch": {
            "mode": "all",
            "blocks": None,
            "views": None,
            "epochs": 60,
            "batch": 32,
            "rate": 1e-3,
            "layer_decay": 1.0,
            "warmup": 0.2,
            "smoothing": 0.1,
            "min_area": 0.35,
            "flip": True,
            "colour": 0.3,
            "mixup": 0.2,
        },
    }
)


def way_of(start: str, mode: str | None) -> str:
    """What defaults go by: head, last, all, or scratch, which begins with a preset's name."""
    return "scratch" if start in PRESETS and mode in (None, "all") else mode or "head"


# Of the epochs above, by the number of training photos: up to so many photos, so large a share.
# Few photos make few steps an epoch, and what is learnt in a step does not depend on how many
# photos there are; many photos are learnt well before they have been seen that often. That is
# judged, not measured: the figures above are, for about 200 photos.
_EPOCHS = ((60, 2.0), (2_000, 1.0), (20_000, 0.5), (math.inf, 0.25))
_BATCHES = ((60, 8), (120, 16))  # the same for photos in a step: more steps for few photos


def defaults(way: str, photos: int | None = None) -> dict[str, Any]:
    """Every setting that a recipe may leave open, for `photos` training photos."""
    values, count = dict(DEFAULTS[way]), photos or TYPICAL
    share = next(share for most, share in _EPOCHS if count <= most)
    values["epochs"] = max(2, round(values["epochs"] * share))
    values["batch"] = next((size for most, size in _BATCHES if count <= most), values["batch"])
    return values
