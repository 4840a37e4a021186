"""Does a map tell the truth about what a model used? Take patches away in its order, or show them
in its order, and watch the probability of a class, beside orders of chance.

Patches are numbered row by row from 0, as `vit.maps` has them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypedDict, Unpack

import torch
from torch import Tensor

from vit.explain import classify_kept
from vit.model import ViT

STEPS = 10  # of a curve


@dataclass(frozen=True)
class Faithfulness:
    """What becomes of a probability, from 0 to 1, when patches are taken away.

    before: nothing gone. after: of the `patches` that may go, the `removed` ones that the map rates
    highest gone. random_mean and random_std: as many at random gone, over `draws` draws (standard
    deviation, by n - 1). A map is worth believing when `after` lies well below the random band.
    """

    before: float
    after: float
    random_mean: float
    random_std: float
    removed: int
    patches: int
    draws: int


def faithfulness(
    model: ViT,
    pixels: Tensor,
    heats: Mapping[str, Tensor],
    target: int,
    *,
    spared: Collection[int] = (),
    share: float = 0.2,
    draws: int = 10,
    seed: int = 0,
    temperature: float = 1.0,
) -> dict[str, Faithfulness]:
    """Test maps (h, w) over the patches of one photo (1, 3, H, W), by name, against chance.

    `share` of the patches is removed, `temperature` is the checkpoint's. All maps are measured
    against the same draws, in one batch. Equal values are ordered by chance, by `seed`. `spared`
    patches are never removed, by no map and no draw. Give the sinks: the model leans on them
    whatever they show, so a map that does no more than rate them highest seems faithful.
    """
    if not 0 < share < 1 or draws < 2:
        raise ValueError(f"share must be in (0, 1) and draws 2 or more, got {share} and {draws}.")
    with torch.no_grad():
        tokens = _tokens_of_one(model, pixels)
        patches = tokens.shape[1] - model.num_prefix_tokens
        stay = torch.tensor(sorted(spared), dtype=torch.long)
        orders = [_order(heat, patches, stay, seed) for heat in heats.values()]
        chance = torch.rand(draws, patches, generator=torch.Generator().manual_seed(seed))
        orders = torch.stack(orders + [_order(heat, patches, stay, seed) for heat in chance])
        removed = max(1, round(share * orders.shape[1]))
        before = _probability(model.classify(model.encode(tokens)), target, temperature)
        left = torch.cat([stay.expand(len(orders), -1), orders[:, removed:]], 1)
        gone = _probability(classify_kept(model, tokens, left), target, temperature)
    chance = gone[len(heats) :]
    return {
        name: Faithfulness(
            before=before.item(),
            after=after.item(),
            random_mean=chance.mean().item(),
            random_std=chance.std().item(),
            removed=removed,
            patches=orders.shape[1],
            draws=draws,
        )
        for name, after in zip(heats, gone[: len(heats)], strict=True)
    }


@dataclass(frozen=True)
class Curve:
    """A probability (0 to 1) as patches go or come. shares: of the patches removed (deletion) or
    shown (insertion), from 0 to 1. area: under the curve by trapezia; for deletion lower is better,
    for insertion higher."""

    shares: tuple[float, ...]
    probabilities: tuple[float, ...]
    area: float


class How(TypedDict, total=False):
    """As in `faithfulness`, and how many steps a curve has, 10 where nothing is said."""

    spared: Collection[int]
    steps: int
    seed: int
    temperature: float


def deletion_curve(
    model: ViT, pixels: Tensor, heats: Mapping[str, Tensor], target: int, **how: Unpack[How]
) -> dict[str, Curve]:
    """Take patches away, those that a map rates highest first (Petsiuk et al. 2018, with tokens
    left out in place of pixels painted over). Arguments as in `faithfulness`."""
    return _curves(model, pixels, heats, target, insertion=False, **how)


def insertion_curve(
    model: ViT, pixels: Tensor, heats: Mapping[str, Tensor], target: int, **how: Unpack[How]
) -> dict[str, Curve]:
    """The other way round: from no patch at all, show those that a map rates highest first."""
    return _curves(model, pixels, heats, target, insertion=True, **how)


def _curves(
    model: ViT,
    pixels: Tensor,
    heats: Mapping[str, Tensor],
    target: int,
    *,
    insertion: bool,
    spared: Collection[int] = (),
    steps: int = STEPS,
    seed: int = 0,
    temperature: float = 1.0,
) -> dict[str, Curve]:
    if steps < 1 or not heats:
        raise ValueError(f"There must be a map and a step, got {len(heats)} and {steps}.")
    with torch.no_grad():
        tokens = _tokens_of_one(model, pixels)
        patches = tokens.shape[1] - model.num_prefix_tokens
        stay = torch.tensor(sorted(spared), dtype=torch.long)
        orders = torch.stack([_order(heat, patches, stay, seed) for heat in heats.values()])
        movable = orders.shape[1]
        counts = sorted({round(step * movable / steps) for step in range(steps + 1)})
        rows = []
        for count in counts:
            keep = orders[:, :count] if insertion else orders[:, count:]
            keep = torch.cat([stay.expand(len(orders), -1), keep], 1)
            rows.append(_probability(classify_kept(model, tokens, keep), target, temperature))
    shares = torch.tensor(counts, dtype=torch.float64) / max(1, movable)
    values = torch.stack(rows, 1).double()  # (maps, counts)
    return {
        name: Curve(
            tuple(shares.tolist()), tuple(row.tolist()), torch.trapezoid(row, shares).item()
        )
        for name, row in zip(heats, values, strict=True)
    }


def _tokens_of_one(model: ViT, pixels: Tensor) -> Tensor:
    if len(pixels) != 1:
        raise ValueError(f"Maps are tested on one photo (1, 3, H, W), got {tuple(pixels.shape)}.")
    return model.embed(pixels)


def _probability(logits: Tensor, target: int, temperature: float) -> Tensor:
    return (logits.float() / temperature).softmax(1)[:, target].cpu()


def _order(heat: Tensor, patches: int, spared: Tensor, seed: int) -> Tensor:
    """Patch numbers from the highest value to the lowest, equal ones in an order of chance, and
    without those spared."""
    if heat.numel() != patches:
        raise ValueError(f"The map has {heat.numel()} values, the photo {patches} patches.")
    mixed = torch.randperm(patches, generator=torch.Generator().manual_seed(seed))
    mixed = mixed[~torch.isin(mixed, spared)]
    values = heat.detach().flatten().cpu()[mixed]
    return mixed[values.argsort(descending=True, stable=True)]
