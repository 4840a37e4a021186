"""Random changes to training photos that leave the dish what it is."""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from vit.images import Preprocess


@dataclass(frozen=True)
class Augment:
    """How strongly training photos are changed; all zeros (and `min_area` 1) leave them alone.

    min_area: the smallest share of the photo that a random crop keeps, 0 to 1.
    flip: whether half of the photos are mirrored.
    colour: brightness, contrast and saturation are scaled by up to 1 ± colour, 0 to 1.
    blur: the share of photos shown at a lower resolution, as a far or small photo would be.
    grain: half of the photos are sharpened and given noise, up to this strength, 0 to 1. A model
        that only saw small photos enlarged is then no stranger to the fine detail of large ones.
    mixup: the Beta(mixup, mixup) of Zhang et al. 2018 (https://arxiv.org/abs/1710.09412); what
        frozen blocks made of photos can be mixed as well (Verma et al. 2019, arXiv:1806.05236).
    """

    min_area: float = 1.0
    flip: bool = False
    colour: float = 0.0
    blur: float = 0.0
    grain: float = 0.0
    mixup: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.min_area <= 1:
            raise ValueError(f"min_area must be above 0 and at most 1, got {self.min_area}.")
        for name in ("colour", "blur", "grain"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be between 0 and 1, got {getattr(self, name)}.")
        if self.mixup < 0:
            raise ValueError(f"mixup must not be negative, got {self.mixup}.")

    def view(
        self, photo: Image.Image, preprocess: Preprocess, random: np.random.Generator
    ) -> Image.Image:
        """A random picture of `photo`, of the size that `preprocess` makes.

        With fit "letterbox" the random crop keeps the photo's own shape and is bordered.
        """
        height, width = preprocess.size
        whole = preprocess.fit == "letterbox"
        box = preprocess.box(*photo.size)
        if self.min_area < 1:
            aspect = photo.width / photo.height if whole else width / height
            box = _random_box(photo.size, aspect, self.min_area, random)
        rules = preprocess
        if random.random() < self.blur:
            shrink = random.uniform(0.25, 0.75)
            low, narrow = max(16, round(height * shrink)), max(16, round(width * shrink))
            rules = replace(preprocess, size=(low, narrow))
        method = Image.Resampling[preprocess.interpolation.upper()]
        if whole:
            left, top, right, bottom = box if self.min_area < 1 else (0, 0, *photo.size)
            outer = math.floor(left), math.floor(top), math.ceil(right), math.ceil(bottom)
            picture = rules.view(photo.crop(outer))
        else:
            picture = photo.resize(
                (rules.size[1], rules.size[0]), method, box=box, reducing_gap=3.0
            )
        if picture.size != (width, height):
            picture = picture.resize((width, height), method)
        if self.flip and random.random() < 0.5:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return picture

    def recolour(self, batch: Tensor, random: np.random.Generator) -> Tensor:
        """Photos (B, 3, H, W), normalised around 0, with each its own brightness and so on."""
        if not self.colour:
            return batch
        low, high = 1 - self.colour, 1 + self.colour
        factors = random.uniform(low, high, (3, len(batch), 1, 1, 1)).astype(np.float32)
        brightness, contrast, saturation = torch.from_numpy(factors).unbind(0)
        grey = batch.mean(dim=1, keepdim=True)
        batch = grey + (batch - grey) * saturation
        middle = batch.mean(dim=(1, 2, 3), keepdim=True)
        return middle + (batch - middle) * contrast + (brightness - 1)

    def roughen(self, batch: Tensor, random: np.random.Generator) -> Tensor:
        """Photos (B, 3, H, W), normalised around 0, about half of them sharper and noisier."""
        if not self.grain:
            return batch
        strength = self.grain * random.uniform(0, 1, (2, len(batch), 1, 1, 1)).astype(np.float32)
        strength *= random.random((1, len(batch), 1, 1, 1)) < 0.5
        sharper, noisier = torch.from_numpy(strength).unbind(0)
        reach = max(1, round(min(batch.shape[2:]) / 90))  # of the blur that detail is told by
        blurred = F.avg_pool2d(batch, 2 * reach + 1, 1, reach, count_include_pad=False)
        noise = torch.from_numpy(random.standard_normal(batch.shape, dtype=np.float32))
        return batch + 3 * sharper * (batch - blurred) + 0.15 * noisier * noise

    def mix(
        self, batch: Tensor, targets: Tensor, random: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """A batch (B, …) mixed in pairs, and its soft targets (B, C) in the same shares."""
        if not self.mixup:
            return batch, targets
        share = float(random.beta(self.mixup, self.mixup))
        other = torch.from_numpy(random.permutation(len(batch)))
        return torch.lerp(batch[other], batch, share), torch.lerp(targets[other], targets, share)


def _random_box(
    size: tuple[int, int], aspect: float, min_area: float, random: np.random.Generator
) -> tuple[float, float, float, float]:
    """A crop with `min_area` to all of the largest box of this aspect, stretched by up to 4:3."""
    width, height = size
    whole = min(width, height * aspect)  # width of the largest box of the aspect
    side = whole * math.sqrt(random.uniform(min_area, 1))
    stretch = math.exp(random.uniform(-1, 1) * math.log(4 / 3) / 2)
    box_width = min(side * stretch, width)
    box_height = min(side / aspect / stretch, height)
    left = random.uniform(0, width - box_width)
    top = random.uniform(0, height - box_height)
    return left, top, left + box_width, top + box_height
