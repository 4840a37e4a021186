"""What every head looks at, watched from outside the model.

A served model answers many visitors at once, each on a thread of its own. A hook or a swapped
module on it would be seen by all of them; so watching is done on an `own_view` of the model, made
for one call, and the model itself is never touched.
"""

import copy
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit.maps import relevance
from vit.model import Attention, ViT

M = TypeVar("M", bound=nn.Module)
FEW = 1_000_000  # weights, 4 MB; with more of them the fused kernel was measured to be quicker


def attentions(model: ViT) -> Iterator[tuple[int, Attention]]:
    """Each block's attention with its layer, counted from 0."""
    for layer, block in enumerate(model.blocks):
        if isinstance(attn := getattr(block, "attn", None), Attention):
            yield layer, attn


def own_view(model: ViT) -> ViT:
    """A model that shares all weights with `model`, and whose attention is its own to replace.

    Copied are only the modules on the way to each block's `attn`, in a fraction of a millisecond;
    `view.blocks[i].attn.core` and `.proj` may be set without another thread seeing it. Not for
    training: the modules not copied, and every weight, are the model's.
    """
    view = twin(model)
    view.blocks = nn.ModuleList(twin(block) for block in model.blocks)
    for block in view.blocks:
        if isinstance(attn := getattr(block, "attn", None), Attention):
            block.attn = twin(attn)
    return view


def twin(module: M) -> M:
    """A module that shares all that `module` holds, and whose own children may be replaced."""
    other = copy.copy(module)
    other.__dict__["_modules"] = dict(module._modules)  # a shallow copy shares this table
    return other


class ExplicitAttention(nn.Module):
    """The same as `ScaledDotProduct`, written out, so that the weights exist as a tensor."""

    def shows(self, q: Tensor, k: Tensor) -> bool:
        """Whether `forward` makes the weights, as `weights` does, for these."""
        return True

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)  # (B, A, N, N)
        return scores.softmax(-1)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.weights(q, k).to(v.dtype) @ v


class CachedAttention(ExplicitAttention):
    """Written out where the weights are few enough to stay in a processor's cache, which is no
    slower than torch's fused kernel and, with quicker products, faster; else that kernel.

    A model that has it gives its maps away with the answer: `attend` need not compute them again.
    """

    def shows(self, q: Tensor, k: Tensor) -> bool:
        B, A, N, _ = q.shape
        return B * A * N * k.shape[2] <= FEW

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.shows(q, k):
            return super().forward(q, k, v)
        return F.scaled_dot_product_attention(q, k, v)


def with_cached_attention(model: ViT) -> ViT:
    """`model` itself, its attention now computed so; for answers in float32 on a processor."""
    for _, attn in attentions(model):
        attn.core = CachedAttention().train(model.training)
    return model


class _Seen:
    """What the cores of one forward show: the layers that passed, and the maps of those wanted."""

    def __init__(self, wanted: Sequence[int]) -> None:
        self.wanted, self.passed = wanted, set[int]()
        self.pairs = dict[int, tuple[Tensor, Tensor]]()  # q and k, where the weights are not made
        self._maps: Tensor | None = None

    def places(self, layer: int, like: Tensor) -> list[Tensor]:
        """Where the maps of this layer belong, each (B, A, N, N); `like` is (B, A, N, …)."""
        if self._maps is None:
            B, A, N, _ = like.shape
            size = (len(self.wanted), B, A, N, N)
            self._maps = torch.empty(size, dtype=torch.float32, device=like.device)
        return [self._maps[place] for place, each in enumerate(self.wanted) if each == layer]

    def maps(self) -> Tensor:
        """All of them (layers, B, A, N, N). What is still to be made of q and k is made after the
        forward rather than within it, and in place: the cheapest of the ways measured."""
        for layer, (q, k) in self.pairs.items():
            for place in self.places(layer, q):
                maps = place.flatten(0, 1)  # (B * A, N, N)
                queries, keys = q.float().flatten(0, 1), k.float().flatten(0, 1)
                scale = q.shape[-1] ** -0.5
                torch.baddbmm(maps, queries, keys.mT, beta=0, alpha=scale, out=maps)
                torch.softmax(maps, -1, out=maps)
        return torch.empty(0) if self._maps is None else self._maps


class _Watched(nn.Module):
    """Passes q, k, v on to the core it stands before, and keeps what the maps are made of."""

    def __init__(self, core: nn.Module, seen: _Seen, layer: int) -> None:
        super().__init__()
        self.core, self.seen, self.layer = core, seen, layer

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        core, seen = self.core, self.seen
        seen.passed.add(self.layer)
        if self.layer not in seen.wanted:
            return core(q, k, v)
        if isinstance(core, ExplicitAttention) and core.shows(q, k):
            weights = core.weights(q, k)
            for place in seen.places(self.layer, q):
                place.copy_(weights)  # now, while they are in the cache
            return weights.to(v.dtype) @ v
        seen.pairs[self.layer] = q.detach(), k.detach()  # views of what the block computed anyway
        return core(q, k, v)


