"""Attention maps made smaller: one head or all, rollout, relevance, and numbers about a head.

A map is a tensor of weights (…, N, N), N tokens being `prefix` prefix tokens and then the patches
of `grid` (rows, columns) row by row. The last but one axis is the token that asks, the last the
token that is looked at; every row sums to one. The class token is token 0. What `vit.attention`
records is (layers, B, A, N, N): layers, photos, heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

CLASS_TOKEN = 0
LATE = 1 / 3  # sinks are looked for in the last third of the layers
SINK_TIMES = 4.0  # a sink takes at least this many times an even share, in every one of them


def mean_heads(maps: Tensor) -> Tensor:
    """(…, A, N, N) to (…, N, N); rows still sum to one."""
    return maps.mean(-3)


def max_heads(maps: Tensor) -> Tensor:
    """(…, A, N, N) to (…, N, N): the largest weight of any head; rows sum to one or more."""
    return maps.amax(-3)


def looks_at(weights: Tensor, token: int, prefix: int, grid: tuple[int, int]) -> Tensor:
    """Where `token` looks: its weights (…, N, N) to the patches, as (…, h, w).

    What it gives to prefix tokens is left out, so this sums to one or less.
    """
    return _patches(weights[..., token, :], prefix, grid)


def looked_at_by(weights: Tensor, token: int, prefix: int, grid: tuple[int, int]) -> Tensor:
    """Who looks at `token`: the weight that each patch gives it, (…, N, N) to (…, h, w)."""
    return _patches(weights[..., :, token], prefix, grid)


def _patches(row: Tensor, prefix: int, grid: tuple[int, int]) -> Tensor:
    if row.shape[-1] != prefix + grid[0] * grid[1]:
        raise ValueError(
            f"{row.shape[-1]} tokens are not {prefix} prefix tokens and {grid[0]} × {grid[1]} "
            "patches."
        )
    return row[..., prefix:].unflatten(-1, grid)


def speaks_for(
    relevance: Tensor,
    class_tokens: int,
    prefix: int,
    grid: tuple[int, int],
    patch_mean: bool = False,
) -> Tensor:
    """How much each patch speaks for the class of `relevance`: (…, N, N) to (…, h, w).

    The row of the class token; or the mean of all rows that the head reads, which may be those of
    two class tokens, and the mean of the patches' rows.
    """
    read = relevance[..., :class_tokens, :]
    if patch_mean:
        read = torch.cat([read, relevance[..., prefix:, :].mean(-2, keepdim=True)], -2)
    return _patches(read.mean(-2), prefix, grid)


def rollout(maps: Tensor, discard: float = 0.0) -> Tensor:
    """Attention through all layers (Abnar and Zuidema 2020), (layers, B, A, N, N) to (B, N, N).

    In every layer the mean over heads, half of it replaced by the identity for the residual
    connection, multiplied from the first layer to the last. Before that, the smallest `discard`
    (a share below 1) of the weights of each photo in each layer is set to zero. Rows sum to one.
    """
    if not 0 <= discard < 1:
        raise ValueError(f"discard must be in [0, 1), got {discard}.")
    _, B, _, N, _ = maps.shape
    identity = torch.eye(N, device=maps.device)
    result = identity.expand(B, N, N)
    for layer in maps:
        weights = layer.mean(1)
        if smallest := int(discard * N * N):
            flat = weights.flatten(1)
            weights = flat.scatter(1, flat.topk(smallest, 1, largest=False).indices, 0.0)
            weights = weights.view(B, N, N)
        weights = weights + identity
        result = weights / weights.sum(-1, keepdim=True) @ result
    return result


def relevance(maps: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
    """Relevance for one class (Chefer, Gur and Wolf 2021, "Generic Attention-model Explainability",
    their rule for self-attention): each (B, A, N, N), the first layer first, to (B, N, N).

    R starts as the identity; layer by layer R becomes R + mean over heads of (gradient × map)⁺ · R.
    """
    first = maps[0]
    result = torch.eye(first.shape[-1], device=first.device).expand(len(first), -1, -1)
    for weights, gradient in zip(maps, gradients, strict=True):
        result = result + (weights * gradient).clamp(min=0).mean(1) @ result
    return result


def entropy(maps: Tensor) -> Tensor:
    """How spread each token's attention is, in nats: (…, N, N) to (…, N).

    0 for one token alone, log N for all alike.
    """
    return torch.special.entr(maps).sum(-1)


def class_mass(maps: Tensor) -> Tensor:
    """The share of each token's attention that lies on the class token: (…, N, N) to (…, N)."""
    return maps[..., CLASS_TOKEN]


