"""How the families of published models look at photos, and what they call their classes."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from vit.images import Preprocess

# One name a line, in the order of the outputs of every model trained on ImageNet-1k; the tests
# compare them with torchvision's.
IMAGENET_CLASSES = Path(__file__).parent / "imagenet_classes.txt"
_IMAGENET = Preprocess(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))

# What the authors evaluated with. A crop of 0.875 is "resize to 256, cut out 224".
CONVENTIONS: Mapping[str, Preprocess] = MappingProxyType(
    {
        "augreg": Preprocess(),  # Google's; 0.9 is timm's choice, which scores best
        "deit": replace(_IMAGENET, crop=0.875),
        "dinov2": replace(_IMAGENET, crop=0.875),
        "torchvision": replace(_IMAGENET, crop=0.875, interpolation="bilinear"),
        "swag": replace(_IMAGENET, crop=1.0),
        "huggingface": Preprocess(crop=1.0, interpolation="bilinear"),
    }
)


def preprocess_for(convention: str, size: tuple[int, int]) -> Preprocess:
    """The rules of a family for a model made for pictures of `size` (height, width) pixels.

    DINOv2's models are made for 518 pixels and evaluated at 224, a fifth of the tokens, so 224 it
    is for them. AugReg's that are fine-tuned at more than 224 pixels see the whole short side.
    """
    rules = CONVENTIONS[convention]
    if convention == "dinov2":
        return rules if size == (518, 518) else replace(rules, size=size)
    if convention == "augreg" and min(size) > 224:
        rules = replace(rules, crop=1.0)
    return replace(rules, size=size)


def class_names(count: int) -> tuple[str, ...]:
    """ImageNet's names for 1,000 outputs; numbers for any other count, such as the 21,843 of
    ImageNet-21k."""
    if count == 1000:
        return tuple(IMAGENET_CLASSES.read_text("utf-8").splitlines())
    return tuple(f"class_{number}" for number in range(count))
