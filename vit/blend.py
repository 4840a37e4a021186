"""Between the weights of two models that began as one.

The mean of those a run began with and those it ended with often answers better on photos unlike
those of the training (Wortsman et al. 2022, arXiv:2109.01903), and the mean of two runs' better
than either (Wortsman et al. 2022, arXiv:2203.05482).
"""

from dataclasses import replace

import torch

from vit.card import Card, CheckpointError
from vit.model import ViT
from vit.start import relieve_corners


def blend(fine: ViT, start: ViT, share: float, same_classes: bool = False) -> ViT:
    """A model whose backbone is `share` of the way from `start` to `fine`, with the head of `fine`;
    with `same_classes` the head lies between them too.

    `fine` must have been trained from `start` or from what `start` was; registers that only `fine`
    has are added to `start` as that training did. Raises ValueError for a share outside 0 to 1, and
    CheckpointError when the two are of different shapes.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share must be from 0 (the start) to 1 (the result), got {share}.")
    own = start.config
    if replace(fine.config, classes=own.classes, registers=own.registers) != own:
        raise CheckpointError("The two models have different shapes; give a model and its start.")
    base = ViT(fine.config)
    apart = () if same_classes else ("head.",)
    both = {k: v for k, v in start.state_dict().items() if not k.startswith(apart)}
    base.load_state_dict(both, strict=False)
    if fine.config.registers != start.config.registers:
        relieve_corners(base)
    weights, old = fine.state_dict(), base.state_dict()
    base.load_state_dict(
        {
            name: value if name.startswith(apart) else torch.lerp(old[name], value, share)
            for name, value in weights.items()
        }
    )
    return base.eval()


def blended(card: Card, share: float, start: str) -> Card:
    """The card of such a model. Counts, temperature and threshold were another model's: they go.

    `start` is the fingerprint of the start's file. The record of an earlier blend stays in it.
    """
    training = {k: v for k, v in card.training.items() if k not in ("counts", "calibration")}
    record = {"share": share, "start_fingerprint": start}
    if "blend" in training:
        record["before"] = training["blend"]
    return replace(
        card,
        metrics={},
        temperature=1.0,
        unsure_below=None,
        training={**training, "blend": record},
    )