def mean_distance(
    maps: Tensor, prefix: int, grid: tuple[int, int], patch_size: tuple[int, int]
) -> Tensor:
    """How far patches look, in pixels of the model's picture: (…, N, N) to (…).

    The distance between the centres of two patches, weighted by attention and averaged over all
    asking patches (Dosovitskiy et al. 2021, appendix D.7). Prefix tokens have no place: they do not
    count, and the weights among patches are taken to sum to one.
    """
    rows, columns = torch.meshgrid(*(torch.arange(side) for side in grid), indexing="ij")
    places = torch.stack([rows.flatten() * patch_size[0], columns.flatten() * patch_size[1]], 1)
    places = places.float().to(maps.device)  # (h * w, 2)
    distances = torch.linalg.vector_norm(places[:, None] - places, dim=-1)  # (h * w, h * w)
    return (_shares(maps[..., prefix:, prefix:]) * distances).sum(-1).mean(-1)


@dataclass(frozen=True)
class Sinks:
    """Patches that take far more than their share of the class token's attention, whatever they
    show. patches: their numbers, row by row from 0, the greediest first. share: of the attention
    that the class token gives to patches, what they take together, averaged over `layers`;
    `per_layer` is the same for each of these. even: what as many patches would take if all were
    alike.
    """

    patches: tuple[int, ...]
    share: float
    even: float
    layers: tuple[int, ...]
    per_layer: tuple[float, ...]


def find_sinks(maps: Tensor, prefix: int, times: float = SINK_TIMES) -> Sinks:
    """Sinks of one photo, from its maps of every layer (layers, A, N, N).

    A patch is one when in each layer of the last third, in the mean over heads, it takes at least
    `times` an even share of what the class token gives to patches, and as much of what the patches
    themselves give: the dish draws the class token, a sink draws everyone. Where it lies plays no
    part.
    """
    depth = len(maps)
    late = range(depth - max(1, round(depth * LATE)), depth)
    weights = maps[late.start :].mean(1)[:, :, prefix:]  # (late layers, N, h * w)
    by_class = _shares(weights[:, CLASS_TOKEN])
    by_patches = _shares(weights[:, prefix:].mean(1))
    even = 1 / weights.shape[-1]
    least = torch.minimum(by_class, by_patches).amin(0)
    greedy = (least >= times * even).nonzero().flatten()
    patches = greedy[by_class.mean(0)[greedy].argsort(descending=True)]
    per_layer = by_class[:, patches].sum(1)
    return Sinks(
        patches=tuple(patches.tolist()),
        share=per_layer.mean().item(),
        even=even * len(patches),
        layers=tuple(late),
        per_layer=tuple(per_layer.tolist()),
    )


def set_aside(heat: Tensor, sinks: Sinks | Sequence[int]) -> Tensor:
    """A map over patches (…, h, w) without some of them: these are zero, the rest sums to one."""
    patches = list(sinks.patches if isinstance(sinks, Sinks) else sinks)
    flat = heat.flatten(-2).clone()
    flat[..., patches] = 0
    return _shares(flat).view(heat.shape)


def _shares(row: Tensor) -> Tensor:
    """The last axis made to sum to one, unless it is all zero."""
    return row / row.sum(-1, keepdim=True).clamp(min=torch.finfo(row.dtype).tiny)
