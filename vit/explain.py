"""Questions put to a model: what if these heads or patches were gone, and what would it have said
after fewer blocks.

Patches are numbered row by row from 0, as `vit.maps` has them.
"""

from collections.abc import Collection

import torch
from torch import Tensor, nn

from vit.attention import attentions, own_view
from vit.model import ViT


class _Silence(nn.Module):
    """Zeroes the outputs of some heads, on their way from the attention to the projection."""

    def __init__(self, silent: Collection[int], attention_heads: int, like: Tensor) -> None:
        super().__init__()
        loud = torch.ones(attention_heads, 1, device=like.device)
        loud[sorted(silent)] = 0
        self.loud, self.heads = loud, attention_heads

    def forward(self, mixed: Tensor) -> Tensor:
        heads = mixed.unflatten(-1, (self.heads, -1))  # (B, N, D) -> (B, N, A, D / A)
        return (heads * self.loud.to(mixed.dtype)).flatten(-2)


def without_heads(model: ViT, heads: Collection[tuple[int, int]]) -> ViT:
    """`model` with these (layer, head), counted from 0, switched off: their output is zero.

    A view that shares the weights: `model` itself goes on as it was, also in another thread, and
    whatever asks a model (`attend`, `vit.faithfulness`) may be asked of it. Raises ValueError for a
    head that is not there.
    """
    view = own_view(model)
    depth, A = model.config.depth, model.config.heads
    for layer, head in heads:
        if not (0 <= layer < depth and 0 <= head < A):
            raise ValueError(
                f"There is no head {head} in layer {layer}: the model has {depth} layers of {A} "
                "heads, both counted from 0."
            )
    for layer, attn in attentions(view):
        if silent := {head for at, head in heads if at == layer}:
            silence = _Silence(silent, A, model.pos_embed)
            attn.proj = nn.Sequential(silence, attn.proj)  # pyright: ignore[reportAttributeAccessIssue]
    return view


def without_patches(model: ViT, pixels: Tensor, keep: Tensor) -> Tensor:
    """Logits (B, C) when the model is shown only the patches in `keep`, each at its own place.

    keep: patch numbers (K,), or a mask (h, w) or (h * w,) of bool; or numbers (B, K), which may
    differ from row to row while `pixels` is one photo (1, 3, H, W) or B of them. Prefix tokens
    always stay, so K may be 0.
    """
    with torch.no_grad():
        return classify_kept(model, model.embed(pixels), keep)


def classify_kept(model: ViT, tokens: Tensor, keep: Tensor) -> Tensor:
    """The same for embedded tokens (B, N, D), as `model.embed` gives them."""
    prefix = model.num_prefix_tokens
    patches = tokens.shape[1] - prefix
    if keep.dtype == torch.bool:
        if keep.numel() != patches:
            raise ValueError(f"The mask has {keep.numel()} places, the photo {patches} patches.")
        keep = keep.flatten().nonzero().flatten()
    keep = keep.to(tokens.device, torch.long)
    if keep.numel() and not (keep.min() >= 0 and keep.max() < patches):
        raise ValueError(f"Patches are numbered from 0 to {patches - 1}, got {keep.tolist()}.")
    if keep.ndim == 1:
        keep = keep.expand(len(tokens), -1)
    always = torch.arange(prefix, device=keep.device).expand(len(keep), -1)
    index = torch.cat([always, keep + prefix], 1)  # (B, prefix + K)
    tokens = tokens.expand(len(keep), -1, -1)
    tokens = tokens.gather(1, index[..., None].expand(-1, -1, tokens.shape[2]))
    return model.classify(model.encode(tokens))


def predictions_after_each_block(model: ViT, pixels: Tensor) -> Tensor:
    """Logits (depth, B, C) that the last LayerNorm and the head make of the class token after every
    block (the "logit lens", nostalgebraist 2020). The last row is the model's own answer."""
    with torch.no_grad():
        tokens, answers = model.embed(pixels), []
        for block in model.blocks:
            tokens = block(tokens)
            answers.append(model.classify(model.norm(tokens)))
    return torch.stack(answers)
