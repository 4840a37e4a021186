"""The three ways to train: every weight, the last blocks, and the head alone.

All offer the training loop the same: `module` is what is trained; `prepare` does what is done once
before the first step; `batch` makes a step's inputs and soft targets, in a thread of its own and by
the seed alone; `forward` gives logits; `validate` the answers for the validation photos; `whole`
the full model around a trained module; `close` gives back what `prepare` took.

Where several processes train together, each makes and gets its own rows of a step's batch.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from vit.activations import ACTIVATIONS, Activations
from vit.batches import prefetch
from vit.data import DataSet
from vit.distributed import World
from vit.evaluate import evaluate
from vit.images import Preprocess
from vit.model import ViT
from vit.photoset import PhotoSet
from vit.recipe import Recipe
from vit.top import Top, below, pooled

Size = tuple[int, int]  # (height, width) of a picture
MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Given:
    """What every way of training begins with; `folder` is the run's."""

    model: ViT
    data: DataSet
    recipe: Recipe
    preprocess: Preprocess
    folder: Path
    world: World


class AllWeights:
    """What goes in are photos, changed at random."""

    def __init__(self, given: Given) -> None:
        self.module: nn.Module = given.model
        self.model, self.data, self.world = given.model, given.data, given.world
        self.seed, self.augment = given.recipe.seed, given.recipe.augment
        self.preprocess = given.preprocess

    def prepare(self, resumed: bool) -> Iterator[tuple[int, int]]:
        """Nothing is done beforehand."""
        yield from ()

    def batch(
        self, epoch: int, step: int, size: Size, indices: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        """Photos (B, 3, H, W) and soft targets (B, C) of this process's rows."""
        preprocess, photos = replace(self.preprocess, size=size), self.data.train
        at_least = round(max(size) / math.sqrt(self.augment.min_area))  # so no crop is enlarged
        mine = self.world.mine
        # Draws are made for the whole batch, so that they are those of a single process; photos of
        # other processes stay black, but for mixup, which may need any of them.
        needed = range(len(indices)) if self.augment.mixup else range(len(indices))[mine]
        views = [Image.new("RGB", (size[1], size[0]))] * len(indices)
        for row in needed:
            index = int(indices[row])
            random = np.random.default_rng((self.seed, 1, epoch, index))
            views[row] = self.augment.view(photos.photo(index, at_least), preprocess, random)
        random = np.random.default_rng((self.seed, 2, step))
        images = self.augment.recolour(preprocess.batch(views), random)
        images = self.augment.roughen(images, random)
        images, targets = self.augment.mix(images, _soft_targets(photos, indices), random)
        return images[mine], targets[mine]

    def forward(self, images: Tensor, keep: float) -> Tensor:
        """Logits (B, C), from a random share `keep` of the patches (Liu et al. 2022)."""
        if keep == 1:
            return self.module(images)
        tokens = self.model.embed(images)
        prefix = self.model.num_prefix_tokens
        patches = tokens.shape[1] - prefix
        kept = torch.randperm(patches)[: max(1, round(keep * patches))].sort().values
        kept = torch.cat([torch.arange(prefix), kept + prefix]).to(tokens.device)
        return self.model.classify(self.model.encode(tokens[:, kept]))

    def validate(self, module: nn.Module, size: Size) -> tuple[Tensor, Tensor]:
        """Logits (N, C) and labels (N,)."""
        preprocess, val = replace(self.preprocess, size=size), self.data.val
        mine = val.subset(self.world.share(len(val)))
        result = evaluate(self.whole(module), mine, preprocess, self.data.classes)
        return self.world.gather(result.logits)[: len(val)], torch.tensor(val.targets)

    def whole(self, module: nn.Module) -> ViT:
        assert isinstance(module, ViT)
        return module

    def close(self) -> None:
        """Nothing was taken."""


class _OnFrozen(ABC):
    """A frozen part of the model sees every photo once; what goes in is what it made of them.

    Each photo is kept as one or more views: itself, its mirror image, and then as many others,
    changed at random, as the recipe wants. A step takes one of them.
    """

    def __init__(self, given: Given, module: nn.Module) -> None:
        self.module = module
        self.model, self.data, self.world = given.model, given.data, given.world
        self.seed, self.augment = given.recipe.seed, given.recipe.augment
        self.preprocess = given.preprocess
        self.views = given.recipe.views or (2 if self.augment.flip else 1)
        path, limit = given.folder / ACTIVATIONS, given.recipe.memory * MEGABYTE
        rows = self.views * len(self.data.train) + len(self.data.val)
        self.kept = Activations(path, rows, limit, writes=self.world.leads)

    @abstractmethod
    def _frozen(self, images: Tensor) -> Tensor:
        """What the frozen part makes of photos (B, 3, H, W)."""

    @abstractmethod
    def whole(self, module: nn.Module) -> ViT: ...

    def prepare(self, resumed: bool) -> Iterator[tuple[int, int]]:
        """Show the frozen part every photo; yields (photos done, photos in all) as it goes.

        A `resumed` run uses the file that an earlier try left.
        """
        if self.world.agree(resumed and self.kept.reopen()):
            if not self.world.leads:
                self.kept.open()
            return
        self.model.eval()
        total, done = len(self.data.train) + len(self.data.val), 0
        for photos, views in ((self.data.train, self.views), (self.data.val, 1)):
            left = len(photos)
            for images in self._pictures(photos, views):  # (B, V, 3, H, W)
                with torch.no_grad():
                    made = self._frozen(images.flatten(0, 1).to(self.world.device)).cpu()
                rows = self.world.gather(made.unflatten(0, images.shape[:2]))[:left]
                self.kept.append(rows.flatten(0, 1))
                left -= len(rows)
                done += len(rows)
                yield done, total
        self.kept.finish()
        self.world.agree(None)  # the file is whole
        if self.kept.in_file:
            self.kept.open()

    def _pictures(self, photos: PhotoSet, views: int) -> Iterator[Tensor]:
        """All views (B, V, 3, H, W) of this process's share of the photos, batch by batch."""
        share, size = self.world.share(len(photos)), 32

        def make(start: int) -> Tensor:
            made = [self._views(photos, i, views) for i in share[start : start + size]]
            return torch.stack(made)

        # As many threads as elsewhere.
        yield from prefetch((lambda s=s: make(s)) for s in range(0, len(share), size))

    def _views(self, photos: PhotoSet, index: int, views: int) -> Tensor:
        """One photo (V, 3, H, W): plain, mirrored, and changed at random by the seed alone."""
        preprocess = self.preprocess
        photo = photos.photo(index, at_least=2 * min(preprocess.size))
        plain = preprocess.batch([preprocess.view(photo)])
        made = [plain, plain.flip(3)][:views] if self.augment.flip else [plain]
        for number in range(len(made), views):
            random = np.random.default_rng((self.seed, 3, number, index))
            other = preprocess.batch([self.augment.view(photo, preprocess, random)])
            made.append(self.augment.roughen(self.augment.recolour(other, random), random))
        return torch.cat(made)

    def batch(
        self, epoch: int, step: int, size: Size, indices: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        """What the frozen part made (B, …), and soft targets (B, C), of this process's rows."""
        random = np.random.default_rng((self.seed, 2, step))
        mine = self.world.mine
        which = self.views * indices + random.integers(0, self.views, len(indices))
        targets = _soft_targets(self.data.train, indices)
        if not self.augment.mixup:
            return self.kept[which[mine]], targets[mine]
        inputs, targets = self.augment.mix(self.kept[which], targets, random)
        return inputs[mine], targets[mine]

    def forward(self, inputs: Tensor, keep: float) -> Tensor:
        return self.module(inputs)

    def validate(self, module: nn.Module, size: Size) -> tuple[Tensor, Tensor]:
        """Logits (N, C) and labels (N,)."""
        count, logits = len(self.data.val), []
        rows = self.views * len(self.data.train) + np.array(self.world.share(count))
        with torch.no_grad():
            for start in range(0, len(rows), 32):
                logits.append(module(self.kept[rows[start : start + 32]].to(self.world.device)))
        everyone = self.world.gather(torch.cat(logits))[:count]
        return everyone.cpu(), torch.tensor(self.data.val.targets)

    def close(self) -> None:
        """Forget what was kept, also on the disk."""
        self.kept.delete()


class HeadAlone(_OnFrozen):
    """Only the head is trained: what goes in is the vector (D,) that the head sees of a photo."""

    def __init__(self, given: Given) -> None:
        super().__init__(given, given.model.head)

    def _frozen(self, images: Tensor) -> Tensor:
        return pooled(self.model, images)

    def whole(self, module: nn.Module) -> ViT:
        model = copy.deepcopy(self.model)
        model.head.load_state_dict(module.state_dict())
        return model


class LastBlocks(_OnFrozen):
    """The last blocks and the head are trained: what goes in are the tokens (N, D) below them."""

    def __init__(self, given: Given) -> None:
        assert given.recipe.blocks is not None
        self.blocks = given.recipe.blocks
        super().__init__(given, Top(given.model, self.blocks))

    def _frozen(self, images: Tensor) -> Tensor:
        return below(self.model, images, self.blocks)

    def whole(self, module: nn.Module) -> ViT:
        model = copy.deepcopy(self.model)
        Top(model, self.blocks).load_state_dict(module.state_dict())
        return model


Task = AllWeights | HeadAlone | LastBlocks


def task_of(given: Given) -> Task:
    """The way of training that the recipe's mode names."""
    match given.recipe.mode:
        case "head":
            return HeadAlone(given)
        case "last":
            return LastBlocks(given)
        case _:
            return AllWeights(given)


def _soft_targets(photos: PhotoSet, indices: np.ndarray) -> Tensor:
    labels = torch.tensor([photos.samples[index].label for index in map(int, indices)])
    return F.one_hot(labels, len(photos.classes)).float()
