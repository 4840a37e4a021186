"""One photo's way through a model, kept so that every number on it can be looked at.

Everything here is noted while the model itself runs, by watchers in a view of it (see
`vit.attention.own_view`): nothing is computed a second way, so the numbers are the model's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit.attention import grid_of, own_view, twin
from vit.model import ViT, resize_positions


@dataclass(frozen=True)
class Walk:
    """One photo from pixels to logits, P = h * w patches, N tokens. float32, on the CPU.

    pixels: (3, H, W), as the model reads them. pieces: (P, n), what the convolution of the patch
    embedding reads for each patch, flattened as its filters are: channel, row, column. `pictured`
    tells whether these are the photo's own pixels; behind a convolutional stem they are features.
    features: (D, h, w), what that convolution makes of them. positions: (K + P, D), on this grid,
    those of the K class tokens first. tokens: (depth + 1, N, D), what enters each block, and what
    leaves the last. encoded: (N, D), after the last LayerNorm. pooled: what the head sees.
    logits: (C,).
    """

    pixels: Tensor
    pieces: Tensor
    pictured: bool
    features: Tensor
    positions: Tensor
    tokens: Tensor
    encoded: Tensor
    pooled: Tensor
    logits: Tensor
    prefix: int

    @property
    def grid(self) -> tuple[int, int]:
        return self.features.shape[1], self.features.shape[2]

    @property
    def patches(self) -> int:
        return self.features[0].numel()

    @property
    def depth(self) -> int:
        return len(self.tokens) - 1

    @property
    def nbytes(self) -> int:
        return _bytes(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True)
class BlockWalk:
    """What happens in one block, A heads, each d wide, an MLP of M hidden numbers.

    entering, normed, attended, middle, middle_normed, leaving: (N, D). q, k, v, mixed: (A, N, d).
    joined: (N, D), the heads side by side; projected: (N, D), mixed by the output map. hidden,
    active: (N, M), before and after GELU; computed: (N, D), what the MLP makes of them.
    attended and thought are what the two branches add: middle = entering + attended, leaving =
    middle + thought. In a plain block these are projected and computed.
    """

    entering: Tensor
    normed: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    mixed: Tensor
    joined: Tensor
    projected: Tensor
    attended: Tensor
    middle: Tensor
    middle_normed: Tensor
    hidden: Tensor
    active: Tensor
    computed: Tensor
    thought: Tensor
    leaving: Tensor

    @property
    def nbytes(self) -> int:
        return _bytes(getattr(self, field.name) for field in fields(self))


class _Watch(nn.Module):
    """Passes on what it stands before, and notes what went in and what came out."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.taken: tuple[Tensor, ...] = ()
        self.given = torch.empty(0)

    def forward(self, *inputs: Tensor) -> Tensor:
        self.taken = inputs
        self.given = self.inner(*inputs)
        return self.given


def _watch(parent: nn.Module, name: str) -> _Watch:
    """Puts a watcher before the child `name` of a module that is ours to change."""
    watch = _Watch(getattr(parent, name))
    setattr(parent, name, watch)
    return watch


def walk(model: ViT, pixels: Tensor) -> Walk:
    """One photo (1, 3, H, W) through `model`, which must be in eval mode."""
    if len(pixels) != 1 or model.training:
        raise ValueError(f"A walk is one photo through a model in eval mode, got {len(pixels)}.")
    view, conv = own_view(model), model.patch_embed.proj
    view.patch_embed = twin(model.patch_embed)
    watch = _watch(view.patch_embed, "proj")
    with torch.no_grad():
        tokens = [view.embed(pixels)]
        for block in view.blocks:
            tokens.append(block(tokens[-1]))
        encoded = view.norm(tokens[-1])
        pooled = view.pool(encoded)
        logits = view.classify(encoded)
        read = watch.taken[0]
        pieces = F.unfold(read.float(), conv.kernel_size, stride=conv.stride)[0].T
        tokens = torch.cat(tokens)
        made = watch.given[0]
    grid = (made.shape[1], made.shape[2])
    return Walk(
        pixels=_kept(pixels[0]),
        pieces=_kept(pieces),
        pictured=read.shape == pixels.shape and grid == grid_of(model, pixels),
        features=_kept(made),
        positions=_positions(model, grid),
        tokens=_kept(tokens),
        encoded=_kept(encoded[0]),
        pooled=_kept(pooled[0]),
        logits=_kept(logits[0]),
        prefix=model.num_prefix_tokens,
    )


def walk_block(model: ViT, walk: Walk, block: int) -> BlockWalk:
    """What block `block`, counted from 0, did with this walk's tokens; runs that block alone."""
    if not 0 <= block < walk.depth:
        raise ValueError(f"There is no block {block + 1}; the last is {walk.depth}.")
    place = own_view(model).blocks[block]
    place.mlp = twin(place.mlp)  # pyright: ignore[reportArgumentType]
    norm1, norm2 = _watch(place, "norm1"), _watch(place, "norm2")
    attn, mlp = place.get_submodule("attn"), place.get_submodule("mlp")
    core, proj, act = _watch(attn, "core"), _watch(attn, "proj"), _watch(mlp, "act")
    computed = _watch(place, "mlp")
    entering = walk.tokens[block].to(model.pos_embed.device)[None]
    with torch.no_grad():
        leaving = place(entering)
    q, k, v = core.taken
    middle = norm2.taken[0]
    found = {
        "entering": entering,
        "normed": norm1.given,
        "q": q,
        "k": k,
        "v": v,
        "mixed": core.given,
        "joined": proj.taken[0],
        "projected": proj.given,
        "attended": middle - entering,
        "middle": middle,
        "middle_normed": norm2.given,
        "hidden": act.taken[0],
        "active": act.given,
        "computed": computed.given,
        "thought": leaving - middle,
        "leaving": leaving,
    }
    return BlockWalk(**{name: _kept(tensor[0]) for name, tensor in found.items()})


def _positions(model: ViT, grid: tuple[int, int]) -> Tensor:
    positions = resize_positions(model.pos_embed, model.grid, grid, model.config.class_tokens)
    return _kept(positions[0])


def _kept(tensor: Tensor) -> Tensor:
    return tensor.detach().float().cpu().clone()


def _bytes(values: Iterable[object]) -> int:
    return sum(value.nbytes for value in values if isinstance(value, Tensor))
