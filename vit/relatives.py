"""Weights of the Vision Transformer's relatives, as timm lays them out, for our one model."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F


def adopted(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict with timm's names, of any model that `ViT` can be, in the layout of `ViT`.

    Most need no change. DeiT's distilled models keep class and distillation token, and a head for
    each, apart and average the two answers: here the tokens are two rows of `cls_token`, and one
    head reads both side by side, which comes to the same. Registers have no position here: where
    theirs is learned, it is added to them; where the class token's is missing, because it was added
    to that token (DINOv2), it is zero. The last needs a square grid, to be seen by its count.
    """
    state = dict(state)
    if "dist_token" in state:
        state["cls_token"] = torch.cat([state["cls_token"], state.pop("dist_token")], 1)
    if "head_dist.weight" in state:
        weights = [state["head.weight"], state.pop("head_dist.weight")]
        state["head.weight"] = torch.cat(weights, 1) / 2
        state["head.bias"] = (state["head.bias"] + state.pop("head_dist.bias")) / 2
    if "reg_token" in state and "pos_embed" in state:
        registers, positions = state["reg_token"], state["pos_embed"]
        count, placed = registers.shape[1], positions.shape[1]
        if _is_square(placed):
            state["pos_embed"] = F.pad(positions, (0, 0, 1, 0))
        elif not _is_square(placed - 1) and _is_square(placed - 1 - count):
            state["reg_token"] = registers + positions[:, 1 : 1 + count]
            state["pos_embed"] = torch.cat([positions[:, :1], positions[:, 1 + count :]], 1)
    return state


def _is_square(number: int) -> bool:
    return number > 0 and math.isqrt(number) ** 2 == number
