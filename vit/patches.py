"""A photo as the model reads it: its patches as vectors, which of them are alike, what the first
layer looks for, and which patches the answer rests on.

Patches are numbered row by row from 0, as in `vit.maps` and `vit.explain`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from vit.attention import class_relevance, grid_of
from vit.hybrid import HybridEmbed
from vit.maps import speaks_for
from vit.model import ViT, resize_positions


@dataclass(frozen=True)
class Reading:
    """One photo on its way through a model, P = rows × columns patches of `grid`.

    embedded: (P, D), what the linear map makes of each patch's pixels (in a hybrid: of its part of
    the ResNet's map), before its position is added. positions: (P, D), the learned position
    embeddings on this grid. encoded: (P, D), the same tokens after the last block and LayerNorm.
    logits: (C,). prefix: tokens in front of the patches, so that patch p is token prefix + p. All
    float32, on the CPU.
    """

    grid: tuple[int, int]
    prefix: int
    embedded: Tensor
    positions: Tensor
    encoded: Tensor
    logits: Tensor

    @property
    def patches(self) -> int:
        return self.grid[0] * self.grid[1]

    @property
    def nbytes(self) -> int:
        return sum(
            tensor.nbytes for tensor in (self.embedded, self.positions, self.encoded, self.logits)
        )


def read(model: ViT, pixels: Tensor) -> Reading:
    """One forward of one photo (1, 3, H, W), with what lies on the way. Raises ValueError for
    several photos, and for a size that patches do not fill."""
    if len(pixels) != 1:
        raise ValueError(f"Expected one photo (1, 3, H, W), got {tuple(pixels.shape)}.")
    with torch.inference_mode():
        tokens = model.embed(pixels)
        grid, prefix = grid_of(model, pixels), model.num_prefix_tokens
        K = model.config.class_tokens
        positions = resize_positions(model.pos_embed, model.grid, grid, K)[:, K:]
        embedded = tokens[:, prefix:] - positions  # (1, P, D): a ResNet need not run again
        encoded = model.encode(tokens)
        logits = model.classify(encoded)
        vectors = (
            tensor[0].float().cpu().clone()
            for tensor in (embedded, positions, encoded[:, prefix:], logits)
        )
        return Reading(grid, prefix, *vectors)


def similarity(vectors: Tensor, patch: int) -> Tensor:
    """Cosine between one row of `vectors` (P, D) and every row: (P,), from -1 to 1. A row of zeros
    is like nothing, 0."""
    if not 0 <= patch < len(vectors):
        raise ValueError(f"There is no patch {patch}: they are 0 to {len(vectors) - 1}.")
    return F.cosine_similarity(vectors, vectors[patch : patch + 1], dim=1).clamp(-1, 1)


def most_trusted(
    model: ViT, pixels: Tensor, share: float = 0.2, target: int | None = None
) -> tuple[int, ...]:
    """The `share` of the patches of one photo (1, 3, H, W) with the highest relevance for class
    `target` (None: the one that the model names), the highest first. Runs the model once,
    forwards and backwards."""
    if not 0 < share <= 1:
        raise ValueError(f"share must be in (0, 1], got {share}.")
    relevance, config = class_relevance(model, pixels, target)[1][0], model.config
    prefix, grid = config.num_prefix_tokens, grid_of(model, pixels)
    heat = speaks_for(relevance, config.class_tokens, prefix, grid, config.patch_mean).flatten()
    return tuple(heat.topk(max(1, round(share * len(heat)))).indices.tolist())


def filters(model: ViT, most: int | None = None) -> tuple[Tensor, Tensor]:
    """What the first layer multiplies a patch with: numbers (n,) of the embedding, and for each the
    picture (n, h, w, 3), 0 to 1, that raises it most. 0.5 is a weight of zero, and each picture is
    stretched by its own largest weight. `most` leaves the strongest, still in their order. In a
    hybrid these are the filters of the ResNet's first convolution, and numbers of its channels."""
    weights = _first_layer(model)
    numbers = torch.arange(len(weights))
    if most is not None and most < len(weights):
        strength = weights.flatten(1).norm(dim=1)
        numbers = strength.topk(most).indices.sort().values
    return numbers, _pictures(weights[numbers])


def principal_filters(model: ViT, most: int = 28) -> tuple[Tensor, Tensor]:
    """The principal components of all filters (figure 7 of Dosovitskiy et al. 2021): pictures
    (n, h, w, 3) as in `filters`, and the share (n,) of the filters' variance in each."""
    weights = _first_layer(model)
    flat = weights.flatten(1) - weights.flatten(1).mean(0)
    _, strengths, components = torch.linalg.svd(flat, full_matrices=False)
    variance = strengths.square() / strengths.square().sum().clamp(min=torch.finfo().tiny)
    return _pictures(components[:most].unflatten(1, weights.shape[1:])), variance[:most]


def _first_layer(model: ViT) -> Tensor:
    """What the pixels are multiplied with, (n, 3, h, w)."""
    embed = model.patch_embed
    weights = embed.root.standardised() if isinstance(embed, HybridEmbed) else embed.proj.weight
    return weights.detach().float().cpu()


def _pictures(weights: Tensor) -> Tensor:
    """(n, 3, h, w), any range, to (n, h, w, 3), 0 to 1, zero in the middle."""
    largest = weights.abs().amax((1, 2, 3), keepdim=True).clamp(min=torch.finfo().tiny)
    return (0.5 + weights / (2 * largest)).permute(0, 2, 3, 1)


def contact_sheet(pictures: Tensor, columns: int, gap: int = 1) -> Tensor:
    """Pictures (n, h, w, 3), 0 to 1, side by side with `gap` white pixels between: (H, W, 3),
    bytes."""
    n, h, w, _ = pictures.shape
    columns = min(columns, n)
    rows = -(-n // columns)
    sheet = torch.ones(rows * (h + gap) - gap, columns * (w + gap) - gap, 3)
    for index, picture in enumerate(pictures):
        top, left = index // columns * (h + gap), index % columns * (w + gap)
        sheet[top : top + h, left : left + w] = picture
    return (sheet * 255).round().to(torch.uint8)