def attend(
    model: ViT, pixels: Tensor, layers: Sequence[int] | None = None
) -> tuple[Tensor, Tensor]:
    """Logits (B, C) of photos (B, 3, H, W), and what every head looked at, in one forward.

    The maps are (layers, B, A, N, N), float32, detached: the weight that the asking token (last
    but one axis) gives to every token (last axis), each row summing to one. `layers` chooses and
    orders them, counted from 0, or from the end below 0; only those are kept. The logits are those
    of `model(pixels)` to the last bit. All maps of one photo of 384 pixels through ViT-B/16 take
    192 MB, and 64 MB more while they are made. Raises ValueError for a layer that is not there, and
    when the attention of a layer did not pass through its `attn.core`.
    """
    depth = len(model.blocks)
    wanted = list(range(depth)) if layers is None else [_index(layer, depth) for layer in layers]
    view, seen = own_view(model), _Seen(wanted)
    for layer, attn in attentions(view):
        attn.core = _Watched(attn.core, seen, layer)
    with torch.no_grad():
        logits = view(pixels)
        _check_all_caught(seen.passed, depth)
        with torch.autocast(pixels.device.type, enabled=False):
            return logits, seen.maps()


@contextmanager
def explicit_attention(model: ViT) -> Iterator[None]:
    """Inside, every block of `model` computes its attention in the open.

    It changes `model` itself: for a model that is nobody else's, as in training.
    """
    places = [module for module in model.modules() if isinstance(module, Attention)]
    before = [place.core for place in places]
    try:
        for place in places:
            place.core = ExplicitAttention()
        yield
    finally:
        for place, core in zip(places, before, strict=True):
            place.core = core


class _WithGradient(ExplicitAttention):
    """Keeps the weights in the graph, so that a gradient with respect to them can be taken."""

    def __init__(self, kept: dict[int, Tensor], layer: int) -> None:
        super().__init__()
        self.kept, self.layer = kept, layer

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        weights = super().weights(q, k)
        if not weights.requires_grad:  # nothing below it does: the model is frozen
            weights.requires_grad_()
        self.kept[self.layer] = weights
        return weights


def attend_with_gradients(
    model: ViT, pixels: Tensor, target: int | Tensor | None = None
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Logits (B, C), and for every layer, in order, the maps and the gradients of one class's logit
    with respect to them, each (B, A, N, N); one forward and one backward.

    `target` is a class, one for each photo (B,), or None for the class that the model names. No
    parameter's `.grad` is touched, and it works inside `no_grad` and `inference_mode`, and on
    frozen models. For one photo of 384 pixels through ViT-B/16 it needs about 1 GB. Raises
    ValueError as `attend` does.
    """
    view, kept = own_view(model), dict[int, Tensor]()
    for layer, attn in attentions(view):
        attn.core = _WithGradient(kept, layer)
    with torch.inference_mode(False), torch.enable_grad():
        with torch.no_grad():
            tokens = view.embed(pixels.clone())  # an inference tensor's clone is an ordinary one
        logits = view.classify(view.encode(tokens))
        _check_all_caught(kept, len(view.blocks))
        maps = [kept[layer] for layer in range(len(view.blocks))]
        chosen = logits.argmax(1) if target is None else torch.as_tensor(target)
        chosen = chosen.to(logits.device).expand(len(logits))
        # photos do not see each other, so the gradient of the sum holds that of each
        gradients = torch.autograd.grad(logits.gather(1, chosen[:, None]).sum(), maps)
    return logits.detach(), [weights.detach() for weights in maps], list(gradients)


def class_relevance(
    model: ViT, pixels: Tensor, target: int | Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Logits (B, C) and the relevance (B, N, N) of every token for one class, after Chefer, Gur
    and Wolf 2021; `vit.maps.speaks_for` tells how much each patch speaks for the class.

    `target` and errors as in `attend_with_gradients`; the rule is `vit.maps.relevance`.
    """
    logits, maps, gradients = attend_with_gradients(model, pixels, target)
    return logits, relevance(maps, gradients)


def grid_of(model: ViT, pixels: Tensor) -> tuple[int, int]:
    """Rows and columns of patches that `model` makes of photos of this size (…, H, W)."""
    patch_height, patch_width = model.config.patch_size
    return pixels.shape[-2] // patch_height, pixels.shape[-1] // patch_width


def _index(layer: int, depth: int) -> int:
    if not -depth <= layer < depth:
        raise ValueError(f"There is no layer {layer}: the model has {depth}, counted from 0.")
    return layer % depth


def _check_all_caught(caught: Container[int], depth: int) -> None:
    missed = [layer for layer in range(depth) if layer not in caught]
    if missed:
        raise ValueError(
            f"Only {depth - len(missed)} of {depth} layers showed their attention; missing, counted"
            f" from 0: {', '.join(map(str, missed))}. Attention must pass through `attn.core`."
        )
