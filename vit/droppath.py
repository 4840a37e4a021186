"""Stochastic depth (Huang et al. 2016, arXiv:1603.09382), put on a model while it trains."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from vit.model import ViT


@contextmanager
def drop_path(model: ViT, rate: float, photos: int, mine: slice) -> Iterator[None]:
    """Inside, the branches of `model`'s blocks are left out for whole photos at random.

    Each of a block's two branches is left out for a share of the photos that rises from 0 in the
    first block to `rate`, below 1, in the last; for the others it is scaled up, so that its mean
    stays. Draws are torch's own, made for all `photos` of a step, of which the model is shown those
    that are `mine`: processes with the same seed together do what one does.

    It hooks on to `model` itself: for a model that is nobody else's, as in training.
    """
    rates = torch.linspace(0, rate, len(model.blocks)).tolist()

    def hook_for(rate: float):
        def hook(_: nn.Module, __: object, branch: Tensor) -> Tensor:
            kept = torch.rand(photos, 1, 1)[mine] < 1 - rate
            return branch * kept.to(branch) / (1 - rate)

        return hook

    hooks = [
        block.get_submodule("drop").register_forward_hook(hook_for(own))
        for block, own in zip(model.blocks, rates, strict=True)
        if own
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
