"""The upper blocks of a Vision Transformer as a model of its own, to be trained on what the blocks
below them made; and its answer without the work that no answer needs."""

from collections.abc import Iterable
from typing import cast

from torch import Tensor, nn
from torch.nn import functional as F

from vit.model import Block, ScaledBlock, ViT, ViTConfig, read_by_head


class Top(nn.Module):
    """The last `count` blocks of `model`, its last LayerNorm and its head; the weights are shared.

    Parameters keep the names that they have in the model. `forward` takes the tokens (B, N, D) that
    enter the first of these blocks, see `below`, and gives logits (B, C).
    """

    def __init__(self, model: ViT, count: int) -> None:
        super().__init__()
        first = len(model.blocks) - count
        self.blocks = nn.ModuleDict({str(i): model.blocks[i] for i in range(first, first + count)})
        self.norm, self.pre_logits, self.head = model.norm, model.pre_logits, model.head
        self.config = model.config

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = self.norm(_through(self.blocks.values(), tokens, self.config))
        return self.head(self.pre_logits(read_by_head(tokens, self.config)))


def below(model: ViT, images: Tensor, count: int) -> Tensor:
    """Photos (B, 3, H, W) as tokens (B, N, D) at the entrance of the last `count` blocks."""
    tokens = model.embed(images)
    for block in list(model.blocks)[: len(model.blocks) - count]:
        tokens = block(tokens)
    return tokens


def pooled(model: ViT, images: Tensor) -> Tensor:
    """What the head sees of photos (B, 3, H, W): to rounding what all tokens would have given.

    After the last block nobody looks at the patches, unless the head reads their mean.
    """
    tokens = _through(model.blocks, model.embed(images), model.config)
    return model.pool(model.norm(tokens))


def answer(model: ViT, images: Tensor) -> Tensor:
    """Logits (B, C) of photos (B, 3, H, W): `model(images)` to rounding, in about 0.94 of its time.
    For who wants the answer alone; the model itself also says where it looked."""
    return model.head(pooled(model, images))


def _through(blocks: Iterable[nn.Module], tokens: Tensor, config: ViTConfig) -> Tensor:
    """All tokens through the blocks but the last, and of what that gives the tokens looked at."""
    *others, last = blocks
    for block in others:
        tokens = block(tokens)
    if config.patch_mean:
        return last(tokens)
    return first_tokens(cast(Block, last), tokens, config.class_tokens)


def first_tokens(block: Block, tokens: Tensor, count: int) -> Tensor:
    """The first `count` tokens after `block`: what `block(tokens)[:, :count]` is, for less work.

    After the last block only class tokens are looked at. Of the others it needs keys and values
    alone, a sixth of its arithmetic.
    """
    attn, (B, N, D) = block.attn, tokens.shape
    normed, heads, first = block.norm1(tokens), attn.heads, tokens[:, :count]
    weights, biases = attn.qkv.weight.split([D, 2 * D]), attn.qkv.bias.split([D, 2 * D])
    q = F.linear(normed[:, :count], weights[0], biases[0]).view(B, count, heads, D // heads)
    kv = F.linear(normed, weights[1], biases[1]).view(B, N, 2, heads, D // heads)
    k, v = kv.permute(2, 0, 3, 1, 4).unbind(0)  # each (B, A, N, D / A)
    mixed = attn.core(q.transpose(1, 2), k, v)  # (B, A, count, D / A)
    branch = attn.proj(mixed.transpose(1, 2).reshape(B, count, D))
    scaled = isinstance(block, ScaledBlock)
    first = first + block.drop(block.ls1(branch) if scaled else branch)
    branch = block.mlp(block.norm2(first))
    return first + block.drop(block.ls2(branch) if scaled else branch)
